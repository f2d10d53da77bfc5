"""Import of the public Google cluster trace of 2011 (clusterdata-2011-2) into an event log.

The tables are headerless CSV, plain or gzip, in folders of parts; the columns used (counted from 0):

table | columns
--- | ---
``task_events`` | 0 time (us), 2 job ID, 3 task index, 5 event type, 8 priority, 9 CPU, 10 memory, 12 different machines
``task_constraints`` | 0 time, 1 job ID, 2 task index, 3 operator, 4 attribute name, 5 attribute value
``job_events`` | 0 time, 2 job ID, 3 event type
``machine_events`` | 0 time, 1 machine ID, 2 event type, 3 platform ID, 4 CPUs, 5 memory
``machine_attributes`` | 0 time, 1 machine ID, 2 attribute name, 3 attribute value, 4 attribute deleted

Event types of tasks and jobs: 0 submit, 1 schedule, 2 evict, 3 fail, 4 finish, 5 kill, 6 lost, 7 and 8 update. Of
machines: 0 add, 1 remove, 2 update. Schedule and evict are left out, because flowlex decides the placement; but a task
that is scheduled without a submit row arrives then. A task submitted again after a failure arrives again. In the trace
larger priorities are more important, here smaller ones; an empty priority counts as 0, the least important. A change
of priority applies to all tasks that arrived together; other updates are ignored.
A flagged task must not share a machine with another running task of its job. We apply the flag to all tasks of the job
that arrive with it (the trace hardly mixes them), and against flagged tasks that arrive later.

Operators of constraints: 0 equal, 1 not equal, 2 less than, 3 greater than. A machine without the attribute has the
empty value, which counts as 0 in comparisons of numbers. A task keeps the requests of its arrival; CPU and memory are
its ``demands``. Machine capacities are given in an instance (`google_snapshot`), not in an event log, because the live
scheduler counts slots. `google_trace_events` counts what it had to leave out or guess.
"""

from __future__ import annotations

import csv
import heapq
import io
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from math import nan
from pathlib import Path

from flowlex.instances.file_storage import opened
from flowlex.instances.flow import Constraint, FlowJob, FlowTask, Machine
from flowlex.instances.instance_base import InstanceError, Part
from flowlex.systems.scheduler import event_log as ev

#: Importance 12 (monitoring) becomes priority 0.
_TOP = 12
_END_OF_TIME = 2**63 - 1
_SUBMIT, _SCHEDULE, _EVICT, _FAIL, _FINISH, _KILL, _LOST = range(7)
_EQUAL, _UNEQUAL, _LESS, _GREATER = range(4)
_TABLES = {"machine_attributes": 5, "machine_events": 6, "task_constraints": 6, "task_events": 13, "job_events": 8}

Row = tuple[int, list[str], str]


def google_trace_events(
    folder: str | Path,
    *,
    slots_per_unit: int = 24,
    step_s: float = 60.0,
    until_s: float | None = None,
    different_machines: bool = True,
    counts: Counter[str] | None = None,
    capacity_slots: int | None = None,
) -> Iterator[Part]:
    """Yield the events of a trace in order of time, with a ``step`` every ``step_s`` seconds in which any happened.

    - ``folder``: holds ``task_events/`` and ``machine_events/`` (each with its parts), and if present ``job_events/``,
      ``machine_attributes/`` and ``task_constraints/``; or the parts themselves named after their table.
    - ``slots_per_unit``: slots of a machine with CPU capacity 1.0 (capacities are normalised in the trace).
    - ``until_s``: time at which to stop, in seconds.
    - ``different_machines``: keep the rule that tasks of a flagged job run on different machines
      (`FlowJob.different_machines`). It costs the scheduler an arc per flagged job and machine; False leaves it out.
    - ``counts``: counts what is left out or guessed, by a short description; updated while events are yielded.
    - ``capacity_slots``: give machines CPU and memory capacities and this many slots; a changed machine is removed and
      added again.

    `InstanceError`: a missing table, or a damaged row (file and line are named).
    """
    if slots_per_unit < 1 or not step_s > 0:
        raise InstanceError("slots_per_unit must be at least 1 and step_s positive")
    root = Path(folder)
    for needed in ("task_events", "machine_events"):
        if not _parts(root, needed):
            raise InstanceError(f"no {needed} table; it should be {needed}/part-00000-of-*.csv.gz", path=root)
    trace = _Translator(slots_per_unit, different_machines, Counter() if counts is None else counts, capacity_slots)
    return _with_steps(_merge(root, trace), step_s, until_s)


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
    if _parts(root, "task_constraints"):
        for _, row, _ in _rows(root, "machine_attributes"):
            trace.values.setdefault(row[2], {"": None})[row[3]] = None
    take = (trace.attribute, trace.machine, trace.constraint, trace.task, trace.job)
    streams = [_numbered(root, table, kind) for kind, table in enumerate(_TABLES)]
    now = 0
    for time, kind, _, row, where in heapq.merge(*streams, key=lambda item: item[:3]):
        if time == _END_OF_TIME:
            break
        if time != now:
            yield from trace.arrivals(now)
            now = time
        try:
            yield from take[kind](time, row)
        except (ValueError, OverflowError) as error:
            path, _, line = where.rpartition(":")
            raise InstanceError(f"not a row of this table ({error})", place=f"line {line}", path=path) from error
    yield from trace.arrivals(now)


