"""Subtasks of one instance (the parts of an allocation), each solved by another process or by a cluster."""

from __future__ import annotations

import contextlib
import pickle
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from flowlex.cli.result_record import Channel
from flowlex.cli.worker_pool import Finished, solve_all

#: Status of a subtask that succeeded; it never reaches a journal.
_DONE = "done"
Perform = Callable[[list[dict[str, Any]]], Iterator[Finished]]


def divided(settings: dict[str, Any]) -> bool:
    """Return whether options of a model ask for more than one part."""
    wanted = str(settings.get("parts", "1"))
    return wanted.isdecimal() and int(wanted) > 1


@contextlib.contextmanager
def distributed_subtasks(task: dict[str, Any]) -> Iterator[None]:
    """Distribute the parts of a model solved in this context: to a ``scheduler``, to ``processes``, or not at all."""
    from flowlex.models.process_pool import pieces_by

    with contextlib.ExitStack() as stack:
        perform: Perform | None = None
        if task.get("scheduler") is not None:
            from flowlex.cli.dask_batch import Cluster

            cluster = stack.enter_context(Cluster(task["scheduler"], quiet=True))
            perform = cluster.perform
        elif task.get("processes", 1) > 1:
            perform = partial(solve_all, jobs=task["processes"])
        if perform is not None:
            stack.enter_context(pieces_by(partial(_map, task, perform)))
        yield


def _map(task: dict[str, Any], perform: Perform, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """Return the results of a function for each item, in order."""
    from flowlex.formulations.solver_outcome import EngineError

    limits = {name: task.get(name) for name in ("engine", "time_limit_s", "memory_limit_mb", "log")}
    with tempfile.TemporaryDirectory(prefix="flowlex-subtasks-") as folder:
        tasks = []
        for number, item in enumerate(items):
            path, result = Path(folder) / f"{number}.input", Path(folder) / f"{number}.result"
            path.write_bytes(pickle.dumps((function, item)))
            names = {"instance": f"{task['instance']}, part {number + 1}", "path": str(path), "solution": str(result)}
            tasks.append({"job": "subtask", "number": number, "inputs": [str(path)], **limits, **names})
        results: dict[int, Any] = {}
        for done in perform(tasks):
            if done.record["status"] != _DONE:
                raise EngineError(f"{done.record['instance']}: {done.record['message'] or done.record['status']}")
            result = Path(done.task["solution"])
            results[done.task["number"]] = pickle.loads(done.files.get(result.name) or result.read_bytes())
        return [results[number] for number in range(len(tasks))]


def subtask(task: dict[str, Any], channel: Channel, reply: dict[str, Any]) -> None:
    """Call the function pickled in the file ``path`` with its argument; write the result to ``solution``."""
    channel.send("stage", stage="solving", record=reply["record"])
    function, item = pickle.loads(Path(task["path"]).read_bytes())
    Path(task["solution"]).write_bytes(pickle.dumps(function(item)))
    reply["record"]["status"] = _DONE
