"""Routes of the schedulers: events of each kind, and questions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response

from flowlex.instances import event_log as ev
from flowlex.instances.event_log import Arrive, Network, Sent, Withdraw
from flowlex.systems.scheduler.core_protocol import UnknownTask
from flowlex.systems.scheduler.documents import ClusterEvents, Explained, GpuEvents, Place, Places, Taken
from flowlex.systems.scheduler.gpu_events import NodeGone, NodeReport, TaskEnd, Transfer
from flowlex.systems.scheduler.rest_app import REFUSED, Key, ServedDep, Writer, hand_over
from flowlex.systems.telemetry.access_rights import Reader, only_known_parameters
from flowlex.systems.telemetry.response_models import ERRORS, Problem, refuse


def _router(tag: str) -> APIRouter:
    return APIRouter(prefix="/v1", tags=[tag], responses=ERRORS, dependencies=[Depends(only_known_parameters)])


cluster_router: APIRouter = _router("scheduler")
gpu_router: APIRouter = _router("gpu rounds")
placement_router: APIRouter = _router("placements")
_NOT_EVENTS = (ev.Cluster, ev.Step, Network, Arrive, Withdraw, Sent)
_NOT_FOUND: dict[int | str, dict[str, Any]] = {404: {"model": Problem, "description": "No such task"}}
TaskName = Annotated[str, Query(min_length=1, max_length=200, description="Name of the task.")]


def _of(question: Callable[[str], Any], task: str) -> Any:
    try:
        return question(task)
    except KeyError as error:
        raise UnknownTask(f"no task is named {task!r}; it may have ended") from error


# The live flow scheduler -------------------------------------------------------------------------------------------
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
    return await hand_over(service, who, given.events, key, _machine)


def _machine(event: Any, where: Mapping[str, str]) -> str:
    """Return the machine of an event; empty for events that only an admin may send."""
    match event:
        case ev.AddMachine():
            return event.machine.name
        case ev.RemoveMachine() | ev.SetSlots():
            return event.machine
        case ev.Finish():
            return where.get(event.task, "")
    return ""


@cluster_router.get("/explanation", responses={**_NOT_FOUND, **REFUSED}, response_model=Explained)
async def explanation(service: ServedDep, who: Reader, task: TaskName) -> Response:
    """Say why a task waits, what would have to change, and its price."""
    return await service.read(lambda core: _of(core.explain, task))


# Rounds of GPU assignment ------------------------------------------------------------------------------------------
@gpu_router.post("/events", responses=REFUSED)
async def gpu_events(service: ServedDep, who: Writer, given: GpuEvents, key: Key = "") -> Taken:
    """Take reports of nodes and jobs; they are on disk when this answers.

    An admin's token may send all; an agent's what its own node reports: its GPUs, ends of its tasks, transfers to it.
    """
    return await hand_over(service, who, given.events, key, _node)


def _node(event: Any, where: Mapping[str, str]) -> str:
    match event:
        case NodeReport():
            return event.node.name
        case NodeGone():
            return event.node
        case TaskEnd():
            return where.get(event.task, "")
        case Transfer():
            return event.target
    return ""


@gpu_router.get("/bandwidths", response_model=dict[str, float])
async def bandwidths(service: ServedDep, who: Reader) -> Response:
    """Rates in MB/s that the next round takes: estimated where enough transfers were reported."""
    return await service.read(lambda core: core.rates())


# Both --------------------------------------------------------------------------------------------------------------
@placement_router.get("/task", responses=_NOT_FOUND, response_model=Place)
async def task(service: ServedDep, who: Reader, name: TaskName) -> Response:
    """Say where a task runs, or why it waits."""
    return await service.read(lambda core: _of(core.task, name))


@placement_router.get("/placements", response_model=Places)
async def placements(service: ServedDep, who: Reader) -> Response:
    """All tasks that run, with their machines or GPUs."""
    return await service.read(lambda core: core.placements())
