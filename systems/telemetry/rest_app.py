"""The REST interface, version 1; its OpenAPI page is at ``/docs``."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Protocol

import sqlalchemy as sa
from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from flowlex.systems.telemetry import routes_data, routes_manage, routes_service
from flowlex.systems.telemetry.access_rights import TokenFirst
from flowlex.systems.telemetry.commit_thread import BusyError
from flowlex.systems.telemetry.prometheus_metrics import HttpMetrics
from flowlex.systems.telemetry.read_queries import TooMuch
from flowlex.systems.telemetry.request_limits import BodyLimit, HostLimit, Observed
from flowlex.systems.telemetry.response_models import refuse
from flowlex.systems.telemetry.sample_writes import SequenceConflict
from flowlex.systems.telemetry.service_context import Service, Settings
from flowlex.systems.telemetry.store import Store

_LOG = logging.getLogger(__name__)


def create_app(store: Store, settings: Settings | None = None) -> FastAPI:
    """Build the application on a store, which stays open; closing the application commits waiting writes."""
    settings = settings or Settings()
    service = Service(store, settings)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await asyncio.to_thread(service.roster.refresh)
        await asyncio.to_thread(store.upkeep.check_reserve)
        tasks = [asyncio.create_task(work) for work in (service.keep_roster(), service.keep_small())]
        yield
        for task in tasks:
            task.cancel()
        await asyncio.to_thread(service.close)

    app = FastAPI(
        title="flowlex node information service",
        version="1",
        summary="Last values, histories and the collectors that make them.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    # Routes are tried in order: the busiest first.
    own = routes_data.router, routes_manage.router, routes_service.router, routes_service.health_router
    equip(app, service, (*own, routes_service.page_router), HANDLERS)
    return app


class Equipped(Protocol):
    """The properties of a service that `equip` uses."""

    @property
    def settings(self) -> Settings:
        """Its limits."""

    @property
    def metrics(self) -> HttpMetrics:
        """Its metrics."""


def equip(
    app: FastAPI, service: Equipped, routers: Iterable[APIRouter], handlers: Mapping[type[Exception], Any]
) -> None:
    """Add to an application its service, routes, error handlers and the limits common to all services."""
    app.state.service, settings = service, service.settings
    for router in routers:
        app.include_router(router)
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)
    # The middleware added last sees a request first.
    app.add_middleware(TokenFirst, service=service)
    app.add_middleware(BodyLimit, max_bytes=settings.max_body_bytes, max_pending=settings.max_pending_bytes)
    app.add_middleware(Observed, metrics=service.metrics)
    if not settings.require_token:
        app.add_middleware(HostLimit)


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    """Say what is wrong with a request without repeating its content, which may be secret or not text."""
    assert isinstance(error, RequestValidationError)
    detail = [
        {"loc": [_plain(step) for step in problem["loc"]], "msg": _plain(problem["msg"]), "type": problem["type"]}
        for problem in error.errors()[:20]
    ]
    if "json" not in (kind := request.headers.get("content-type", "")) and detail[0]["loc"] == ["body"]:
        detail[0]["msg"] = (
            f"expected JSON, got Content-Type {_plain(kind[:100])!r}; send Content-Type: application/json"
        )
    return JSONResponse({"detail": detail}, 422)


async def _refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    known = isinstance(error.detail, dict | list)
    detail = error.detail if known else {"reason": "refused", "message": error.detail}
    headers = dict(error.headers or {})
    if error.status_code == 405:  # the framework names the first route's methods only
        headers["allow"] = ", ".join(_methods(request))
    return JSONResponse({"detail": detail}, error.status_code, headers=headers)


async def _unavailable(request: Request, error: Exception) -> JSONResponse:
    """Answer 503 for a locked, full or unreachable database, without details of the error."""
    if not isinstance(error, BusyError):
        _LOG.error("%s %s: %s", request.method, request.url.path[:200], type(error).__name__)
    busy = isinstance(error, BusyError)
    reason, message = ("busy", str(error)) if busy else ("database", "the database does not answer")
    refusal = refuse(503, reason, f"{message}; come again in a second")
    return await _refused(request, refusal)


async def _too_much(request: Request, error: Exception) -> JSONResponse:
    return await _refused(request, refuse(422, "too_much", str(error)))


async def _conflict(request: Request, error: Exception) -> JSONResponse:
    return await _refused(request, refuse(409, "conflict", str(error)))


HANDLERS: dict[type[Exception], Any] = {
    RequestValidationError: _invalid,
    HTTPException: _refused,
    sa.exc.SQLAlchemyError: _unavailable,
    BusyError: _unavailable,
    TooMuch: _too_much,
    SequenceConflict: _conflict,
}


def _methods(request: Request) -> list[str]:
    paths = request.app.openapi()["paths"]
    fitting = (verbs for path, verbs in paths.items() if compile_path(path)[0].match(request.url.path))
    return sorted({verb.upper() for verbs in fitting for verb in verbs})


def _plain(step: Any) -> Any:
    return step if isinstance(step, int) else str(step).encode("utf-8", "backslashreplace").decode()