def _numbered(root: Path, table: str, kind: int) -> Iterator[tuple[int, int, int, list[str], str]]:
    for number, (time, row, where) in enumerate(_rows(root, table)):
        yield time, kind, number, row, where


class _Translator:
    def __init__(
        self, slots_per_unit: int, different_machines: bool, counts: Counter[str], capacity_slots: int | None
    ) -> None:
        self.counts, self.capacity_slots = counts, capacity_slots
        self.values: dict[str, dict[str, None]] = {}  # all values of each attribute in the trace
        self.wants: dict[str, dict[str, tuple[int, list[Constraint]]]] = {}  # time and constraints, by job and task
        self.batch_of: dict[str, str] = {}  # the batch (`FlowJob`) of each task
        self.ranks: dict[str, int] = {}  # priority of each batch
        self.slots_per_unit = slots_per_unit
        self.different_machines = different_machines
        self.flagged: set[str] = set()  # jobs with flagged tasks among the current arrivals
        self.machines: dict[str, Machine] = {}
        self.attributes: dict[str, dict[str, str]] = {}
        self.alive: dict[str, set[str]] = {}  # tasks by job
        self.new: dict[tuple[str, int], list[FlowTask]] = {}
        self.batches: dict[str, int] = {}

    def attribute(self, time: int, row: list[str]) -> Iterable[Part]:
        """Store an attribute; it takes effect when the machine is next added."""
        self.counts["attributes of machines that are in already"] += row[1] in self.machines
        kept = self.attributes.setdefault(row[1], {})
        if row[4].strip().lower() in ("1", "true"):
            kept.pop(row[2], None)
        else:
            kept[row[2]] = row[3]
        return ()

    def machine(self, time: int, row: list[str]) -> Iterator[Part]:
        """A machine is added, removed or changed."""
        name, kind = row[1], int(row[2])
        amounts = {name: max(float(row[k] or 0.0), 0.0) for name, k in (("cpu", 4), ("memory", 5))}
        slots = max(int(amounts["cpu"] * self.slots_per_unit + 0.5), 0)
        given = {} if self.capacity_slots is None else {"slots": self.capacity_slots, "capacity": amounts}
        present = self.machines.get(name)
        if kind == 1:
            if present is not None:
                del self.machines[name]
                yield ev.RemoveMachine(at_s=time / 1e6, machine=name)
            return
        if kind not in (0, 2):
            raise ValueError(f"machine event type {kind}")
        if present is not None and given and present.capacity != amounts:
            yield ev.RemoveMachine(at_s=time / 1e6, machine=name)
        elif present is not None:
            if not given and slots != present.slots:
                self.machines[name] = present.model_copy(update={"slots": slots})
                yield ev.SetSlots(at_s=time / 1e6, machine=name, slots=slots)
            return
        labels = [_label(key, value) for key, value in sorted(self.attributes.get(name, {}).items())]
        if row[3]:
            labels.append(f"platform={row[3]}"[:200])
        self.machines[name] = Machine.model_validate({"name": name, "slots": slots, "labels": labels, **given})
        yield ev.AddMachine(at_s=time / 1e6, machine=self.machines[name])

    def task(self, time: int, row: list[str]) -> Iterator[Part]:
        """A task arrives (with the others of its job at this time) or ends."""
        job, task, kind = row[2], f"{row[2]}/{int(row[3])}", int(row[5])
        if not 0 <= kind <= 8:
            raise ValueError(f"task event type {kind}")
        alive = self.alive.setdefault(job, set())
        if kind in (_SUBMIT, _SCHEDULE) and task not in alive:
            self.counts["tasks scheduled but not submitted: they arrive then"] += kind == _SCHEDULE
            alive.add(task)
            if self.different_machines and _flag(row[12]):
                self.flagged.add(job)
            self.counts["empty priorities: the least"] += not row[8]
            _, wants = self.wants.get(job, {}).get(task, (0, []))
            made = FlowTask(name=task, demands=_demands(row), constraints=tuple(wants))
            self.new.setdefault((job, self._rank(row[8])), []).append(made)
        elif kind in (_FAIL, _FINISH, _KILL, _LOST) and task in alive:
            yield from self._end(time, job, task, finished=kind == _FINISH)
        elif kind > _LOST:
            yield from self._update(time, task, row)
        elif kind != _SCHEDULE and task not in alive:
            self.counts["ends and evictions of tasks that are not in"] += 1

    def _rank(self, cell: str) -> int:
        return max(0, _TOP - int(cell or 0))

    def _update(self, time: int, task: str, row: list[str]) -> Iterator[Part]:
        """Apply an update of a task: only the priority changes, for all tasks that arrived together."""
        yield from self.arrivals(time)
        name, new = self.batch_of.get(task), self._rank(row[8])
        if name is None or not row[8] or new == self.ranks[name]:
            self.counts["updates without effect here"] += 1
            return
        self.counts["updates of priority, of all tasks that arrived together"] += 1
        self.ranks[name] = new
        yield ev.SetPriority(at_s=time / 1e6, job=name, priority=new)

    def constraint(self, time: int, row: list[str]) -> Iterable[Part]:
        """Store a constraint of a task; rows of a later time replace earlier ones."""
        task, operator, name, value = f"{row[1]}/{int(row[2])}", int(row[3]), row[4], row[5]
        if task in self.alive.get(row[1], ()):
            self.counts["constraints of tasks that are in already"] += 1
            return ()
        mine = self.wants.setdefault(row[1], {})
        since, wants = mine.get(task, (time, []))
        mine[task] = (time, [*(wants if since == time else ()), *self._asked(operator, name, value)])
        return ()

    def _asked(self, operator: int, name: str, value: str) -> Iterator[Constraint]:
        """Translate a comparison into required labels (if machines without the attribute fail it) or forbidden ones."""
        if operator not in range(4):
            raise ValueError(f"comparison operator {operator}")
        tests: tuple[Callable[[str], bool], ...] = (
            lambda held: held == value,
            lambda held: held != value,
            lambda held: _number(held) < int(value or 0),
            lambda held: _number(held) > int(value or 0),
        )
        known = [held for held in self.values.get(name, {"": None}) if held]
        if operator in (_EQUAL, _UNEQUAL) and value and value not in known:
            known.append(value)
        good = [_label(name, held) for held in known if tests[operator](held)]
        bad = [_label(name, held) for held in known if not tests[operator](held)]
        if not tests[operator](""):
            yield Constraint(kind="required", resources=tuple(good) or (f"{name} {'=!<>'[operator]} {value}"[:200],))
        elif bad:
            yield Constraint(kind="forbidden", resources=tuple(bad))

    def job(self, time: int, row: list[str]) -> Iterator[Part]:
        """At the end of a job, end its tasks whose end is missing in the task table."""
        if int(row[3]) in (_FAIL, _FINISH, _KILL, _LOST):
            for task in sorted(self.alive.get(row[2], ())):
                yield from self._end(time, row[2], task, finished=False)
            self.wants.pop(row[2], None)

    def _end(self, time: int, job: str, task: str, *, finished: bool) -> Iterator[Part]:
        yield from self.arrivals(time)
        self.alive[job].discard(task)
        self.batch_of.pop(task, None)
        at = time / 1e6
        yield ev.Finish(at_s=at, task=task) if finished else ev.Cancel(at_s=at, task=task)

    def arrivals(self, time: int) -> Iterator[Part]:
        """Submit the new tasks: those of one job that arrive at one time with one priority form a `FlowJob`."""
        for (job, priority), tasks in self.new.items():
            batch = self.batches[job] = self.batches.get(job, 0) + 1
            name = job if batch == 1 else f"{job}#{batch}"
            made = FlowJob(
                name=name,
                tasks=tuple(tasks),
                priority=priority,
                different_machines=job if job in self.flagged else None,
            )
            self.batch_of |= dict.fromkeys((task.name for task in tasks), name)
            self.ranks[name] = priority
            yield ev.Submit(at_s=time / 1e6, job=made)
        self.new.clear()
        self.flagged.clear()


