"""Routes of the registration service and of the management service."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Path, Query, Response
from fastapi.concurrency import run_in_threadpool

from flowlex.systems.telemetry.access_rights import (
    Admin,
    Agent,
    Reader,
    ServiceDep,
    only_known_parameters,
    refuse_other_node,
)
from flowlex.systems.telemetry.read_queries import TooMuch
from flowlex.systems.telemetry.registrations import DuplicateRegistration
from flowlex.systems.telemetry.request_documents import (
    AgentHello,
    AgentState,
    Assignments,
    DataName,
    Heartbeat,
    Inputs,
    NodeName,
    Registered,
    Registration,
    Running,
)
from flowlex.systems.telemetry.response_models import (
    BAD_BODY,
    ERRORS,
    NOT_FOUND,
    Ages,
    Problem,
    known,
    refuse,
    sample_text,
)
from flowlex.systems.telemetry.routes_data import heavy
from flowlex.systems.telemetry.service_context import Service

_CONFLICT: dict[int | str, Any] = {409: {"model": Problem, "description": "Exists already, or another name"}}

router: APIRouter = APIRouter(prefix="/v1", responses=ERRORS, dependencies=[Depends(only_known_parameters)])

PathName = Annotated[DataName, Path(description="Data name")]
PathNode = Annotated[NodeName, Path(description="Node name")]
#: Most stored registrations.
MAX_REGISTRATIONS = 1_000
#: Most last values and samples that one processor reads.
MAX_INPUTS = 50_000


@router.post("/registrations", status_code=201, tags=["registration"], responses={**_CONFLICT, **BAD_BODY})
async def add_registration(service: ServiceDep, who: Admin, registration: Registration) -> Registered:
    """Register a collector or a processor under a new data name; ``doubts`` say what would keep it without value."""

    def add() -> list[str]:
        if len(service.store.registry.registrations()) >= MAX_REGISTRATIONS:
            raise refuse(409, "too_many", f"{MAX_REGISTRATIONS} registrations are stored; remove one first")
        service.roster.change(lambda: service.store.registry.add_registration(registration))
        return service.roster.doubts(registration)

    try:
        doubts = await service.write(add)
    except DuplicateRegistration as error:
        raise refuse(409, "exists", f"{registration.name} is registered; update it with PUT") from error
    return Registered(**registration.model_dump(), doubts=doubts)


@router.get("/registrations", tags=["registration"])
def list_registrations(service: ServiceDep, who: Reader) -> list[Running]:
    """List all registrations by name, each with the living nodes that run it and whatever keeps it from a value."""
    plan = service.roster.plan()
    return [
        Running(**r.model_dump(), on=plan.nodes_of(r.name), doubts=service.roster.doubts(r))
        for r in service.store.registry.registrations()
    ]


@router.get("/registrations/{name}", tags=["registration"], responses=NOT_FOUND)
def read_registration(service: ServiceDep, who: Reader, name: PathName) -> Registration:
    """Read one registration."""
    return known(service.store.registry.registration(name), f"no registration is named {name}")


@router.put("/registrations/{name}", tags=["registration"], responses={**NOT_FOUND, **_CONFLICT, **BAD_BODY})
async def update_registration(
    service: ServiceDep, who: Admin, name: PathName, registration: Registration
) -> Registered:
    """Replace a registration; agents follow with their next heartbeat."""
    if registration.name != name:
        raise refuse(409, "name_differs", f"the document is named {registration.name}, the address {name}")
    change = service.roster.change
    changed = await service.write(lambda: change(lambda: service.store.registry.update_registration(registration)))
    known(changed, f"no registration is named {name}")
    doubts = await run_in_threadpool(service.roster.doubts, registration)
    return Registered(**registration.model_dump(), doubts=doubts)


@router.delete("/registrations/{name}", status_code=204, tags=["registration"], responses=NOT_FOUND)
async def remove_registration(service: ServiceDep, who: Admin, name: PathName) -> Response:
    """Remove a registration; agents stop it; what it stored stays."""
    change = service.roster.change
    changed = await service.write(lambda: change(lambda: service.store.registry.remove_registration(name)))
    known(changed, f"no registration is named {name}")
    return Response(status_code=204)


@router.get("/agents", response_model=list[AgentState], tags=["management"])
async def list_agents(
    service: ServiceDep,
    who: Reader,
    after: Annotated[NodeName | None, Query(description="Nodes after this one")] = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 10_000,
) -> Response:
    """List the nodes with the age of their last heartbeat."""

    def work() -> str:
        now = service.clock.now()
        rows = [row for row in service.roster.agents() if after is None or row.node > after][:limit]
        alive = service.roster.alive
        found = (asdict(row) | {"age_s": max(0.0, now - row.last_seen), "alive": alive(row)} for row in rows)
        return f"[{','.join(map(json.dumps, found))}]"

    return await heavy(service, work)


@router.put("/agents/{node}", tags=["management"], responses=BAD_BODY)
async def introduce_agent(
    service: ServiceDep, who: Agent, node: PathNode, hello: Annotated[AgentHello, Body()]
) -> Assignments:
    """Register an agent or what it newly says of its node; returns its work."""
    refuse_other_node(who, node)
    await service.write(lambda: service.roster.introduce(node, hello))
    return service.roster.work_of(node)


@router.delete("/agents/{node}", status_code=204, tags=["management"], responses=NOT_FOUND)
async def forget_agent(service: ServiceDep, who: Admin, node: PathNode) -> Response:
    """Forget a node that will not come back; what it stored stays."""
    known(await service.write(lambda: service.roster.forget(node)), f"no agent of node {node} is registered")
    return Response(status_code=204)


@router.delete("/nodes/{node}", tags=["management"], responses=NOT_FOUND)
async def remove_node(service: ServiceDep, who: Admin, node: PathNode) -> dict[str, int]:
    """Delete a node: its agent, and all its series with their history. Revoke its token first, or it comes back."""
    agent = await service.write(lambda: service.roster.forget(node))
    removed = await service.remove_series(None, node)
    known(agent or removed["series"], f"nothing is known of node {node}")
    return {"agents": int(agent), **removed}


@router.post("/agents/{node}/heartbeat", tags=["management"], responses={**NOT_FOUND, **BAD_BODY})
async def heartbeat(service: ServiceDep, who: Agent, node: PathNode, beat: Heartbeat) -> dict[str, str]:
    """Say that an agent lives; the answer's ``revision`` changes when its work does."""
    refuse_other_node(who, node)
    if not service.roster.beat(node, beat):
        await run_in_threadpool(service.roster.refresh)
        known(service.roster.beat(node, beat), f"node {node} is not registered; register it with PUT first")
    return {"revision": service.roster.work_of(node).revision}


