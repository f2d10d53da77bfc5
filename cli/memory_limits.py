"""Memory limits of tasks, detection of files changed meanwhile, and messages for the error that ended a task."""

from __future__ import annotations

import contextlib
import re
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flowlex.instances.file_storage import is_url, seen
from flowlex.instances.input_errors import InstanceError

#: Messages of failed allocations: of libraries that end their process, the system's loader, HiGHS, Python.
_NO_MEMORY = re.compile(
    r"MemoryError|memory allocation of \d+ bytes failed|bad_alloc|Cannot allocate memory|Memory limit reached"
    r"|error return without exception set"
)


@contextlib.contextmanager
def memory_limit(limit_mb: int | None) -> Iterator[None]:
    """Limit the memory of this process to what it holds now plus ``limit_mb`` megabytes."""
    if limit_mb is None:
        yield
        return
    status = Path("/proc/self/status").read_text()
    held = int(status.partition("VmData:")[2].split()[0]) << 10
    before, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (held + (limit_mb << 20), most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (before, most))


def out_of_memory(limit_mb: int | None, log: str | None = None) -> str:
    """Return the message for a task that ran out of memory; empty if its output or error (``log``) has no sign."""
    if log is not None and (limit_mb is None or not _NO_MEMORY.search(log)):
        return ""
    return "not enough memory" if limit_mb is None else f"needs more than the memory limit of {limit_mb} MB"


def refuse_changed(task: dict[str, Any]) -> None:
    """Refuse a file that changed since the batch began, as its result would be that of another file."""
    path, mark = Path(task["path"]), task.get("mark")
    sent = "job" in task or task["path"] != task["instance"]  # a copy on another machine; the client compared it
    if mark is None or sent or is_url(path) or not path.is_file():
        return
    size, mtime_ns = seen(path)
    if (size, mtime_ns) != (mark["size"], mark["mtime_ns"]):
        sizes = f"{mark['size']} bytes before, {size} now"
        raise InstanceError(f"changed after the batch began ({sizes}); solve it again with --resume", path=path)


def explained(error: Exception) -> str:
    """One line about an error, for a record."""
    from flowlex.cli.command_group import explanation

    known = explanation(error)
    if known is not None:
        return known
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = "" if trace is None else f" at {Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    return f"unexpected {type(error).__name__}{place}: {error}{notes}; please report this with the instance"
