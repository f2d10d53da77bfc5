"""Tasks that travel: the files that a task reads go with it, those that it writes come back.

A worker of a cluster shares no disk with the command that asks. It unpacks a parcel into a folder of its own, has the
task done by a supervised process (see `flowlex.cli.pool`), and sends back what it left.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flowlex.cli.pool import Crew, Finished, PoolError
from flowlex.cli.record import blank
from flowlex.instances.storage import MAX_UNPACKED

__all__ = ["TRIES", "Parcel", "counted_as", "pack", "perform_all"]

#: How often an instance is tried, each time but the first because the worker that had it died.
TRIES = 3
_OUT = "out"
_mine = threading.local()


@dataclass(frozen=True)
class Parcel:
    """A task, and the files that it reads.

    Attributes
    ----------
    task
        See `flowlex.cli.worker.solve_task`.
    files
        Content by place below the folder where it is unpacked.
    named
        The same places, by the names of the files in the task.
    run, key
        The run, and the task in it, which no others share.
    tried
        Workers that died while they had it together with others.
    versions
        Those of the sender.
    """

    task: dict[str, Any]
    files: dict[str, bytes] = field(repr=False)
    named: dict[str, str]
    run: str = ""
    key: str = ""
    tried: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def size(self) -> int:
        """Bytes of the files."""
        return sum(map(len, self.files.values()))

    def unpack(self, folder: Path) -> dict[str, Any]:
        """Write the files, and name them in the task by where they are now."""
        for place, content in self.files.items():
            path = folder / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        task, named = dict(self.task), self.named
        moved = {key for key, value in task.items() if key != "instance" and isinstance(value, str) and value in named}
        task |= {key: str(folder / named[task[key]]) for key in moved}
        if task["solution"] is not None:
            (folder / _OUT).mkdir()
            task["solution"] = str(folder / _OUT / Path(task["solution"]).name)
        return task


def pack(task: dict[str, Any], inputs: Sequence[Path], **about: Any) -> Parcel:
    """Read the files that a task needs.

    Raises
    ------
    InstanceError
        One cannot be read.
    """
    names = [Path(os.path.normpath(Path.cwd() / str(path))) for path in inputs]  # of URLs too: only what differs counts
    base = os.path.commonpath([name.parent for name in names]) if names else ""
    places = [str("in" / name.relative_to(base)) for name in names]
    content = {place: read_whole(path) for place, path in zip(places, inputs, strict=True)}
    return Parcel(task, content, {str(path): place for path, place in zip(inputs, places, strict=True)}, **about)


def read_whole(path: Path) -> bytes:
    """The bytes of a file as they are, not unpacked."""
    from flowlex.instances.base import InstanceError

    try:
        with path.open("rb") as stream:
            data: bytes = stream.read(MAX_UNPACKED + 1)
    except OSError as error:
        raise InstanceError(f"cannot be read: {error.strerror or error}", path=path) from error
    except Exception as error:  # a store raises what its client library raises: no access, no such host
        raise InstanceError(f"cannot be read: {type(error).__name__}: {error}", path=path) from error
    if len(data) > MAX_UNPACKED:
        raise InstanceError(f"is larger than {MAX_UNPACKED >> 20} MB, too much to send to a worker", path=path)
    return data


def counted_as(parcels: Sequence[Parcel]) -> list[str]:
    """Where the scheduler keeps which workers have begun these, alone or together."""
    together = f" and {len(parcels) - 1} more" if len(parcels) > 1 else ""
    return ["flowlex", parcels[0].run, parcels[0].key + together]


def perform_all(parcels: Sequence[Parcel]) -> list[Finished] | None:
    """Do tasks on the worker of a cluster, one after the other; called by Dask in a thread of the worker.

    None: a worker that had several has died, and each shall be sent alone, to see which of them did it.
    """
    from distributed import get_worker

    worker = get_worker()
    told = _other_versions(parcels[0])
    if not told:
        before = _begun(counted_as(parcels), worker, TRIES - len(parcels[0].tried) if len(parcels) == 1 else 1)
        if before and len(parcels) > 1:
            return None
        before = (*parcels[0].tried, *before)
        told = lost(before) if len(before) >= TRIES else ""
    if told:
        return [_failed(parcel, f"{worker.address}: {told}") for parcel in parcels]
    return [_perform(parcel, worker) for parcel in parcels]


def _perform(parcel: Parcel, worker: Any) -> Finished:
    """Do a task, whatever happens to it."""
    from distributed import secede

    key = str(worker.get_current_task())
    with tempfile.TemporaryDirectory(prefix="flowlex-", dir=worker.local_directory) as folder:
        task = parcel.unpack(Path(folder))
        if task.get("divided"):  # its parts are tasks of their own, which need the threads of this worker
            task["scheduler"] = worker.scheduler.address
            secede()  # type: ignore[no-untyped-call]
        try:
            item = _crew().perform(task, lambda: _wanted(worker, key))
        except PoolError as error:
            return _failed(parcel, f"{worker.address}: {error}")
        for name, place in parcel.named.items():  # a message names a file as the person did
            item.record["message"] = item.record["message"].replace(str(Path(folder) / place), name)
        out = Path(folder) / _OUT
        files = {one.name: one.read_bytes() for one in out.iterdir() if one.suffix != ".part"} if out.is_dir() else {}
        return Finished(parcel.task, item.record, item.display, item.usage, files)


def _crew() -> Crew:
    """The process of this thread; it ends with the thread."""
    if not hasattr(_mine, "crew"):
        _mine.crew = Crew()
    crew: Crew = _mine.crew
    return crew


def _wanted(worker: Any, key: str) -> bool:
    """Whether the scheduler still waits for a task: not when the command that asked has gone."""
    task = worker.state.tasks.get(key)
    return task is not None and task.state in ("executing", "long-running", "resumed")


def _other_versions(parcel: Parcel) -> str:
    """Why a task is not begun: other versions would answer."""
    from flowlex.cli.versions import different, versions

    told = different(parcel.versions, versions()) if parcel.versions else ""
    return f"joined with other versions than the client's: {told}; install the same" if told else ""


def _begun(keys: list[str], worker: Any, most: int) -> tuple[str, ...]:
    """Who has begun this before; unless that are ``most``, this worker is counted too."""
    from distributed.utils import sync

    async def counted() -> tuple[str, ...]:
        before = tuple(await worker.scheduler.get_metadata(keys=keys, default=()))
        if len(before) < most:
            await worker.scheduler.set_metadata(keys=keys, value=(*before, worker.address))
        return before

    found: tuple[str, ...] = sync(worker.loop, counted)
    return found


def lost(workers: Sequence[str]) -> str:
    """What is said of an instance whose workers died."""
    return f"the workers that had it died ({', '.join(workers)}); it is not tried again: what does it need?"


def _failed(parcel: Parcel, message: str) -> Finished:
    record = blank(parcel.task["instance"], parcel.task["engine"])
    return Finished(parcel.task, record | {"status": "error", "message": message})
