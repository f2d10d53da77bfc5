"""Routes of the data service: write, last values with their age, histories, aggregates, deletion."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import StringConstraints

from flowlex.systems.telemetry.access_rights import (
    Admin,
    Agent,
    Reader,
    ServiceDep,
    only_known_parameters,
    refuse_other_node,
)
from flowlex.systems.telemetry.request_documents import (
    MAX_TIME,
    Aggregates,
    DataName,
    HistoryAnswer,
    NodeName,
    Reading,
    Readings,
    WriteAnswer,
    WriteBatch,
)
from flowlex.systems.telemetry.response_models import ERRORS, Ages, Problem, known, no_value_text, refuse, sample_text
from flowlex.systems.telemetry.retention import ROLLUP_STEPS
from flowlex.systems.telemetry.service_context import Service

router: APIRouter = APIRouter(
    prefix="/v1", tags=["data"], responses=ERRORS, dependencies=[Depends(only_known_parameters)]
)

#: Most pairs of name and node in one read.
MAX_PAIRS = 50_000

Names = Annotated[list[DataName], Query(max_length=1_000, description="Data names; none: all")]
Nodes = Annotated[list[NodeName], Query(max_length=10_000, description="Nodes; none: all")]
MaxAge = Annotated[
    float | None, Query(ge=0, le=MAX_TIME, allow_inf_nan=False, description="Older values are stale, seconds")
]
Moment = Query(ge=0, le=MAX_TIME, allow_inf_nan=False, description="Unix time, seconds")
After = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,100}/[A-Za-z0-9_.-]{1,100}$")]


async def heavy(service: Service, work: Callable[[], str]) -> Response:
    """Return JSON text that ``work`` makes outside the event loop, a few at a time."""
    try:
        await asyncio.wait_for(service.heavy.acquire(), service.settings.heavy_wait_s)
    except TimeoutError as error:
        service.metrics.refused.labels("reads").inc()
        raise refuse(503, "busy", "too many large reads at once; come again in a second") from error
    try:
        return Response(await run_in_threadpool(work), media_type="application/json")
    finally:
        service.heavy.release()


@router.post("/data", responses={400: {"model": Problem}, 409: {"model": Problem}})
async def write(request: Request, service: ServiceDep, who: Agent, batch: WriteBatch) -> WriteAnswer:
    """Store samples of one node; answered when they are on disk.

    409 with reason ``conflict`` when the source used a number for another sample before: nothing is stored then.
    """
    refuse_other_node(who, batch.node)
    size = request.headers.get("content-length", "0")
    future = service.writer.submit(batch, int(size) if size.isdigit() else 0)
    stored = await asyncio.wrap_future(future)
    return WriteAnswer(accepted=len(batch.samples), stored=stored, known=len(batch.samples) - stored)


@router.get("/data", response_model=Readings)
async def read_many(
    service: ServiceDep,
    who: Reader,
    name: Names = [],  # noqa: B006 - FastAPI copies it
    node: Nodes = [],  # noqa: B006
    max_age: MaxAge = None,
    after: After | None = None,
    limit: Annotated[int, Query(ge=1, le=50_000)] = 20_000,
) -> Response:
    """Read the last values of many names and nodes, a page at a time; stale ones are marked.

    Pairs that are asked for by name and node and have no value are listed in ``missing``.
    """
    if len(name) * len(node) > MAX_PAIRS:
        said = f"{len(name)} names on {len(node)} nodes are more than {MAX_PAIRS} values; ask for fewer at once"
        raise refuse(422, "too_much", said)
    since = tuple(after.split("/")) if after else None

    def work() -> str:
        rows, more = service.store.reader.latest(name, node, after=since, limit=limit)  # type: ignore[arg-type]
        ages = Ages(service.clock, max_age)
        good = [row for row in rows if row.value is not None]
        missing: list[tuple[str, str]] = []
        if name and node:  # those between the previous page and the end of this one
            pairs = sorted({(a, b) for a in name for b in node} - {row[:2] for row in good})
            end = rows[-1][:2] if more else None
            missing = [p for p in pairs if (since is None or p > since) and (end is None or p <= end)]
        return (
            f'{{"readings":[{",".join(map(ages.text, good))}],'
            f'"no_value":[{",".join(no_value_text(row) for row in rows if row.value is None)}],'
            f'"missing":{json.dumps(missing)},"next":{json.dumps("/".join(rows[-1][:2]) if more else None)}}}'
        )

    return await heavy(service, work)


@router.get(
    "/data/{name}/{node}",
    response_model=Reading,
    responses={404: {"model": Problem, "description": "No value, or stale"}},
)
async def read_one(
    service: ServiceDep,
    who: Reader,
    name: Annotated[DataName, Path()],
    node: Annotated[NodeName, Path()],
    max_age: MaxAge = None,
) -> Response:
    """Read the last value and its age; 404 with reason ``unknown``, ``no_value`` or ``stale``."""
    found = await run_in_threadpool(service.store.reader.latest_one, name, node)
    row = known(found, f"nothing named {name} was ever written on node {node}")
    if row.value is None:
        message = f"{name} on {node} has no value yet; its last run ended with code {row.last_exit_code}"
        raise refuse(404, "no_value", message)
    ages = Ages(service.clock, max_age)
    age, _, stale = ages.of(row)
    if stale:
        allowed = "its age is not known for sure" if max_age is None else f"{max_age:g} s are allowed"
        message = f"the last value of {name} on {node} is {age:.3f} s old; {allowed}"
        raise refuse(404, "stale", message, age_s=age)
    return Response(ages.text(row), media_type="application/json")


@router.delete("/data/{name}/{node}", responses={404: {"model": Problem, "description": "No such series"}})
async def remove_series(
    service: ServiceDep, who: Admin, name: Annotated[DataName, Path()], node: Annotated[NodeName, Path()]
) -> dict[str, int]:
    """Delete a series: its last value, history and aggregates."""
    removed = await service.remove_series(name, node)
    known(removed["series"], f"nothing named {name} is stored of node {node}")
    return removed


@router.get("/history", response_model=HistoryAnswer)
async def read_history(
    service: ServiceDep,
    who: Reader,
    name: Names = [],  # noqa: B006
    node: Nodes = [],  # noqa: B006
    since: Annotated[float, Moment] = 0.0,
    until: Annotated[float, Moment] = MAX_TIME,
    limit: Annotated[int, Query(ge=1, le=100_000)] = 10_000,
) -> Response:
    """Read the newest ``limit`` samples of a time window, oldest first, failed runs among them."""

    def work() -> str:
        rows, truncated = service.store.reader.history(name, node, since, until, limit)
        return f'{{"samples":[{",".join(map(sample_text, rows))}],"truncated":{json.dumps(truncated)}}}'

    return await heavy(service, work)


@router.get("/aggregates", response_model=Aggregates)
async def read_aggregates(
    service: ServiceDep,
    who: Reader,
    name: Names = [],  # noqa: B006
    node: Nodes = [],  # noqa: B006
    since: Annotated[float, Moment] = 0.0,
    until: Annotated[float, Moment] = MAX_TIME,
    step: Literal["minute", "hour"] = "minute",
    limit: Annotated[int, Query(ge=1, le=100_000)] = 10_000,
) -> Response:
    """Read count, mean, least and most of the numeric samples by minute or hour; some seconds behind."""

    def work() -> str:
        window = {"step": ROLLUP_STEPS[step], "limit": limit}
        found, truncated = service.store.reader.rollups(name, node, since, until, **window)
        return Aggregates(step=step, aggregates=found, truncated=truncated).model_dump_json()

    return await heavy(service, work)


@router.delete("/history")
async def forget_history(service: ServiceDep, who: Admin, before: Annotated[float, Moment]) -> dict[str, int]:
    """Drop the history that arrived before a time; last values and aggregates stay."""
    return {"removed": await service.in_steps(lambda: service.store.upkeep.forget_some(before))}
