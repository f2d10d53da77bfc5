"""Routes of the live flow scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query

from flowlex.instances import events as ev
from flowlex.instances.jit_events import Arrive, Network, Sent, Withdraw
from flowlex.service.documents import ClusterEvents, Explained, Place, Places, Taken
from flowlex.service.events import Key, hand_over
from flowlex.service.served import REFUSED, ServedDep
from flowlex.telemetry.answers import ERRORS, Problem, refuse
from flowlex.telemetry.rights import Reader, only_known_parameters, refuse_other_node, require
from flowlex.telemetry.security import Identity, Role

__all__ = ["router"]

router: APIRouter = APIRouter(
    prefix="/v1", tags=["scheduler"], responses=ERRORS, dependencies=[Depends(only_known_parameters)]
)
_NOT_EVENTS = (ev.Cluster, ev.Step, Network, Arrive, Withdraw, Sent)
_NOT_FOUND: dict[int | str, dict[str, Any]] = {404: {"model": Problem, "description": "No such task"}}
Writer = Annotated[Identity, Depends(require(Role.ADMIN, Role.AGENT))]
TaskName = Annotated[str, Query(min_length=1, max_length=200, description="Name of the task.")]


@router.post("/events", responses=REFUSED)
async def events(service: ServedDep, who: Writer, given: ClusterEvents, key: Key = "") -> Taken:
    """Take events; they are on disk when this answers.

    An admin's token may send all; an agent's those of its own machine, and the ends of tasks that run there.
    """
    for number, event in enumerate(given.events):
        if isinstance(event, _NOT_EVENTS):
            raise refuse(422, "event", f"events[{number}]: {event.event!r} is not sent; ask /v1/step to decide")
        if "at_s" in event.model_fields_set:
            raise refuse(422, "event", f"events[{number}]: leave at_s out; the service sets the time")
    if who.role is Role.AGENT and who.digest:
        ends = any(isinstance(event, ev.Finish) for event in given.events)
        places = (await service.view()).view.places if ends else {}
        for event in given.events:
            refuse_other_node(who, _machine(event, places))
    return await hand_over(service, given.events, key)


def _machine(event: Any, places: Mapping[str, str]) -> str:
    """The machine that an event is about; none for what only an admin may send."""
    match event:
        case ev.AddMachine():
            return event.machine.name
        case ev.RemoveMachine() | ev.SetSlots():
            return event.machine
        case ev.Finish():
            return places.get(event.task, "")
    return ""


@router.get("/task", responses=_NOT_FOUND, response_model_exclude_none=True)
async def task(service: ServedDep, who: Reader, name: TaskName) -> Place:
    """Say where a task runs, or why it waits."""
    try:
        return Place.model_validate((await service.view(name)).task(name))
    except KeyError as error:
        raise refuse(404, "unknown", f"no task is named {name!r}; it may have ended") from error


@router.get("/explanation", responses={**_NOT_FOUND, **REFUSED})
async def explanation(service: ServedDep, who: Reader, task: TaskName) -> Explained:
    """Say why a task waits, what would have to change, and its price."""
    try:
        view = await service.view(task)
        return Explained.model_validate(await service.read(lambda: view.explain(task)))
    except KeyError as error:
        raise refuse(404, "unknown", f"no task is named {task!r}; it may have ended") from error


@router.get("/placements")
async def placements(service: ServedDep, who: Reader) -> Places:
    """All tasks that run, with their machines."""
    view = (await service.view()).view
    return Places(number=view.number, places=dict(view.places))
