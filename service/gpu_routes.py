"""Routes of the rounds of GPU assignment."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query

from flowlex.service.documents import GpuEvents, Place, Places, Taken
from flowlex.service.events import Key, hand_over
from flowlex.service.gpu_events import NodeGone, NodeReport, TaskEnd, Transfer
from flowlex.service.served import REFUSED, ServedDep
from flowlex.telemetry.answers import ERRORS, Problem, refuse
from flowlex.telemetry.rights import Reader, only_known_parameters, refuse_other_node, require
from flowlex.telemetry.security import Identity, Role

__all__ = ["router"]

router: APIRouter = APIRouter(
    prefix="/v1", tags=["gpu rounds"], responses=ERRORS, dependencies=[Depends(only_known_parameters)]
)
_NOT_FOUND: dict[int | str, dict[str, Any]] = {404: {"model": Problem, "description": "No such task"}}
Writer = Annotated[Identity, Depends(require(Role.ADMIN, Role.AGENT))]


@router.post("/events", responses=REFUSED)
async def events(service: ServedDep, who: Writer, given: GpuEvents, key: Key = "") -> Taken:
    """Take what nodes and jobs tell; it is on disk when this answers.

    An admin's token may send all; an agent's what its own node reports: its GPUs, ends of its tasks, transfers to it.
    """
    if who.role is Role.AGENT and who.digest:
        view = await service.view()
        where = {task: view.node_of[gpu] for task, gpu in view.places.items()}
        for event in given.events:
            refuse_other_node(who, _node(event, where))
    return await hand_over(service, given.events, key)


def _node(event: Any, where: dict[str, str]) -> str:
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


@router.get("/task", responses=_NOT_FOUND, response_model_exclude_none=True)
async def task(service: ServedDep, who: Reader, name: Annotated[str, Query(min_length=1, max_length=200)]) -> Place:
    """Say on which GPU a task runs, or why it waits."""
    try:
        return Place.model_validate((await service.view(name)).task(name))
    except KeyError as error:
        raise refuse(404, "unknown", f"no task is named {name!r}; it may have ended") from error


@router.get("/placements")
async def placements(service: ServedDep, who: Reader) -> Places:
    """All tasks that run, with their GPUs."""
    view = await service.view()
    return Places(number=view.number, places=dict(view.places))


@router.get("/bandwidths")
async def bandwidths(service: ServedDep, who: Reader) -> dict[str, float]:
    """Rates in MB/s that the next round takes: estimated where enough transfers were reported."""
    return dict((await service.view()).rates)
