"""The REST interface of a served scheduler, version 1; its page is at ``/docs``.

Tokens, rights, limits and the page are those of `flowlex.systems.telemetry`; tokens are in the scheduler's database.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from math import inf
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, FastAPI, Header, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic_core import to_json
from starlette.exceptions import HTTPException

from flowlex.systems.scheduler import documents as doc
from flowlex.systems.scheduler import event_log as ev
from flowlex.systems.scheduler.replica import NotLeading, Replica
from flowlex.systems.telemetry import access_rights, routes_service
from flowlex.systems.telemetry.access_rights import Admin, Reader, only_known_parameters, refuse_other_node, require
from flowlex.systems.telemetry.request_limits import RateLimit
from flowlex.systems.telemetry.response_models import ERRORS, NOT_FOUND, Problem, refuse
from flowlex.systems.telemetry.rest_app import HANDLERS, equip
from flowlex.systems.telemetry.routes_service import Health
from flowlex.systems.telemetry.service_context import Settings
from flowlex.systems.telemetry.tokens_and_rights import Identity, Role, TokenBook

T = TypeVar("T")
#: Seconds: most for an answer, between two looks for it, most for the price of an explanation, between reading tokens.
_WAIT_S, _LOOK_S, _SLOW_S, _TOKENS_S = 8.0, 0.2, 60.0, 1.0
_REFUSED: dict[int | str, dict[str, Any]] = {409: {"model": Problem, "description": "It does not fit the state"}}
Writer = Annotated[Identity, Depends(require(Role.ADMIN, Role.AGENT))]
_KEY = "Names this request; sent again with the same name it is answered as before and not taken twice."
Key = Annotated[str, Header(alias="Idempotency-Key", max_length=100, description=_KEY)]
TaskName = Annotated[str, Query(min_length=1, max_length=200, description="Name of the task.")]


class Served:
    """Shared state of the routes; it has the attributes that `flowlex.systems.telemetry.access_rights` uses."""

    def __init__(self, replica: Replica, settings: Settings) -> None:
        self.replica, self.settings = replica, settings
        self.store, self.metrics = replica.database, replica.metrics
        self.tokens: TokenBook = TokenBook(self.store, cache_s=inf)  # `keep_tokens` reads them: no request waits
        self.rate: RateLimit = RateLimit(settings.requests_per_s)
        self.slow: asyncio.Lock = asyncio.Lock()

    async def write(self, function: Callable[[], T]) -> T:
        """Change the stored tokens."""
        return await run_in_threadpool(function)

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
        answer.cancel()  # if it has not begun, it never will
        raise TimeoutError

    async def read(self, question: Callable[[Any], Any]) -> Response:
        """Query the scheduler of this process; a slow answer is found on another thread, one at a time."""

        def ask(core: doc.Core) -> Any:
            return found if isinstance(found := question(core), doc.SlowAnswer) else to_json(found)

        found = await self.wait(self.replica.ask(ask))
        if isinstance(found, doc.SlowAnswer) and self.slow.locked():
            found = to_json(found.otherwise)
        elif isinstance(found, doc.SlowAnswer):
            async with self.slow:
                found = to_json(await asyncio.wait_for(run_in_threadpool(found.find), _SLOW_S))
        return Response(found, media_type="application/json")

    async def take(self, who: Identity, events: Sequence[Any], key: str) -> dict[str, int]:
        """Take events in order; answer 409 at the first that does not fit, with the number taken before it."""
        if who.role is Role.AGENT and who.digest:
            tasks = [event.task for event in events if isinstance(event, ev.Finish | ev.TaskEnd)]
            where = await self.wait(self.replica.ask(lambda core: core.nodes_of(tasks))) if tasks else {}
            for event in events:
                refuse_other_node(who, ev.node_of(event, where))
        documents = [event.model_dump(mode="json", exclude_unset=True) for event in events]
        answer = await self.wait(self.replica.take(documents, who.digest, key))
        if answer.refused:
            said = f"events[{answer.taken}]: {answer.refused}; the {answer.taken} before it are taken"
            raise refuse(409, "refused", said, taken=answer.taken)
        return {"taken": answer.taken}


ServedDep = Annotated[Served, Depends(access_rights.service_of)]


def _router(tag: str, prefix: str = "/v1", **options: Any) -> APIRouter:
    return APIRouter(prefix=prefix, tags=[tag], dependencies=[Depends(only_known_parameters)], **options)


cluster_router: APIRouter = _router("scheduler", responses=ERRORS)
gpu_router: APIRouter = _router("GPU rounds", responses=ERRORS)
router: APIRouter = _router("decisions", responses=ERRORS)
health_router: APIRouter = _router("service", "")


def create_app(replica: Replica, settings: Settings) -> FastAPI:
    """Build the application; closing it lets a follower lead."""
    service = Served(replica, settings)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        tokens = asyncio.create_task(service.keep_tokens())
        yield
        tokens.cancel()
        await asyncio.to_thread(replica.close)

    own = {"scheduler": cluster_router, "gpu": gpu_router}[replica.settings.kind]
    app = FastAPI(title=f"flowlex {own.tags[0]}", version="1", lifespan=lifespan, docs_url=None, redoc_url=None)
    routers = own, router, routes_service.router, health_router, routes_service.page_router
    equip(app, service, routers, HANDLERS | {doc.Refusal: _refused, TimeoutError: _refused})
    return app


# Events and decisions ------------------------------------------------------------------------------------------------
@cluster_router.post("/events", responses=_REFUSED)
async def cluster_events(service: ServedDep, who: Writer, given: doc.ClusterEvents, key: Key = "") -> dict[str, int]:
    """Take events; they are on disk when this answers.

    An admin's token may send all; an agent's those of its own machine, and the ends of tasks that run there.
    """
    return await service.take(who, given.events, key)


@gpu_router.post("/events", responses=_REFUSED)
async def gpu_events(service: ServedDep, who: Writer, given: doc.GpuEvents, key: Key = "") -> dict[str, int]:
    """Take reports of nodes and jobs; they are on disk when this answers.

    An admin's token may send all; an agent's what its own node reports: its GPUs, ends of its tasks, transfers to it.
    """
    return await service.take(who, given.events, key)


@router.post("/step", responses=_REFUSED, response_model_exclude_none=True)
async def step(service: ServedDep, who: Admin, key: Key = "") -> doc.Decision:
    """Decide now."""
    return doc.Decision.model_validate(await service.wait(service.replica.decide(who.digest, key)))


@router.get("/decisions", responses=_REFUSED, response_model=list[doc.Decision])
async def decisions(
    service: ServedDep,
    who: Reader,
    after: Annotated[int, Query(ge=0, description="Number of the last decision that is known.")] = 0,
    wait_s: Annotated[float, Query(ge=0, le=60, description="Wait so long for the next one.")] = 0.0,
) -> Response:
    """Decisions since one, at most the last thousand; 409 where some of them are not kept any more."""
    until = asyncio.get_running_loop().time() + wait_s
    while not (found := service.replica.decisions(after)) and asyncio.get_running_loop().time() < until:
        await asyncio.sleep(0.025)
    if found and after + 1 < (first := found[0]["number"]):
        raise refuse(
            409, "forgotten", f"decisions from {first} on are kept; read all placements, then ask after={first}"
        )
    text = ",".join(doc.Decision.model_validate(each).model_dump_json(exclude_none=True) for each in found)
    return Response(f"[{text}]", media_type="application/json")


# Questions -----------------------------------------------------------------------------------------------------------
@cluster_router.get("/explanation", responses={**NOT_FOUND, **_REFUSED}, response_model=doc.Explained)
async def explanation(service: ServedDep, who: Reader, task: TaskName) -> Response:
    """Say why a task waits, what would have to change, and its price."""
    return await service.read(lambda core: core.explain(task))


@gpu_router.get("/bandwidths", response_model=dict[str, float])
async def bandwidths(service: ServedDep, who: Reader) -> Response:
    """Rates in MB/s that the next round takes: estimated where enough transfers were reported."""
    return await service.read(lambda core: core.rates())


@router.get("/task", responses=NOT_FOUND, response_model=doc.Place)
async def task(service: ServedDep, who: Reader, name: TaskName) -> Response:
    """Say where a task runs, or why it waits."""
    return await service.read(lambda core: core.task(name))


@router.get("/placements", response_model=doc.Places)
async def placements(service: ServedDep, who: Reader) -> Response:
    """All tasks that run, with their machines or GPUs."""
    return await service.read(lambda core: core.placements())


@health_router.get("/readyz", responses={503: {"model": Problem}})
async def readyz(service: ServedDep) -> Health:
    """Say that this process leads and decides; needs no token."""
    if service.replica.failing:
        raise refuse(503, "failing", f"no decision is possible here: {service.replica.failing[:500]}")
    return Health(status="ok", api=1)


@health_router.get("/metrics", response_class=Response)
async def metrics(service: ServedDep, who: Reader) -> Response:
    """The figures of this process, for Prometheus; needs a reader's token."""
    return Response(generate_latest(service.metrics.registry), media_type=CONTENT_TYPE_LATEST)


async def _refused(request: Request, error: Exception) -> Any:
    refusal = refuse(503, "slow", "no answer in time; the same Idempotency-Key tells whether it was taken")
    if isinstance(error, doc.Refusal):
        more: Any = {"leader": error.leader} if isinstance(error, NotLeading) else {}
        refusal = refuse(error.status, error.reason, str(error), **more)
    if isinstance(error, NotLeading | TimeoutError):
        refusal.headers = None  # no Retry-After: clients try the next address
    return await HANDLERS[HTTPException](request, refusal)
