"""A run over many instances: what is left to do, who does it, what is written down."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowlex.cli.inputs import solution_name
from flowlex.cli.journal import Fingerprint, Journal
from flowlex.cli.output import note
from flowlex.cli.pool import Finished, Listener, solve_all
from flowlex.cli.record import SOLVED
from flowlex.cli.subtasks import divided
from flowlex.instances.storage import write_atomically

if TYPE_CHECKING:
    from flowlex.cli.dask_batch import Cluster

__all__ = ["Batch", "Work"]

#: Runs of at most this many instances print each answer as a table.
_DISPLAYED = 1


class Work:
    """What is done with a file: it is solved. A subclass says otherwise."""

    def mark(self, path: Path) -> Fingerprint:
        """What a result is bound to."""
        return Fingerprint.of(path)

    def task(self, path: Path) -> dict[str, Any]:
        """What a worker needs to know beyond the options; ``job`` names what it does."""
        return {}

    def inputs(self, path: Path) -> Sequence[Path]:
        """Files that a worker on another machine needs."""
        return [path]

    def file(self, path: Path, taken: set[str]) -> str:
        """Name of the file that holds the answer, not one of those taken."""
        return solution_name(path, taken)


class Batch:
    """Solve files, write results down as they come, and count them.

    Parameters
    ----------
    files
        Instance files, each once.
    options
        What may change an answer: ``engine``, ``settings``, ``time_limit_s``, ``gap``, ``compare``, and if given
        ``memory_limit_mb``, ``solver``, ``threads``, ``seed``.
    journal
        Where results go, open; None keeps nothing.
    jobs
        Worker processes.
    resume
        Skip what the journal holds.
    log
        Show the solvers' logs on standard error.
    work
        What is done with each of ``files`` (which then name the runs) instead of solving it.
    cluster
        Machines that do it, instead of processes of this one; entered.
    """

    def __init__(
        self,
        files: Sequence[Path],
        options: dict[str, Any],
        *,
        journal: Journal | None,
        jobs: int,
        resume: bool,
        log: bool = False,
        work: Work | None = None,
        cluster: Cluster | None = None,
    ) -> None:
        self.options = options
        self.journal = journal
        self.before: list[Finished] = []
        self.work: Work = work or Work()
        self.cluster = cluster
        self.listener: Listener | None = None
        self.marks: dict[Path, Fingerprint] = {path: self.work.mark(path) for path in files}
        self._places = {mark.path: place for place, mark in enumerate(self.marks.values())}
        todo = []
        for path, mark in self.marks.items():
            record = journal.done(mark, options) if journal is not None and resume else None
            if record is None:
                todo.append(path)
            else:
                self.before.append(Finished({}, record))
        self.skipped: int
        self.total: int
        self.total, self.skipped = len(files), len(self.before)
        self.finished = self.unsolved = self._misused = 0
        self.jobs: int = min(jobs, max(1, len(todo)))
        self._prepare(todo)
        self.tasks: list[dict[str, Any]] = [self._task(path, jobs, log=log) for path in todo]

    def _task(self, path: Path, jobs: int, *, log: bool) -> dict[str, Any]:
        """What a worker is told of a file."""
        journal, cluster = self.journal, self.cluster
        return {
            "instance": str(path),
            "path": str(path),
            **self.options,
            "spare_threads": self.jobs > 1 or cluster is not None,
            "log": log,
            "processes": max(1, jobs // self.jobs),
            "divided": cluster is not None and divided(self.options.get("settings", {})),
            "solution": None if journal is None else str(journal.folder / self._solutions[path]),
            "display": self.total <= _DISPLAYED,
            "mark": vars(self.marks[path]),
            **self.work.task(path),
        }

    @property
    def exit_code(self) -> int:
        """0: every instance has an answer; 2: no instance understands the options; 1: otherwise."""
        if self._misused and self._misused == self.total:
            return 2
        return 1 if self.unsolved else 0

    def place(self, item: Finished) -> int:
        """Position of an instance among the files, as they were named."""
        return self._places[item.record["input"]["path"]]

    def run(self) -> Iterator[Finished]:
        """Begin; yield what was done before, then each instance as it finishes, after it was written down."""
        return self._finishing(self._performed() if self.tasks else iter(()))

    def _finishing(self, performed: Iterator[Finished]) -> Iterator[Finished]:
        for item in self.before:
            self._count(item)
            yield item
        for item in performed:
            for name, content in item.files.items():
                assert self.journal is not None  # without a folder no task writes a file
                write_atomically(self.journal.folder / name, content, as_is=True)
            item.record["options"], item.record["input"] = self.options, item.task["mark"]
            if self.journal is not None:
                self.journal.append(item.record)
            self._count(item)
            yield item

    def _performed(self) -> Iterator[Finished]:
        """Have all tasks done: by processes of this machine, or of a cluster."""
        if self.cluster is None:
            return solve_all(self.tasks, self.jobs, self._notify)
        paths = {str(path): path for path in self.marks}
        return self.cluster.perform(self.tasks, lambda task: self.work.inputs(paths[task["instance"]]))

    def _notify(self, task: dict[str, Any], event: dict[str, Any]) -> None:
        if self.listener is not None:
            self.listener(task, event)

    def _count(self, item: Finished) -> None:
        self.finished += 1
        self.unsolved += item.record["status"] not in SOLVED
        self._misused += item.usage

    def _prepare(self, todo: Sequence[Path]) -> None:
        """Repair and open the journal; give each instance a solution file of its own."""
        self._solutions: dict[Path, str] = {}
        if self.journal is None:
            return
        torn = self.journal.dropped
        if self.journal.differing:
            names = ", ".join(sorted(self.journal.differing))
            note(f"earlier results were made with other options ({names}); these instances are solved again")
        again = {self.marks[path].path for path in todo}
        if self.journal.begin(again):
            note(f"earlier results of these instances are now in {self.journal.folder / 'results.previous.jsonl'}")
        if torn:
            note(f"{self.journal.path}: dropped {torn} half-written line(s); their instances are solved again")
        taken = {str(record["solution"]) for record in self.journal.records.values() if record.get("solution")}
        for path in todo:
            name = self.work.file(path, taken)
            taken.add(name)
            self._solutions[path] = name
