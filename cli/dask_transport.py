"""Transport of tasks to the workers of a Dask cluster, with their input files, and of output files back.

Workers share no disk with the client. A worker unpacks the files into a temporary folder, runs the task in a supervised
process (see `flowlex.cli.worker_pool`) and returns the files that the process wrote.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flowlex.cli.memory_limits import refuse_changed
from flowlex.cli.worker_pool import Finished, PoolError, SingleWorker, failed
from flowlex.instances.file_storage import MAX_UNPACKED, location, read_packed
from flowlex.instances.input_errors import InstanceError

#: Most attempts per instance; it is tried again only if its worker died.
TRIES = 3
_OUTPUT = "out"
_thread = threading.local()


@dataclass(frozen=True)
class PackedTask:
    """A task and the files that it reads."""

    task: dict[str, Any]  # see `flowlex.cli.worker_process.run_task`
    files: dict[str, bytes] = field(repr=False)  # contents by path below the folder where they are unpacked
    paths: dict[str, str]  # the same paths by the names of the files in the task
    # run, key: identifier of the run, and of the task within it
    run: str = ""
    key: str = ""
    versions: dict[str, str] = field(default_factory=dict, repr=False)  # versions of the client

    @property
    def size(self) -> int:
        """Bytes of the files."""
        return sum(map(len, self.files.values()))

    @property
    def metadata_keys(self) -> list[str]:
        """Keys of the scheduler's metadata with the addresses of the workers that have started this task."""
        return ["flowlex", self.run, self.key]

    def unpack(self, folder: Path) -> dict[str, Any]:
        """Write the files, and return the task with their new paths."""
        for place, content in self.files.items():
            path = folder / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        task = dict(self.task)
        for key, value in self.task.items():
            if key != "instance" and isinstance(value, str) and value in self.paths:
                task[key] = str(folder / self.paths[value])
        if task["solution"] is not None:
            (folder / _OUTPUT).mkdir()
            task["solution"] = str(folder / _OUTPUT / Path(task["solution"]).name)
        return task

    def failed(self, message: str) -> Finished:
        """Return the result of this task after a failure."""
        return failed(self.task, "error", message)


def pack(task: dict[str, Any], **identity: Any) -> PackedTask:
    """Read the files that a task needs; ``identity`` is ``run``, ``key`` and ``versions``."""
    inputs = list(map(location, task["inputs"]))
    names = [Path(os.path.normpath(Path.cwd() / str(path))) for path in inputs]  # URLs too: only differences matter
    base = os.path.commonpath([name.parent for name in names]) if names else ""
    places = [str("in" / name.relative_to(base)) for name in names]
    contents = {place: _read(path) for place, path in zip(places, inputs, strict=True)}
    refuse_changed(task)
    return PackedTask(
        task, contents, {str(path): place for path, place in zip(inputs, places, strict=True)}, **identity
    )


def _read(path: Path) -> bytes:
    if path.is_file() and path.stat().st_size > MAX_UNPACKED:
        raise InstanceError(f"is larger than {MAX_UNPACKED >> 20} MB, too large to send to a worker", path=path)
    return read_packed(path)


def perform(packed: PackedTask) -> Finished:
    """Run a task in a thread of a Dask worker; errors become part of the result."""
    from distributed import get_worker

    from flowlex.cli.versions import different, versions

    worker = get_worker()
    if packed.versions and packed.versions != versions():
        difference = different(packed.versions, versions())
        message = f"joined with other versions than the client's: {difference}; install the same"
        return packed.failed(f"{worker.address}: {message}")
    started = _record_start(packed.metadata_keys, worker)
    if len(started) >= TRIES:
        return packed.failed(f"{worker.address}: {workers_died(started)}")
    return _perform(packed, worker)


def workers_died(workers: Sequence[str]) -> str:
    """The message for an instance whose workers died."""
    return f"the workers that had it died ({', '.join(workers)}); it is not tried again: what does it need?"


def _perform(packed: PackedTask, worker: Any) -> Finished:
    from distributed import secede

    key = str(worker.get_current_task())
    with tempfile.TemporaryDirectory(prefix="flowlex-", dir=worker.local_directory) as folder:
        task = packed.unpack(Path(folder))
        if task.get("divided"):  # its parts are tasks that need the threads of this worker
            task["scheduler"] = worker.scheduler.address
            secede()  # type: ignore[no-untyped-call]
        try:
            item = _process().perform(task, lambda: _is_wanted(worker, key))
        except PoolError as error:
            return packed.failed(f"{worker.address}: {error}")
        for name, place in packed.paths.items():  # use the client's file names in messages
            item.record["message"] = item.record["message"].replace(str(Path(folder) / place), name)
        out = Path(folder) / _OUTPUT
        files = {one.name: one.read_bytes() for one in out.iterdir() if one.suffix != ".part"} if out.is_dir() else {}
        return Finished(packed.task, item.record, item.display, item.usage, files)


def _process() -> SingleWorker:
    """The supervised process of this thread."""
    if not hasattr(_thread, "process"):
        _thread.process = SingleWorker()
    process: SingleWorker = _thread.process
    return process


def _is_wanted(worker: Any, key: str) -> bool:
    """Return whether the scheduler still waits for a task; it does not if the client is gone."""
    task = worker.state.tasks.get(key)
    return task is not None and task.state in ("executing", "long-running", "resumed")


def _record_start(keys: list[str], worker: Any) -> tuple[str, ...]:
    """Return the workers that have started this task before; if they are fewer than `TRIES`, record this one too."""
    from distributed.utils import sync

    async def record() -> tuple[str, ...]:
        before = tuple(await worker.scheduler.get_metadata(keys=keys, default=()))
        if len(before) < TRIES:
            await worker.scheduler.set_metadata(keys=keys, value=(*before, worker.address))
        return before

    found: tuple[str, ...] = sync(worker.loop, record)
    return found
