"""Routes of the registration service and of the management service."""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Response
from pydantic import BaseModel

from flowlex.telemetry.answers import ERRORS, Problem, reading, refuse, stored_sample
from flowlex.telemetry.rights import Admin, Agent, Reader, ServiceDep, refuse_other_node
from flowlex.telemetry.schemas import (
    AgentHello,
    AgentState,
    Assignments,
    DataName,
    Heartbeat,
    Inputs,
    NodeName,
    Registration,
)
from flowlex.telemetry.store import DuplicateRegistration

__all__ = ["Health", "router"]

_NOT_FOUND: dict[int | str, dict[str, Any]] = {404: {"model": Problem, "description": "Not known"}}
_CONFLICT: dict[int | str, dict[str, Any]] = {409: {"model": Problem, "description": "Exists already, or another name"}}
_BAD_BODY: dict[int | str, dict[str, Any]] = {400: {"model": Problem, "description": "The body is not JSON"}}

router: APIRouter = APIRouter(prefix="/v1", responses=ERRORS)

PathName = Annotated[DataName, Path(description="Data name")]
PathNode = Annotated[NodeName, Path(description="Node name")]


class Health(BaseModel):
    """The service answers and so does its database."""

    status: str
    api: int


@router.get("/health", tags=["service"], responses={503: {"model": Problem}})
def health(service: ServiceDep) -> Health:
    """Say that the service and its database answer; needs no token."""
    try:
        service.store.ping()
    except Exception as error:
        raise refuse(503, "database", "the database does not answer") from error
    return Health(status="ok", api=1)


@router.post("/registrations", status_code=201, tags=["registration"], responses={**_CONFLICT, **_BAD_BODY})
def add_registration(service: ServiceDep, who: Admin, registration: Registration) -> Registration:
    """Register a collector or a processor under a new data name."""
    try:
        service.store.add_registration(registration)
    except DuplicateRegistration as error:
        raise refuse(409, "exists", f"{registration.name} is registered; update it with PUT") from error
    service.plan_changed()
    return registration


@router.get("/registrations", tags=["registration"])
def list_registrations(service: ServiceDep, who: Reader) -> list[Registration]:
    """List all registrations by name."""
    return service.store.registrations()


@router.get("/registrations/{name}", tags=["registration"], responses=_NOT_FOUND)
def read_registration(service: ServiceDep, who: Reader, name: PathName) -> Registration:
    """Read one registration."""
    registration = service.store.registration(name)
    if registration is None:
        raise refuse(404, "unknown", f"no registration is named {name}")
    return registration


@router.put("/registrations/{name}", tags=["registration"], responses={**_NOT_FOUND, **_CONFLICT, **_BAD_BODY})
def update_registration(service: ServiceDep, who: Admin, name: PathName, registration: Registration) -> Registration:
    """Replace a registration; agents follow with their next heartbeat."""
    if registration.name != name:
        raise refuse(409, "name_differs", f"the document is named {registration.name}, the address {name}")
    if not service.store.update_registration(registration):
        raise refuse(404, "unknown", f"no registration is named {name}")
    service.plan_changed()
    return registration


@router.delete("/registrations/{name}", status_code=204, tags=["registration"], responses=_NOT_FOUND)
def remove_registration(service: ServiceDep, who: Admin, name: PathName) -> Response:
    """Remove a registration; agents stop it; what it stored stays."""
    if not service.store.remove_registration(name):
        raise refuse(404, "unknown", f"no registration is named {name}")
    service.plan_changed()
    return Response(status_code=204)


@router.get("/agents", tags=["management"])
def list_agents(service: ServiceDep, who: Reader) -> list[AgentState]:
    """List the nodes with the age of their last heartbeat."""
    now = time.time()
    return [
        AgentState(
            node=row.node,
            labels=row.labels,
            programs=row.programs,
            running=row.running,
            buffered=row.buffered,
            last_seen=row.last_seen,
            age_s=max(0.0, now - row.last_seen),
            alive=service.alive(row, now),
        )
        for row in service.store.agents()
    ]


@router.put("/agents/{node}", tags=["management"], responses=_BAD_BODY)
def introduce_agent(
    service: ServiceDep, who: Agent, node: PathNode, hello: Annotated[AgentHello, Body()]
) -> Assignments:
    """Register an agent or what it newly says of its node; returns its work."""
    refuse_other_node(who, node)
    service.store.put_agent(node, hello.labels, hello.programs, time.time())
    service.plan_changed()
    return service.work_of(node)


@router.delete("/agents/{node}", status_code=204, tags=["management"], responses=_NOT_FOUND)
def forget_agent(service: ServiceDep, who: Admin, node: PathNode) -> Response:
    """Forget a node that will not come back; what it stored stays."""
    if not service.store.remove_agent(node):
        raise refuse(404, "unknown", f"no agent of node {node} is registered")
    service.plan_changed()
    return Response(status_code=204)


@router.post("/agents/{node}/heartbeat", tags=["management"], responses={**_NOT_FOUND, **_BAD_BODY})
def heartbeat(service: ServiceDep, who: Agent, node: PathNode, beat: Heartbeat) -> dict[str, str]:
    """Say that an agent lives; the answer's ``revision`` changes when its work does."""
    refuse_other_node(who, node)
    if not service.store.touch_agent(node, beat.running, beat.buffered, time.time()):
        raise refuse(404, "unknown", f"node {node} is not registered; register it with PUT first")
    return {"revision": service.work_of(node).revision}


@router.get("/agents/{node}/assignments", tags=["management"])
def assignments(service: ServiceDep, who: Agent, node: PathNode) -> Assignments:
    """Fetch what a node should run; empty for a node that is not alive."""
    refuse_other_node(who, node)
    return service.work_of(node)


@router.get("/agents/{node}/inputs/{name}", tags=["management"], responses=_NOT_FOUND)
def inputs(service: ServiceDep, who: Agent, node: PathNode, name: PathName) -> Inputs:
    """Fetch what the processor ``name`` reads: last values and history of its inputs on this node."""
    refuse_other_node(who, node)
    registration = service.store.registration(name)
    if registration is None or registration.kind != "processor":
        raise refuse(404, "unknown", f"no processor is named {name}")
    now = time.time()
    last = {row.name: reading(row, now, None) for row in service.store.latest(registration.inputs, [node])}
    history: dict[str, list[Any]] = {data: [] for data in registration.inputs}
    if registration.window_s:
        rows, _ = service.store.history(registration.inputs, [node], now - registration.window_s, now, 10_000)
        for row in rows:
            history[row.name].append(stored_sample(row))
    return Inputs(node=node, last=last, history=history)
