"""Routes of the schedulers: events of each kind, and questions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response

from flowlex.systems.scheduler import event_log as ev
from flowlex.systems.scheduler.core_protocol import UnknownTask
from flowlex.systems.scheduler.documents import ClusterEvents, Explained, GpuEvents, Place, Places, Taken
from flowlex.systems.scheduler.event_log import Arrive, Network, Sent, Withdraw
from flowlex.systems.scheduler.gpu_events import NodeGone, NodeReport, TaskEnd, Transfer
from flowlex.systems.scheduler.rest_app import REFUSED, Key, Served, ServedDep, Writer
from flowlex.systems.telemetry.access_rights import Reader, only_known_parameters, refuse_other_node
from flowlex.systems.telemetry.response_models import ERRORS, NOT_FOUND, refuse
from flowlex.systems.telemetry.tokens_and_rights import Identity, Role


def _router(tag: str) -> APIRouter:
    return APIRouter(prefix="/v1", tags=[tag], responses=ERRORS, dependencies=[Depends(only_known_parameters)])


cluster_router: APIRouter = _router("scheduler")
gpu_router: APIRouter = _router("gpu rounds")
placement_router: APIRouter = _router("placements")
_NOT_EVENTS = (ev.Cluster, ev.Step, Network, Arrive, Withdraw, Sent)
TaskName = Annotated[str, Query(min_length=1, max_length=200, description="Name of the task.")]


# Events ------------------------------------------------------------------------------------------------------------
@cluster_router.post("/events", responses=REFUSED)
async def cluster_events(service: ServedDep, who: Writer, given: ClusterEvents, key: Key = "") -> Taken:
    """Take events; they are on disk when this answers.

    An admin's token may send all; an agent's those of its own machine, and the ends of tasks that run there.
    """
    for number, event in enumerate(given.events):
        if isinstance(event, _NOT_EVENTS):
            raise refuse(422, "event", f"events[{number}]: {event.event!r} is not sent; ask /v1/step to decide")
        if "at_s" in event.model_fields_set:
            raise refuse(422, "event", f"events[{number}]: leave at_s out; the service sets the time")
    return await _take(service, who, given, key)


@gpu_router.post("/events", responses=REFUSED)
async def gpu_events(service: ServedDep, who: Writer, given: GpuEvents, key: Key = "") -> Taken:
    """Take reports of nodes and jobs; they are on disk when this answers.

    An admin's token may send all; an agent's what its own node reports: its GPUs, ends of its tasks, transfers to it.
    """
    return await _take(service, who, given, key)


async def _take(service: Served, who: Identity, given: ClusterEvents | GpuEvents, key: str) -> Taken:
    """Take events in order; answer 409 at the first that does not fit, with the number taken before it."""
    if who.role is Role.AGENT and who.digest:
        tasks = [event.task for event in given.events if isinstance(event, ev.Finish | TaskEnd)]
        where = await service.wait(service.replica.ask(lambda core: core.nodes_of(tasks))) if tasks else {}
        for event in given.events:
            refuse_other_node(who, _node(event, where))
    documents = [event.model_dump(mode="json", exclude_unset=True) for event in given.events]
    answer = await service.wait(service.replica.take(documents, who.digest, key))
    if answer.refused:
        said = f"events[{answer.taken}]: {answer.refused}; the {answer.taken} before it are taken"
        raise refuse(409, "refused", said, taken=answer.taken)
    return Taken(taken=answer.taken)


def _node(event: Any, where: Mapping[str, str]) -> str:
    """Return the node (machine) of an event, given those of tasks; empty for events that only an admin may send."""
    match event:
        case ev.AddMachine():
            return event.machine.name
        case ev.RemoveMachine() | ev.SetSlots():
            return event.machine
        case NodeReport():
            return event.node.name
        case NodeGone():
            return event.node
        case Transfer():
            return event.target
        case ev.Finish() | TaskEnd():
            return where.get(event.task, "")
    return ""


# Questions ---------------------------------------------------------------------------------------------------------
def _of(question: Callable[[str], Any], task: str) -> Any:
    try:
        return question(task)
    except KeyError as error:
        raise UnknownTask(f"no task is named {task!r}; it may have ended") from error


@cluster_router.get("/explanation", responses={**NOT_FOUND, **REFUSED}, response_model=Explained)
async def explanation(service: ServedDep, who: Reader, task: TaskName) -> Response:
    """Say why a task waits, what would have to change, and its price."""
    return await service.read(lambda core: _of(core.explain, task))


@gpu_router.get("/bandwidths", response_model=dict[str, float])
async def bandwidths(service: ServedDep, who: Reader) -> Response:
    """Rates in MB/s that the next round takes: estimated where enough transfers were reported."""
    return await service.read(lambda core: core.rates())


@placement_router.get("/task", responses=NOT_FOUND, response_model=Place)
async def task(service: ServedDep, who: Reader, name: TaskName) -> Response:
    """Say where a task runs, or why it waits."""
    return await service.read(lambda core: _of(core.task, name))


@placement_router.get("/placements", response_model=Places)
async def placements(service: ServedDep, who: Reader) -> Response:
    """All tasks that run, with their machines or GPUs."""
    return await service.read(lambda core: core.placements())