@router.get("/agents/{node}/assignments", tags=["management"])
async def assignments(service: ServiceDep, who: Agent, node: PathNode) -> Assignments:
    """Fetch what a node should run; empty for a node that is not alive."""
    refuse_other_node(who, node)
    return service.roster.work_of(node)


@router.get("/agents/{node}/inputs/{name}", response_model=Inputs, tags=["management"], responses=NOT_FOUND)
async def inputs(service: ServiceDep, who: Agent, node: PathNode, name: PathName) -> Response:
    """Fetch what the processor ``name`` reads: last values and history of its inputs, on this node or on all."""
    refuse_other_node(who, node)

    def work() -> str:
        registration = service.store.registry.registration(name)
        if registration is None or registration.kind != "processor":
            raise refuse(404, "unknown", f"no processor is named {name}")
        return _inputs(service, node, registration)

    return await heavy(service, work)


def _inputs(service: Service, node: str, registration: Registration) -> str:
    nodes = [node] if registration.scope == "node" else []
    rows, more = service.store.reader.latest(registration.inputs, nodes, limit=MAX_INPUTS)
    ages = Ages(service.clock, None)
    given: dict[str, dict[str, dict[str, Any]]] = defaultdict(lambda: {"last": {}, "history": {}})
    for row in rows:
        if row.value is not None:
            given[row.node]["last"][row.name] = json.loads(ages.text(row))
    if registration.window_s and not more:
        until = service.wall_s
        window = (until - registration.window_s, until, MAX_INPUTS)
        samples, more = service.store.reader.history(registration.inputs, nodes, *window)
        for sample in samples:
            given[sample.node]["history"].setdefault(sample.name, []).append(json.loads(sample_text(sample)))
    if more:
        raise TooMuch(f"{registration.name} reads more than {MAX_INPUTS} values; give it a shorter window")
    own = given.get(node, {"last": {}, "history": {}})
    history = {name: own["history"].get(name, []) for name in registration.inputs}
    return json.dumps({"node": node, "last": own["last"], "history": history, "nodes": {} if nodes else given})
