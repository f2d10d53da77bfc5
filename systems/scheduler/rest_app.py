"""The REST interface of a served scheduler, version 1; its page is at ``/docs``.

Tokens, rights, limits and the page are those of `flowlex.systems.telemetry`; tokens are in the scheduler's database.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import Future
from math import inf
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, FastAPI, Header, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from flowlex.systems.scheduler.core_protocol import Core, RefusedEvent, SlowAnswer, UnknownTask
from flowlex.systems.scheduler.documents import Decision
from flowlex.systems.scheduler.metrics import Metrics
from flowlex.systems.scheduler.replica import KeyUsed, NotLeading, Replica, StorageError
from flowlex.systems.telemetry import routes_service
from flowlex.systems.telemetry.access_rights import Admin, Reader, only_known_parameters, require
from flowlex.systems.telemetry.request_limits import RateLimit
from flowlex.systems.telemetry.response_models import ERRORS, Problem, refuse
from flowlex.systems.telemetry.rest_app import HANDLERS, equip
from flowlex.systems.telemetry.routes_service import Health
from flowlex.systems.telemetry.service_context import Settings
from flowlex.systems.telemetry.store import Store
from flowlex.systems.telemetry.tokens_and_rights import Identity, Role, TokenBook

T = TypeVar("T")
#: Most seconds that a request waits for the scheduler, between two looks, and that a price in an explanation may take.
_WAIT_S, _LOOK_S, _SLOW_S = 8.0, 0.2, 60.0
_TOKENS_S = 1.0
REFUSED: dict[int | str, dict[str, Any]] = {409: {"model": Problem, "description": "It does not fit the state"}}
Writer = Annotated[Identity, Depends(require(Role.ADMIN, Role.AGENT))]
Key = Annotated[
    str,
    Header(
        alias="Idempotency-Key",
        max_length=100,
        description="Names this request; sent again with the same name it is answered as before and not taken twice.",
    ),
]


class Served:
    """Shared state of the routes; it has the attributes that `flowlex.systems.telemetry.access_rights` uses."""

    def __init__(self, replica: Replica[Any], settings: Settings) -> None:
        self.settings: Settings
        self.replica, self.settings = replica, settings
        self.store: Store = replica.database.store
        self.metrics: Metrics = replica.metrics
        self.tokens: TokenBook = TokenBook(self.store, cache_s=inf)  # `keep_tokens` reads them: no request waits
        self.rate: RateLimit = RateLimit(settings.requests_per_s)
        self.slow: asyncio.Lock = asyncio.Lock()

    async def write(self, function: Callable[[], T]) -> T:
        """Change the stored tokens."""
        found = await run_in_threadpool(function)
        await run_in_threadpool(lambda: self.tokens.refresh(force=True))
        return found

    async def keep_tokens(self) -> None:
        """Read the tokens again and again."""
        while True:
            with contextlib.suppress(Exception):  # the database is away: those known stay
                await run_in_threadpool(lambda: self.tokens.refresh(force=True))
            await asyncio.sleep(_TOKENS_S)

    async def wait(self, future: Future[T]) -> T:
        """Wait some seconds for the scheduler; less where its database does not answer, as another may lead by then."""
        answer = asyncio.wrap_future(future)
        for _ in range(round(_WAIT_S / _LOOK_S)):
            if (await asyncio.wait({answer}, timeout=_LOOK_S))[0]:
                return answer.result()
            if self.replica.stuck:
                break
        raise TimeoutError

    async def read(self, question: Callable[[Any], Any]) -> Response:
        """Query the scheduler of this process; a slow answer is found on another thread, one at a time."""

        def ask(core: Core) -> Any:
            found = question(core)
            return found if isinstance(found, SlowAnswer) else _json(found)

        found = await self.wait(self.replica.ask(ask))
        if isinstance(found, SlowAnswer):
            if self.slow.locked():
                found = _json(found.otherwise)
            else:
                async with self.slow:
                    slow = await asyncio.wait_for(run_in_threadpool(found.find), _SLOW_S)
                found = _json(slow)
        return Response(found, media_type="application/json")


def _json(found: Any) -> bytes:
    return (
        found.model_dump_json(exclude_unset=True) if hasattr(found, "model_dump_json") else json.dumps(found)
    ).encode()


def served(request: Request) -> Served:
    """Return the application's service."""
    found: Served = request.app.state.service
    return found


