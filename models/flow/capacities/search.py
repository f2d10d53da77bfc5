"""Stage by stage to a schedule that fits all resources: the network proposes, programs with cut machines decide.

1. The network, which knows slots only, is solved. If its schedule fits, it is the best one: the network leaves nothing
   out that would fit.
2. Otherwise the proposal is repaired, which gives a schedule that fits, and the relaxation bounds each stage.
3. Where the repaired schedule does not reach the bound, an integer program is solved that knows the capacities of
   machines that were overfull; machines that its answer overfills are added until none is. The last answer is an
   optimum of the stage: what was left out did not matter.

Exactness ends where the program is too large or stops at its limit of steps: then schedule and bound stand apart.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from flowlex.formulations.arrays import Integers
from flowlex.formulations.engines import solve
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.outcome import EngineName, Outcome, SolveOptions, Status
from flowlex.instances.flow import FlowInstance
from flowlex.models.flow.arc_costs import Rules
from flowlex.models.flow.capacities.amounts import Amounts
from flowlex.models.flow.capacities.bound import Bound, Relaxation
from flowlex.models.flow.capacities.classes import Classes, places_of
from flowlex.models.flow.capacities.program import Program, Size
from flowlex.models.flow.capacities.repair import repaired

__all__ = ["MOST_COLUMNS", "STEPS", "Fitted", "Packing"]

#: Unless options limit the work: columns beyond which no integer program is tried, and nodes of its search tree.
MOST_COLUMNS, STEPS = 5_000, 50


@dataclass(frozen=True, eq=False)
class Fitted:
    """A schedule that fits.

    Attributes
    ----------
    machine
        (T,) machine of each task, -1 for none.
    values
        Cost of each stage.
    bounds
        What proves how good each is; a stage without one is missing.
    said
        Stages whose optimum the integer program says to have found; those that reach their bound need no such word.
    outcome
        Status, objective and bound of the last stage.
    """

    machine: Integers
    values: Mapping[str, int]
    bounds: Mapping[str, Bound]
    said: frozenset[str]
    outcome: Outcome


class Packing:
    """One instance under its rules, to be fitted."""

    def __init__(self, instance: FlowInstance, rules: Rules, shares: Integers) -> None:
        self.instance = instance
        self.amounts = Amounts.of(instance)
        self.classes = Classes.of_instance(instance, rules, self.amounts)
        self.program = self._over(instance, rules, shares, alike=False)
        self.kinds = self._over(instance, rules, shares, alike=True)

    def _over(self, instance: FlowInstance, rules: Rules, shares: Integers, *, alike: bool) -> Program:
        places = places_of(instance, rules, self.amounts, self.classes, alike=alike)
        tasks = np.array([len(job.tasks) for job in instance.jobs], np.int64)
        ranks = ("cost",) if rules.order is None else rules.order.names
        firsts = [int(np.argmax(self.classes.of == k)) for k in range(len(self.classes.count))]
        names, machines = [task.name for task in instance.tasks], [machine.name for machine in instance.machines]
        first = [machines[int(np.argmax(places.kind == p))] for p in range(places.size)]
        labels = ([names[t] for t in firsts], first)
        return Program(instance.name, self.classes, places, shares, tasks, ranks, labels)

    @property
    def stages(self) -> list[str]:
        """Names of the stages in strict order."""
        return list(self.program.stages)

    @property
    def sizes(self) -> dict[str, int | str]:
        """Sizes of the program of the first stage."""
        program = self.whole(self.stages[0], {})
        return {"formulation": "integer program", "columns": program.column_count, "rows": program.row_count}

    @property
    def capacities(self) -> list[Size]:
        """Every capacity of every machine that tasks could overfill."""
        wanted = self.classes.count @ self.classes.demand
        return [
            Size(m, r, 1)
            for m, row in enumerate(self.program.places.capacity.tolist())
            for r, there in enumerate(row)
            if wanted[r] > there
        ]

    def whole(self, stage: str, values: Mapping[str, int]) -> LinearProgram:
        """The integer program of a stage with every capacity; ``values``: what the stages before it came to."""
        before = self.stages[: self.stages.index(stage)]
        return self.program.build(stage, self.capacities, {name: values[name] for name in before}, integer=True)

    def values(self, machine: Integers) -> dict[str, int]:
        """Cost of every stage of a schedule."""
        c, program = self.classes, self.program
        running = np.zeros(program.places.may.shape, np.int64)
        runs = machine >= 0
        np.add.at(running, (c.of[runs], machine[runs]), 1)
        waits = c.count - running.sum(axis=1)
        few = np.bincount(c.job, weights=running.sum(axis=1), minlength=len(program.tasks)).astype(np.int64)
        short = np.maximum(program.shares[:, 0] - few, 0)
        held, slots = running.sum(axis=0), program.places.slots
        before = np.zeros(len(slots.count), np.int64)
        for s in range(1, len(before)):
            if slots.place[s] == slots.place[s - 1]:
                before[s] = before[s - 1] + slots.count[s - 1]
        used = np.clip(held[slots.place] - before, 0, slots.count)
        said = (running, waits, short, used)
        return {
            name: sum(int((a * b).sum()) for a, b in zip((s.run, s.wait, s.short, s.slot), said, strict=True))
            for name, s in program.stages.items()
        }

    def tasks_on(self, counts: Integers) -> Integers:
        """(T,) machines for (K, M) tasks of each class on each machine."""
        found = np.full(len(self.classes.of), -1, np.int64)
        for k, row in enumerate(counts):
            placed = np.repeat(np.arange(len(row)), row)
            found[np.flatnonzero(self.classes.of == k)[: len(placed)]] = placed
        return found

    def solve(self, proposal: Integers, engine: EngineName, options: SolveOptions) -> Fitted:
        """Fit a proposal, (T,) machines; see the module."""
        search = _Search(self, engine, options)
        found = repaired(self.instance, self.amounts, self.program, proposal)
        return search.run(min(found, key=lambda machine: tuple(self.values(machine).values())))


class _Search:
    def __init__(self, packing: Packing, engine: EngineName, options: SolveOptions) -> None:
        self.packing, self.engine = packing, engine
        self.limited = options.time_limit_s is not None or options.max_steps is not None or options.solver is not None
        self.options = options if self.limited else replace(options, max_steps=STEPS)
        self.until = None if options.time_limit_s is None else time.perf_counter() + options.time_limit_s
        self.relaxation = Relaxation(packing.kinds)
        self.cut: dict[Size, None] = {}
        self.why: list[str] = []

    def run(self, machine: Integers) -> Fitted:
        packing = self.packing
        values, fixed = packing.values(machine), dict[str, int]()
        bounds: dict[str, Bound] = {}
        said: set[str] = set()
        for stage in packing.stages:
            bound = self.relaxation.bound(stage, fixed)
            if bound is not None:
                bounds[stage] = bound
            if bound is None or values[stage] > bound.value:
                found = self._program(stage, fixed)
                if found is not None:
                    better, proven = found
                    after = packing.values(better)
                    if after[stage] < values[stage]:
                        machine, values = better, after
                    if proven and values[stage] == after[stage]:
                        said.add(stage)
            fixed[stage] = values[stage]
        return Fitted(machine, values, bounds, frozenset(said), self._outcome(values, bounds, said))

    def _outcome(self, values: Mapping[str, int], bounds: Mapping[str, Bound], said: set[str]) -> Outcome:
        open_ones = [n for n, v in values.items() if n not in said and (n not in bounds or bounds[n].value < v)]
        last = list(values)[-1]
        best = open_ones == []
        least = bounds[last].value if last in bounds else None
        far = ", ".join(f"{n} {values[n]} (at least {bounds[n].value if n in bounds else '?'})" for n in open_ones)
        message = f"not proven best: {far}" + (f"; {'; '.join(dict.fromkeys(self.why))}" if self.why else "")
        return Outcome(
            Status.OPTIMAL if best else Status.FEASIBLE,
            self.engine,
            objective=values[last],
            bound=values[last] if best else least,
            message="" if best else message,
        )

    def _program(self, stage: str, fixed: Mapping[str, int]) -> tuple[Integers, bool] | None:
        """A stage's answer, and whether it is said to be optimal; None without one."""
        packing, program = self.packing, self.packing.program
        if len(program.pairs) > MOST_COLUMNS and not self.limited:
            self.why.append(
                f"no integer program is tried beyond {MOST_COLUMNS} columns ({len(program.pairs)}) without a limit of "
                "its work; give time_limit_s or max_steps"
            )
            return None
        self._cut_kinds()
        while True:
            options = self._left()
            if options is None:
                return None
            lp = program.build(stage, self.cut, fixed, integer=True)
            outcome = solve(lp, self.engine, options)
            if outcome.values is None:
                self.why.append(f"{stage}: {outcome.message.lower()} before any schedule")
                return None
            found = packing.tasks_on(program.counts(outcome.values))
            fresh = [Size(int(m), int(r), 1) for m, r in packing.amounts.over(found)]
            if not fresh:
                if outcome.status is not Status.OPTIMAL:
                    self.why.append(f"{stage}: stopped at its limit; raise max_steps or time_limit_s")
                return found, outcome.status is Status.OPTIMAL
            if all(size in self.cut for size in fresh):
                m, r = fresh[0].place, fresh[0].resource
                name = packing.instance.machines[m].name
                self.why.append(f"{packing.amounts.names[r]} of {name!r}: full to a millionth; round the demands")
                return None
            self.cut |= dict.fromkeys(fresh)

    def _cut_kinds(self) -> None:
        """The sizes that the relaxation needed, for every machine of their kind, with the capacities themselves."""
        kind = self.packing.kinds.places.kind
        for size in self.relaxation.sizes:
            for m in np.flatnonzero(kind == size.place).tolist():
                self.cut |= {Size(m, size.resource, 1): None, size._replace(place=m): None}

    def _left(self) -> SolveOptions | None:
        if self.until is None:
            return self.options
        left = self.until - time.perf_counter()
        if left <= 0:
            self.why.append("out of time")
            return None
        return replace(self.options, time_limit_s=left)
