"""Import of the public Google cluster trace of 2011 (clusterdata-2011-2) into an event log.

The tables are headerless CSV, plain or gzip, in folders of parts; the columns used (counted from 0):

table | columns
--- | ---
``task_events`` | 0 time (us), 2 job ID, 3 task index, 5 event type, 8 priority, 12 different machines (0 or 1)
``job_events`` | 0 time, 2 job ID, 3 event type
``machine_events`` | 0 time, 1 machine ID, 2 event type, 3 platform ID, 4 CPUs
``machine_attributes`` | 0 time, 1 machine ID, 2 attribute name, 3 attribute value, 4 attribute deleted

Event types of tasks and jobs: 0 submit, 1 schedule, 2 evict, 3 fail, 4 finish, 5 kill, 6 lost, 7 and 8 update. Of
machines: 0 add, 1 remove, 2 update. Placement is ours to decide, so schedule and evict are left out; a task that is
submitted again after it failed arrives again. Larger priorities are more important there, smaller ones here.
A flagged task must not share a machine with another running task of its job; the flag is taken to hold for all tasks
of the job that arrive with it (the trace hardly mixes them), also against those that arrive later and are flagged.
"""

from __future__ import annotations

import csv
import gzip
import heapq
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO, cast

from flowlex.instances import events as ev
from flowlex.instances.base import InstanceError, Part
from flowlex.instances.flow import FlowJob, FlowTask, Machine

__all__ = ["google_trace_events"]

#: Importance 12 (monitoring) becomes priority 0.
_TOP = 12
_END_OF_TIME = 2**63 - 1
_SUBMIT, _FAIL, _FINISH, _KILL, _LOST = 0, 3, 4, 5, 6
_TABLES = {"task_events": 13, "job_events": 8, "machine_events": 6, "machine_attributes": 5}

Row = tuple[int, list[str], str]


def google_trace_events(
    folder: str | Path,
    *,
    slots_per_unit: int = 24,
    step_s: float = 60.0,
    until_s: float | None = None,
    different_machines: bool = True,
) -> Iterator[Part]:
    """Yield the events of a trace in order of time, with a ``step`` every ``step_s`` seconds in which any happened.

    Parameters
    ----------
    folder
        Holds ``task_events/`` and ``machine_events/`` (each with its parts), and if present ``job_events/`` and
        ``machine_attributes/``; or the parts themselves named after their table.
    slots_per_unit
        Slots of a machine with CPU capacity 1.0 (capacities are normalised in the trace).
    until_s
        Stop here.
    different_machines
        Keep the rule that tasks of a flagged job run on different machines (`FlowJob.different_machines`). It costs the
        scheduler an arc per flagged job and machine; False leaves it out.

    Raises
    ------
    InstanceError
        A missing table, or a damaged row (file and line are named).
    """
    if slots_per_unit < 1 or not step_s > 0:
        raise InstanceError("slots_per_unit must be at least 1 and step_s positive")
    root = Path(folder)
    for needed in ("task_events", "machine_events"):
        if not _parts(root, needed):
            raise InstanceError(f"no {needed} table; it should be {needed}/part-00000-of-*.csv.gz", path=root)
    return _with_steps(_merge(root, _Translator(slots_per_unit, different_machines)), step_s, until_s)