ServedDep = Annotated[Served, Depends(served)]


router: APIRouter = APIRouter(
    prefix="/v1", tags=["decisions"], responses=ERRORS, dependencies=[Depends(only_known_parameters)]
)
health_router: APIRouter = APIRouter(tags=["service"], dependencies=[Depends(only_known_parameters)])


def create_app(replica: Replica[Any], routes: Iterable[APIRouter], title: str, settings: Settings) -> FastAPI:
    """Build the application; closing it lets a follower lead. ``routes``: of this kind of scheduler."""
    service = Served(replica, settings)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        tokens = asyncio.create_task(service.keep_tokens())
        yield
        tokens.cancel()
        await asyncio.to_thread(replica.close)

    app = FastAPI(title=title, version="1", lifespan=lifespan, docs_url=None, redoc_url=None)
    own = *routes, router, routes_service.router, health_router
    equip(app, service, (*own, routes_service.page_router), {**HANDLERS, **_OWN})
    return app


@router.post("/step", responses=REFUSED, response_model_exclude_none=True)
async def step(service: ServedDep, who: Admin, key: Key = "") -> Decision:
    """Decide now."""
    return Decision.model_validate(await service.wait(service.replica.decide(who.digest, key)))


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
        found = service.replica.decisions(after)
        if found or asyncio.get_running_loop().time() >= until:
            break
        await asyncio.sleep(0.025)
    if found and after + 1 < found[0]["number"]:
        first = found[0]["number"]
        raise refuse(
            409, "forgotten", f"decisions from {first} on are kept; read all placements, then ask after={first}"
        )
    text = ",".join(Decision.model_validate(each).model_dump_json(exclude_none=True) for each in found)
    return Response(f"[{text}]", media_type="application/json")


@health_router.get("/readyz", responses={503: {"model": Problem}})
async def readyz(service: ServedDep) -> Health:
    """Say that this process leads and decides; needs no token."""
    if service.replica.failing:
        raise refuse(503, "failing", f"no decision is possible here: {service.replica.failing[:500]}")
    return Health(status="ok", api=1)


@health_router.get("/metrics", response_class=Response)
async def metrics(service: ServedDep, who: Reader) -> Response:
    """The figures of this process, for Prometheus; needs a reader's token."""
    for name, value in (await service.wait(service.replica.ask(lambda core: core.facts()))).items():
        service.metrics.state.labels(name).set(value)
    service.metrics.waiting.set(service.replica.waiting)
    service.metrics.leads.set(service.replica.term is not None)
    return Response(generate_latest(service.metrics.registry), media_type=CONTENT_TYPE_LATEST)


async def _answer(request: Request, error: Exception) -> JSONResponse:
    detail: Any = {"reason": "storage", "message": str(error)}
    match error:
        case RefusedEvent():
            return JSONResponse({"detail": detail | {"reason": "refused"}}, 409)
        case UnknownTask():
            return JSONResponse({"detail": detail | {"reason": "unknown"}}, 404)
        case KeyUsed():
            return JSONResponse({"detail": [{"loc": ["request"], "msg": str(error), "type": "key_used"}]}, 422)
        case NotLeading():  # without Retry-After, clients try the next address
            return JSONResponse({"detail": detail | {"reason": "not_leading", "leader": error.leader}}, 503)
        case TimeoutError():
            said = "no answer in time; the same Idempotency-Key tells whether it was taken"
            return JSONResponse({"detail": {"reason": "slow", "message": said}}, 503)
    return JSONResponse({"detail": detail}, 503, {"Retry-After": "1"})


_OWN: dict[type[Exception], Any] = dict.fromkeys(
    (RefusedEvent, UnknownTask, KeyUsed, StorageError, TimeoutError), _answer
)
