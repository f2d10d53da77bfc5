"""Pieces of one instance (parts of an allocation), each solved as a task of its own: by processes or a cluster."""

from __future__ import annotations

import contextlib
import pickle
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from flowlex.cli.pool import Finished, solve_all

__all__ = ["DONE", "divided", "pieces"]

#: Status of a piece that is done; it never reaches a journal.
DONE = "done"
Perform = Callable[[list[dict[str, Any]]], Iterator[Finished]]


def divided(settings: dict[str, Any]) -> bool:
    """Whether options of a model ask for parts."""
    wanted = str(settings.get("parts", "1"))
    return wanted.isdecimal() and int(wanted) > 1


@contextlib.contextmanager
def pieces(task: dict[str, Any]) -> Iterator[None]:
    """Let a model that is solved inside spread its pieces as the task says: by ``scheduler``, ``processes``, or not."""
    from flowlex.models.parallel import pieces_by

    with contextlib.ExitStack() as stack:
        perform: Perform | None = None
        if task.get("scheduler") is not None:
            from flowlex.cli.spread import Cluster

            cluster = stack.enter_context(Cluster(task["scheduler"], quiet=True))
            perform = partial(cluster.perform, inputs=lambda piece: [Path(piece["path"])])
        elif task.get("processes", 1) > 1:
            perform = partial(solve_all, jobs=task["processes"])
        if perform is not None:
            stack.enter_context(pieces_by(partial(_mapped, task, perform)))
        yield


def _mapped(task: dict[str, Any], perform: Perform, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """Results of a function of each item, in order.

    Raises
    ------
    EngineError
        A piece ended in an error, or was killed at a limit.
    """
    from flowlex.formulations.outcome import EngineError

    limits = {name: task.get(name) for name in ("engine", "time_limit_s", "memory_limit_mb", "log")}
    with tempfile.TemporaryDirectory(prefix="flowlex-pieces-") as folder:
        tasks = []
        for number, item in enumerate(items):
            path, result = Path(folder) / f"{number}.piece", Path(folder) / f"{number}.result"
            path.write_bytes(pickle.dumps((function, item)))
            about = {"instance": f"{task['instance']}, part {number + 1}", "path": str(path), "solution": str(result)}
            tasks.append({"job": "piece", "number": number, **limits, **about})
        results: dict[int, Any] = {}
        for done in perform(tasks):
            if done.record["status"] != DONE:
                raise EngineError(f"{done.record['instance']}: {done.record['message'] or done.record['status']}")
            result = Path(done.task["solution"])
            results[done.task["number"]] = pickle.loads(done.files.get(result.name) or result.read_bytes())
        return [results[number] for number in range(len(tasks))]