def _with_steps(events: Iterator[Part], step_s: float, until_s: float | None) -> Iterator[Part]:
    edge = step_s
    pending = False
    for event in events:
        at = float(getattr(event, "at_s", 0.0))
        if until_s is not None and at > until_s:
            break
        if at >= edge:
            if pending:
                yield ev.Step(at_s=edge)
            pending = False
            edge = (at // step_s + 1) * step_s
        yield event
        pending = True
    if pending:
        yield ev.Step(at_s=edge)


def _merge(root: Path, trace: _Translator) -> Iterator[Part]:
    """Translate the tables' rows, merged by time: machines first, then what ends, then what arrives."""
    tables = ("machine_attributes", "machine_events", "task_events", "job_events")
    streams = [_numbered(root, table, kind) for kind, table in enumerate(tables)]
    now = 0
    for time, kind, _, row, where in heapq.merge(*streams, key=lambda item: item[:3]):
        if time == _END_OF_TIME:
            break
        if time != now:
            yield from trace.arrivals(now)
            now = time
        try:
            if kind == 0:
                trace.attribute(row)
            elif kind == 1:
                yield from trace.machine(time, row)
            elif kind == 2:
                yield from trace.task(time, row)
            else:
                yield from trace.job(time, row)
        except (ValueError, OverflowError) as error:
            path, _, line = where.rpartition(":")
            raise InstanceError(f"not a row of this table ({error})", place=f"line {line}", path=path) from error
    yield from trace.arrivals(now)


def _numbered(root: Path, table: str, kind: int) -> Iterator[tuple[int, int, int, list[str], str]]:
    for number, (time, row, where) in enumerate(_rows(root, table)):
        yield time, kind, number, row, where


class _Translator:
    def __init__(self, slots_per_unit: int, different_machines: bool) -> None:
        self.slots_per_unit = slots_per_unit
        self.different_machines = different_machines
        self.flagged: set[str] = set()  # jobs whose tasks that arrive now are flagged
        self.machines: dict[str, Machine] = {}
        self.attributes: dict[str, dict[str, str]] = {}
        self.alive: dict[str, set[str]] = {}  # tasks by job
        self.new: dict[tuple[str, int], list[str]] = {}
        self.batches: dict[str, int] = {}

    def attribute(self, row: list[str]) -> None:
        """Note an attribute; it counts from the machine's next addition."""
        kept = self.attributes.setdefault(row[1], {})
        if row[4].strip().lower() in ("1", "true"):
            kept.pop(row[2], None)
        else:
            kept[row[2]] = row[3]

    def machine(self, time: int, row: list[str]) -> Iterator[Part]:
        """A machine is added, removed or changed."""
        name, kind = row[1], int(row[2])
        slots = max(int(float(row[4] or 0.0) * self.slots_per_unit + 0.5), 0)
        present = self.machines.get(name)
        if kind == 1:
            if present is not None:
                del self.machines[name]
                yield ev.RemoveMachine(at_s=time / 1e6, machine=name)
            return
        if kind not in (0, 2):
            raise ValueError(f"machine event type {kind}")
        if present is not None:
            if slots != present.slots:
                self.machines[name] = present.model_copy(update={"slots": slots})
                yield ev.SetSlots(at_s=time / 1e6, machine=name, slots=slots)
            return
        labels = [f"{key}={value}"[:200] for key, value in sorted(self.attributes.get(name, {}).items())]
        if row[3]:
            labels.append(f"platform={row[3]}"[:200])
        self.machines[name] = Machine(name=name, slots=slots, labels=tuple(labels))
        yield ev.AddMachine(at_s=time / 1e6, machine=self.machines[name])

    def task(self, time: int, row: list[str]) -> Iterator[Part]:
        """A task arrives (with the others of its job at this time) or ends."""
        job, task, kind = row[2], f"{row[2]}/{int(row[3])}", int(row[5])
        if not 0 <= kind <= 8:
            raise ValueError(f"task event type {kind}")
        alive = self.alive.setdefault(job, set())
        if kind == _SUBMIT and task not in alive:
            alive.add(task)
            if self.different_machines and _flag(row[12]):
                self.flagged.add(job)
            self.new.setdefault((job, max(0, _TOP - int(row[8]))), []).append(task)
        elif kind in (_FAIL, _FINISH, _KILL, _LOST) and task in alive:
            yield from self._end(time, job, task, finished=kind == _FINISH)

    def job(self, time: int, row: list[str]) -> Iterator[Part]:
        """The end of a job ends the tasks of it that the task table forgot."""
        if int(row[3]) in (_FAIL, _FINISH, _KILL, _LOST):
            for task in sorted(self.alive.get(row[2], ())):
                yield from self._end(time, row[2], task, finished=False)

    def _end(self, time: int, job: str, task: str, *, finished: bool) -> Iterator[Part]:
        yield from self.arrivals(time)
        self.alive[job].discard(task)
        at = time / 1e6
        yield ev.Finish(at_s=at, task=task) if finished else ev.Cancel(at_s=at, task=task)

    def arrivals(self, time: int) -> Iterator[Part]:
        """Tasks of one job that arrive at one time are one job here."""
        for (job, priority), tasks in self.new.items():
            batch = self.batches[job] = self.batches.get(job, 0) + 1
            name = job if batch == 1 else f"{job}#{batch}"
            made = FlowJob(
                name=name,
                tasks=tuple(FlowTask(name=task) for task in tasks),
                priority=priority,
                different_machines=job if job in self.flagged else None,
            )
            yield ev.Submit(at_s=time / 1e6, job=made)
        self.new.clear()
        self.flagged.clear()


def _flag(cell: str) -> bool:
    """A cell that is 0 or 1, or empty where it is not known."""
    text = cell.strip().lower()
    if text not in ("", "0", "1", "false", "true"):
        raise ValueError(f"different machines is {cell!r}, not 0 or 1")
    return text in ("1", "true")


def _parts(root: Path, table: str) -> list[Path]:
    found = [*root.glob(f"{table}/*.csv.gz"), *root.glob(f"{table}/*.csv"), *root.glob(f"{table}*.csv.gz")]
    return sorted({*found, *root.glob(f"{table}*.csv")})


def _rows(root: Path, table: str) -> Iterator[Row]:
    """Rows of a table with their time and place, part by part."""
    for path in _parts(root, table):
        number = 0
        try:
            with _open(path) as stream:
                for number, row in enumerate(csv.reader(stream), 1):
                    if not row:
                        continue
                    if len(row) != _TABLES[table]:
                        reason = f"{len(row)} columns, {table} has {_TABLES[table]}"
                        raise InstanceError(reason, place=f"line {number}", path=path)
                    try:
                        time = int(row[0])
                    except ValueError as error:
                        raise InstanceError(f"no time: {error}", place=f"line {number}", path=path) from error
                    yield time, row, f"{path}:{number}"
        except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error, ValueError) as error:
            if isinstance(error, InstanceError):
                raise
            raise InstanceError(f"damaged ({error})", place=f"after line {number}", path=path) from error


def _open(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return cast(TextIO, gzip.open(path, "rt", newline=""))
    return path.open("r", newline="")
