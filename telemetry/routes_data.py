"""Routes of the data service: write, last values with their age, histories, retention."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from flowlex.telemetry.answers import ERRORS, Problem, reading, reading_text, refuse, stored_sample
from flowlex.telemetry.rights import Admin, Agent, Reader, ServiceDep, refuse_other_node
from flowlex.telemetry.schemas import (
    MAX_TIME,
    DataName,
    HistoryAnswer,
    NodeName,
    Reading,
    Readings,
    WriteAnswer,
    WriteBatch,
)
from flowlex.telemetry.writer import BusyError

__all__ = ["router"]

router: APIRouter = APIRouter(prefix="/v1", tags=["data"], responses=ERRORS)

Names = Annotated[list[DataName], Query(max_length=1_000, description="Data names; none: all")]
Nodes = Annotated[list[NodeName], Query(max_length=10_000, description="Nodes; none: all")]
MaxAge = Annotated[
    float | None, Query(ge=0, le=MAX_TIME, allow_inf_nan=False, description="Older values are stale, seconds")
]
Moment = Query(ge=0, le=MAX_TIME, allow_inf_nan=False, description="Unix time, seconds")


@router.post("/data", responses={400: {"model": Problem}, 503: {"model": Problem}})
async def write(service: ServiceDep, who: Agent, batch: WriteBatch) -> WriteAnswer:
    """Store samples of one node; answered when they are on disk."""
    refuse_other_node(who, batch.node)
    try:
        stored = await asyncio.wrap_future(service.writer.submit(batch))
    except BusyError as error:
        raise refuse(503, "busy", "too many writes wait; come again in a second") from error
    return WriteAnswer(accepted=len(batch.samples), stored=stored)


@router.get("/data", response_model=Readings)
def read_many(
    service: ServiceDep,
    who: Reader,
    name: Names = [],  # noqa: B006 - FastAPI copies it
    node: Nodes = [],  # noqa: B006
    max_age: MaxAge = None,
) -> Response:
    """Read the last values of many names and nodes in one call; stale ones are marked.

    Pairs that are asked for by name and node and have no value are listed in ``missing``.
    """
    now = time.time()
    rows = service.store.latest(name, node)
    have = {(row.name, row.node) for row in rows}
    missing = sorted({(a, b) for a in name for b in node} - have) if name and node else []
    # Written as text here: validating tens of thousands of rows again would triple the time of a read.
    readings = ",".join(reading_text(row, now, max_age) for row in rows)
    text = f'{{"readings":[{readings}],"missing":{json.dumps(missing)}}}'
    return Response(text, media_type="application/json")


@router.get("/data/{name}/{node}", responses={404: {"model": Problem, "description": "No value, or stale"}})
def read_one(
    service: ServiceDep,
    who: Reader,
    name: Annotated[DataName, Path()],
    node: Annotated[NodeName, Path()],
    max_age: MaxAge = None,
) -> Reading:
    """Read the last value and its age; 404 with reason ``unknown``, ``no_value`` or ``stale``."""
    row = service.store.latest_one(name, node)
    if row is None:
        raise refuse(404, "unknown", f"nothing named {name} was ever written on node {node}")
    if row.value is None:
        message = f"{name} on {node} has no value yet; its last run ended with code {row.last_exit_code}"
        raise refuse(404, "no_value", message)
    answer = reading(row, time.time(), max_age)
    if answer.stale:
        message = f"the last value of {name} on {node} is {answer.age_s:.3f} s old; {max_age:g} s are allowed"
        raise refuse(404, "stale", message, age_s=answer.age_s)
    return answer


@router.get("/history")
def read_history(
    service: ServiceDep,
    who: Reader,
    name: Names = [],  # noqa: B006
    node: Nodes = [],  # noqa: B006
    since: Annotated[float, Moment] = 0.0,
    until: Annotated[float, Moment] = MAX_TIME,
    limit: Annotated[int, Query(ge=1, le=100_000)] = 10_000,
) -> HistoryAnswer:
    """Read the newest ``limit`` samples of a time window, oldest first, failed runs among them."""
    rows, truncated = service.store.history(name, node, since, until, limit)
    return HistoryAnswer(samples=[stored_sample(row) for row in rows], truncated=truncated)


@router.delete("/history")
def forget_history(service: ServiceDep, who: Admin, before: Annotated[float, Moment]) -> dict[str, int]:
    """Drop the history before a time; last values stay."""
    return {"removed": service.store.forget_before(before)}
