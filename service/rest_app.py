"""The REST interface of a served scheduler, version 1; its page is at ``/docs``.

Tokens, rights, limits and the page are those of `flowlex.telemetry`; tokens are kept in the service's folder.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from flowlex.service import replication_routes
from flowlex.service.decision_thread import BusyError, NotLeading, StorageError, Worker
from flowlex.service.request_documents import Decision
from flowlex.service.scheduler_protocol import Document, NoReaderError, RefusedEvent
from flowlex.service.scheduler_routes import placement_router
from flowlex.service.served_scheduler import REFUSED, Key, Served, ServedDep
from flowlex.telemetry import routes_service
from flowlex.telemetry.access_rights import Admin, Reader, only_known_parameters
from flowlex.telemetry.response_models import ERRORS, Problem, refuse
from flowlex.telemetry.rest_app import HANDLERS, equip
from flowlex.telemetry.routes_service import Health
from flowlex.telemetry.service_context import Settings
from flowlex.telemetry.store import Store

router: APIRouter = APIRouter(
    prefix="/v1", tags=["decisions"], responses=ERRORS, dependencies=[Depends(only_known_parameters)]
)
health_router: APIRouter = APIRouter(tags=["service"], dependencies=[Depends(only_known_parameters)])


def create_app(worker: Worker[Any], store: Store, routes: APIRouter, title: str, settings: Settings) -> FastAPI:
    """Build the application; closing it takes a snapshot.

    ``worker``: a running worker. ``store``: of the tokens; the caller closes it. ``routes``: of this kind of scheduler.
    """
    service: Served[Any] = Served(worker, store, settings)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(worker.close)

    app = FastAPI(title=title, version="1", lifespan=lifespan, docs_url=None, redoc_url=None)
    own = routes, placement_router, router, replication_routes.router, routes_service.router, health_router
    equip(app, service, (*own, routes_service.page_router), {**HANDLERS, **_OWN})
    return app


@router.post("/step", responses=REFUSED, response_model_exclude_none=True)
async def step(service: ServedDep, who: Admin, key: Key = "") -> Decision:
    """Decide now."""
    worker = service.worker
    found: Document = await service.ask(lambda core: worker.decide(key))
    return Decision.model_validate(found)


@router.get("/decisions", responses=REFUSED, response_model=list[Decision])
async def decisions(
    service: ServedDep,
    who: Reader,
    after: Annotated[int, Query(ge=0, description="Number of the last decision that is known.")] = 0,
    wait_s: Annotated[float, Query(ge=0, le=60, description="Wait so long for the next one.")] = 0.0,
) -> Response:
    """Decisions since one, at most the last thousand; 409 where some of them are not kept any more."""
    until = asyncio.get_running_loop().time() + wait_s
    while True:
        kept = service.worker.decisions
        found = [each for each in kept if each["number"] > after]
        if found or asyncio.get_running_loop().time() >= until:
            break
        await asyncio.sleep(0.025)
    if found and after + 1 < found[0]["number"]:
        first = found[0]["number"]
        raise refuse(
            409, "forgotten", f"decisions from {first} on are kept; read all placements, then ask after={first}"
        )
    return Response(b"[%s]" % b",".join(map(service.json_of, found)), media_type="application/json")


@health_router.get("/readyz", responses={503: {"model": Problem}})
async def readyz(service: ServedDep) -> Health:
    """Say that decisions are made; needs no token."""
    failing = service.worker.failing or service.worker.replication.trouble
    if failing:
        raise refuse(503, "failing", f"no decision is possible: {failing[:500]}")
    return Health(status="ok", api=1)


@health_router.get("/metrics", response_class=Response)
async def metrics(service: ServedDep, who: Reader) -> Response:
    """The service's figures, for Prometheus; needs a reader's token."""
    for name, value in (await service.ask(lambda core: core.facts(), replicated=False)).items():
        service.metrics.state.labels(name).set(value)
    service.metrics.waiting.set(service.worker.waiting)
    return Response(generate_latest(service.metrics.registry), media_type=CONTENT_TYPE_LATEST)


async def _event(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": {"reason": "refused", "message": str(error)}}, 409)


async def _storage(request: Request, error: Exception) -> JSONResponse:
    kinds = {BusyError: "busy", NoReaderError: "busy", TimeoutError: "busy", NotLeading: "not_leading"}
    detail = {"reason": kinds.get(type(error), "storage"), "message": str(error)}
    # Without Retry-After, clients try the next service.
    return JSONResponse({"detail": detail}, 503, None if isinstance(error, NotLeading) else {"Retry-After": "1"})


_OWN: dict[type[Exception], Any] = {
    RefusedEvent: _event,
    **dict.fromkeys((BusyError, NoReaderError, StorageError, TimeoutError), _storage),
}
