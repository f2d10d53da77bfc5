"""A run over many instances: remaining jobs, their execution, and recorded results."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from flowlex.cli.batch_results_log import Fingerprint, Journal, JournalError
from flowlex.cli.console_output import complain, note
from flowlex.cli.input_files import SOLUTION_SUFFIX, solution_stem
from flowlex.cli.result_record import SOLVED
from flowlex.cli.subtasks import divided
from flowlex.cli.worker_pool import Finished, Listener, PoolError, solve_all
from flowlex.instances.file_storage import write_atomically

if TYPE_CHECKING:
    from flowlex.cli.dask_batch import Cluster


#: Runs of at most this many instances print each answer as a table.
_DISPLAYED = 1


@dataclass(frozen=True)
class Job:
    """A job, which gives one line of results."""

    name: str  # the instance, as messages name it
    mark: Fingerprint  # identifies the input of the result
    inputs: tuple[Path, ...] = ()  # files that a worker reads
    # stem, suffix: of the name of the answer's file; a number is put between them if the name is taken
    stem: str = ""
    suffix: str = SOLUTION_SUFFIX
    # task data beyond the options; ``job`` names what the worker does if it is not solving
    task: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def solving(cls, path: Path) -> Job:
        """Return the job of solving an instance file."""
        return cls(str(path), Fingerprint.of(path), (path,), solution_stem(path))

    def file(self, taken: set[str]) -> str:
        """Return a name for the answer's file that is not taken."""
        name, count = f"{self.stem}{self.suffix}", 1
        while name in taken:
            count += 1
            name = f"{self.stem}-{count}{self.suffix}"
        return name


@contextlib.contextmanager
def opened(
    folder: Path | None, scheduler: str | None = None, wait_s: float | None = None
) -> Iterator[tuple[Journal | None, Cluster | None]]:
    """Open a folder of results and a cluster, if given; an error or Ctrl-C ends the command with a message."""
    try:
        with contextlib.ExitStack() as stack:
            journal = None if folder is None else stack.enter_context(Journal(folder))
            yield journal, None if scheduler is None else stack.enter_context(_cluster(scheduler, wait_s))
    except (JournalError, PoolError) as error:
        complain(str(error))
        raise typer.Exit(2) from error
    except KeyboardInterrupt:
        note("interrupted" + ("; go on with --resume" if folder is not None else ""))
        raise typer.Exit(130) from None


def _cluster(scheduler: str, wait_s: float | None) -> Cluster:
    from flowlex.cli.dask_batch import Cluster

    return Cluster(scheduler, wait_s=wait_s)


class Batch:
    """Run jobs, record results as they arrive, and count them.

    ``options`` are those that may change an answer; they are recorded with it. ``cluster`` is an entered cluster that
    runs the jobs instead of local processes.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        options: dict[str, Any],
        *,
        journal: Journal | None,
        processes: int = 1,
        resume: bool = False,
        log: bool = False,
        cluster: Cluster | None = None,
    ) -> None:
        self.options = options
        self.journal = journal
        self.cluster = cluster
        self.listener: Listener | None = None
        self.before: list[Finished] = []
        self._places = {job.mark.path: place for place, job in enumerate(jobs)}
        todo = []
        for job in jobs:
            record = journal.done(job.mark, options) if journal is not None and resume else None
            if record is None:
                todo.append(job)
            else:
                self.before.append(Finished({}, record))
        self.skipped: int
        self.total: int
        self.total, self.skipped = len(jobs), len(self.before)
        self.finished = self.unsolved = self._misused = 0
        self.processes: int = min(processes, max(1, len(todo)))
        taken = self._prepare(todo)
        common = {
            **options,
            "spare_threads": self.processes > 1 or cluster is not None,
            "log": log,
            "processes": max(1, processes // self.processes),
            "divided": cluster is not None and divided(options.get("settings", {})),
            "display": self.total <= _DISPLAYED,
        }
        self.tasks: list[dict[str, Any]] = []
        for job in todo:
            about = {"instance": job.name, "path": job.name, "inputs": list(map(str, job.inputs)), "solution": None}
            if journal is not None and job.stem:
                name = job.file(taken)
                taken.add(name)
                about["solution"] = str(journal.folder / name)
            self.tasks.append({**about, **common, "mark": vars(job.mark), **job.task})

    @property
    def exit_code(self) -> int:
        """0: every instance has an answer; 2: the options are invalid for every instance; 1: otherwise."""
        if self._misused and self._misused == self.total:
            return 2
        return 1 if self.unsolved else 0

    def place(self, item: Finished) -> int:
        """Position of a result among the jobs, as they were given."""
        return self._places[item.record["input"]["path"]]

    def run(self) -> Iterator[Finished]:
        """Start; yield earlier results, then each instance as it finishes, after its result is recorded."""
        if not self.tasks:
            return self._finishing(iter(()))
        if self.cluster is not None:
            return self._finishing(self.cluster.perform(self.tasks))
        from flowlex.cli.worker_process import main

        return self._finishing(solve_all(self.tasks, self.processes, self._notify, main))

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

    def _notify(self, task: dict[str, Any], event: dict[str, Any]) -> None:
        if self.listener is not None:
            self.listener(task, event)

    def _count(self, item: Finished) -> None:
        self.finished += 1
        self.unsolved += item.record["status"] not in SOLVED
        self._misused += item.usage

    def _prepare(self, todo: Sequence[Job]) -> set[str]:
        """Repair and open the journal; return the names of its solution files."""
        if self.journal is None:
            return set()
        torn, foreign = self.journal.dropped, self.journal.foreign
        if self.journal.differing:
            names = ", ".join(sorted(self.journal.differing))
            note(f"earlier results were made with other options ({names}); these instances are solved again")
        if self.journal.begin({job.mark.path for job in todo}):
            note(f"what was there before is now in {self.journal.folder / 'results.previous.jsonl'}")
        if foreign:
            note(f"{self.journal.path}: {foreign} line(s) are no results of such a run, and are in that file only")
        if torn:
            note(f"{self.journal.path}: dropped {torn} half-written line(s); their instances are solved again")
        return {str(record["solution"]) for record in self.journal.records.values() if record.get("solution")}
