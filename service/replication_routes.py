"""Routes for a standby: the files of a service's folder, and its growing log."""

from __future__ import annotations

import asyncio
import base64
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel

from flowlex.service.served_scheduler import ServedDep
from flowlex.service.write_ahead_log import MAX_CHUNK
from flowlex.telemetry.access_rights import Admin, only_known_parameters
from flowlex.telemetry.response_models import ERRORS, refuse

router: APIRouter = APIRouter(
    prefix="/v1/replica", tags=["standby"], responses=ERRORS, dependencies=[Depends(only_known_parameters)]
)
Name = Annotated[str, Query(min_length=1, max_length=100, description="The standby's name.")]


class Settings(BaseModel):
    """The options of a service's first start (``service.json``) and its tokens (a SQLite file in base64)."""

    service: str
    tokens: str


class State(BaseModel):
    """A state file in base64."""

    data: str


class LogChunk(BaseModel):
    """Lines of a log from an offset on, the files that the service keeps, and whether the next log has begun.

    ``needed``: position up to which the standby must have the log to take over; null while it is not attached.
    """

    data: str
    closed: bool
    states: list[int]
    first_log: int
    needed: tuple[int, int] | None


class End(BaseModel):
    """End of the log of a retired service."""

    position: tuple[int, int]


@router.get("/settings")
async def settings(service: ServedDep, who: Admin) -> Settings:
    """What a standby begins with."""
    folder: Path = service.worker.journal.folder
    tokens = await asyncio.to_thread(_copied, folder / "tokens.db")
    return Settings(service=(folder / "service.json").read_text(), tokens=base64.b64encode(tokens).decode())


def _copied(path: Path) -> bytes:
    """Return a consistent copy of a SQLite file."""
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place, "copy")
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
        return copy.read_bytes()


@router.get("/state")
async def state(service: ServedDep, who: Admin, number: Annotated[int, Query(ge=1)]) -> State:
    """A state file; 404 where it is not kept any more."""
    path: Path = service.worker.journal.path("state-", number)
    try:
        return State(data=base64.b64encode(path.read_bytes()).decode())
    except FileNotFoundError as error:
        raise refuse(404, "unknown", f"state {number} is not kept any more") from error


@router.get("/log")
async def log(
    service: ServedDep,
    who: Admin,
    standby: Name,
    number: Annotated[int, Query(ge=0)],
    offset: Annotated[int, Query(ge=0, description="Bytes that the standby has on its disk, of this log.")],
    wait_s: Annotated[float, Query(ge=0, le=10)] = 0.0,
) -> LogChunk:
    """What follows in a log; answers about all before go out now.

    A standby that has copied all but the last chunk is attached: from then on answers wait for it. 409 for a second.
    """
    worker, loop = service.worker, asyncio.get_running_loop()
    journal, replication = worker.journal, worker.replication
    end = journal.end
    if not replication.standby and number == end[0] and end[1] - offset <= MAX_CHUNK:
        await asyncio.to_thread(replication.attach, standby, lambda: journal.end)
    if replication.standby not in ("", standby):
        said = "another standby is attached; if it never takes over any more, ask POST /v1/replica/detach"
        raise refuse(409, "standby", said)
    if replication.standby:
        replication.confirm((number, offset), wait_s)
    until = loop.time() + wait_s
    while True:
        data, closed = journal.chunk(number, offset)
        if data or closed or loop.time() >= until:
            break
        await asyncio.sleep(0.002)
    states = [each for each, path in journal.states() if path is not None]
    needed = replication.needed if replication.standby else None
    return LogChunk(data=data.decode("ascii"), closed=closed, states=states, first_log=journal.first_log, needed=needed)


@router.post("/retire")
async def retire(service: ServedDep, who: Admin) -> End:
    """Finish what is under way, and take and decide nothing more: a standby takes over."""
    await asyncio.wrap_future(service.worker.retire())
    return End(position=service.worker.journal.end)


@router.post("/detach", status_code=204)
async def detach(service: ServedDep, who: Admin) -> None:
    """Answer without a standby from now on; it must not take over any more."""
    await asyncio.to_thread(service.worker.replication.detach)