def _label(name: str, value: str) -> str:
    return f"{name}={value}"[:200]


def _number(value: str) -> float:
    """Return an attribute as a number: 0 if it is empty, NaN (neither less nor greater) if it is no number."""
    try:
        return int(value or 0)
    except ValueError:
        return nan


def _demands(row: list[str]) -> dict[str, float]:
    """Demands of a task, as fractions of the largest machine."""
    return {name: float(row[k]) for name, k in (("cpu", 9), ("memory", 10)) if row[k]}


def _flag(cell: str) -> bool:
    """Parse a cell that is 0, 1 or empty (unknown)."""
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
        with opened(path) as stream:
            try:
                for number, row in enumerate(csv.reader(io.TextIOWrapper(stream, newline="")), 1):
                    if not row:
                        continue
                    if len(row) != _TABLES[table]:
                        reason = f"{len(row)} columns, {table} has {_TABLES[table]}"
                        raise InstanceError(reason, place=f"line {number}", path=path)
                    try:
                        yield int(row[0]), row, f"{path}:{number}"
                    except ValueError as error:
                        raise InstanceError(f"no time: {error}", place=f"line {number}", path=path) from error
            except InstanceError:
                raise
            except (OSError, EOFError, zlib.error, csv.Error, ValueError) as error:
                raise InstanceError(f"damaged ({error})", place=f"after line {number}", path=path) from error
