"""A policy on an instance, ready to be solved: the whole, or a part of it, here or in another process."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from flowlex.formulations.coefficient_scaling import scale_program
from flowlex.formulations.engines import solve
from flowlex.formulations.linear_expression import Expression
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.program_arrays import Booleans, Floats, Integers
from flowlex.formulations.solver_outcome import EngineName, Outcome, SolveOptions, Status
from flowlex.instances.allocation import AllocationInstance
from flowlex.models.allocation.allocation_linear_program import (
    Base,
    Columns,
    base_program,
    equal_throughput,
    run_columns,
)
from flowlex.models.allocation.job_aggregation import job_classes
from flowlex.models.allocation.pair_pricing import PairPrices, PricedMaster
from flowlex.models.allocation.policies import (
    FinishTimes,
    Goal,
    Master,
    Raise,
    Step,
    WholeMaster,
    fill,
    finish_times,
    pace_of,
    prices_of,
    quickest,
)

__all__ = ["TOTALS", "Answer", "PolicyProgram", "unit_of"]

#: Policies that add up throughput or cost; the others raise gains.
TOTALS = ("max_throughput", "min_cost")
#: From here on pairs are priced.
_MANY_PAIRS = 2_000
#: Jobs whose weights are within this factor are nearly identical.
_NEAR = 1.05
#: Fractions of time below this are not run; what solvers leave short of a row is below that.
_NOTHING, _TOLERANCE = 1e-12, 1e-6


@dataclass(frozen=True, eq=False)
class Answer:
    """The last outcome, the steps that led to it, where every gain ended, and what its values are of."""

    outcome: Outcome
    steps: tuple[Step, ...]
    level: Floats | None
    columns: Columns


@dataclass(frozen=True, eq=False)
class PolicyProgram:
    """What is to be solved."""

    instance: AllocationInstance
    policy: str
    rows: frozenset[str]  # names that rows may have
    # deadlines, sharing: Whether deadlines are kept, whether two jobs may share GPUs
    deadlines: bool
    sharing: bool
    unit: Floats | None  # (n,) gain per step/s; None where gain is time
    tolerance: float = 1e-6
    # whether pairs become columns only where prices ask for them; None: where there are many
    priced: bool | None = False
    engine: EngineName = "pulp"
    options: SolveOptions = field(default_factory=SolveOptions)
    many: Integers | None = None  # (n,) how many identical jobs each stands for; None: one

    def build(self, columns: Columns) -> Base:
        """The constraints that all policies share, over some columns."""
        return base_program(self.instance, columns, self.rows, deadlines=self.deadlines, many=self.many)

    def base(self) -> Base:
        """The same over all columns, or over jobs alone where pairs are priced."""
        sharing = self.sharing and not self.priced
        return self.build(run_columns(self.instance.arrays, sharing=sharing, many=self.many))

    def pace(self, full: Booleans) -> Floats:
        """(n,) how fast gains rise while the jobs in ``full`` stand still."""
        if self.policy == "makespan":
            return np.where(full, 0.0, 1.0)
        return pace_of(self.instance, full, hierarchical=self.policy == "hierarchical", many=self.many)

    def gain(self, base: Base) -> Expression:
        """(n,) what is raised."""
        return base.time if self.unit is None else base.throughput * self.unit

    def total(self, base: Base) -> LinearProgram:
        """Throughput or (negative) cost, added up."""
        program = base.program.copy()
        program.maximize(base.throughput.sum() if self.policy == "max_throughput" else -self.cost(base))
        return program

    def cost(self, base: Base) -> Expression:
        """What all GPUs that run cost per hour."""
        view, columns = self.instance.arrays, base.columns
        return (base.share * (view.scale[columns.first] * view.price[columns.gpu])).sum()

    @property
    def goal(self) -> Goal:
        """What is maximised first, for prices."""
        view = self.instance.arrays
        if self.policy in TOTALS:
            cheap = self.policy == "min_cost"
            return Goal(speed=0.0 if cheap else 1.0, cost=view.price if cheap else None)
        return Goal(self.unit, pace=self.pace(np.zeros(len(view.scale), bool)))

    @cached_property
    def times(self) -> FinishTimes:
        """What finish-time fairness compares."""
        count = len(self.instance.jobs) if self.many is None else int(self.many.sum())
        return FinishTimes.of(self.instance.arrays, count)

    @cached_property
    def best(self) -> Floats:
        """(n,) the highest speed that each job has anywhere."""
        view = self.instance.arrays
        best = view.speed.max(axis=1)
        if self.sharing:
            by_kind = np.zeros(int(max(view.kind.max(), view.pair_kind.max(initial=0))) + 1)
            np.maximum.at(by_kind, view.pair_kind.ravel(), view.pair_speed.ravel())
            best = np.maximum(best, by_kind[view.kind])
        return np.asarray(best)

    def solve(self) -> Answer:
        """Solve it, and give every job in full what tolerances of the solver have left short."""
        answer = self._by_class()
        values, columns = answer.outcome.values, answer.columns
        if values is None or not answer.steps:
            return answer
        view, n = self.instance.arrays, len(self.instance.jobs)
        share = np.where(values[: columns.count] > _NOTHING, values[: columns.count], 0.0)
        needed, most = np.zeros(n), _TOLERANCE if self.instance.limits else 0.01
        if self.deadlines:
            needed = np.nan_to_num(view.steps / view.deadline)
        if answer.level is not None and self.policy == "finish_time":
            needed = np.maximum(needed, answer.level)
        elif answer.level is not None and self.unit is not None:
            needed = np.maximum(needed, answer.level / self.unit)
        share = _filled(columns, share, needed, most, speed=True)
        if answer.level is not None and self.unit is None:
            share = _filled(columns, share, answer.level, most, speed=False)
        held = np.bincount(columns.gpu, weights=view.scale[columns.first] * share, minlength=len(view.count))
        over = max(float(columns.per_job(share, n, speed=False).max()), float((held / view.count).max()))
        share = share / over if over > 1 + _TOLERANCE / 10 else share
        return replace(answer, outcome=replace(answer.outcome, values=share))

    def _by_class(self) -> Answer:
        """Solve it over classes of identical jobs, and spread the answer over their members."""
        classes = job_classes(self.instance, self.policy, self.unit, deadlines=self.deadlines)
        if len(classes.first) == len(classes.of):
            return self._found()
        unit = None if self.unit is None else self.unit[classes.first]
        small = replace(self, instance=classes.merged(self.instance), unit=unit, many=classes.many)
        answer = small._found()
        values, columns = answer.outcome.values, answer.columns
        if values is None or not answer.steps:  # why there is none is said of jobs
            return self._found()
        owed = np.flatnonzero(np.isfinite(small.instance.arrays.deadline))
        steps = tuple(classes.step(step, owed) for step in answer.steps)
        columns, share = classes.spread(columns, np.maximum(values[: columns.count], 0.0))
        outcome = replace(answer.outcome, values=share, duals=None)
        return Answer(outcome, steps, None if answer.level is None else answer.level[classes.of], columns)

    def _found(self) -> Answer:
        """Solve it job by job: with all pairs where those that prices chose leave no answer (deadlines, floors)."""
        if self.priced is None:
            many = self.sharing and PairPrices(self.instance).count > _MANY_PAIRS
            return replace(self, priced=many)._found()
        answer = self._solved(self._master())
        if self.priced and answer.outcome.status is Status.INFEASIBLE:
            return replace(self, priced=False)._found()
        return answer

    def _master(self) -> Master:
        if not self.priced:
            return WholeMaster(self.base(), self._scaled)
        base = self.base()
        known = self._likely()
        if known is not None:
            base = self.build(Columns.joined([base.columns, known]))
        return PricedMaster(PairPrices(self.instance, many=self.many), base, self.build, self.options)

    def _scaled(self, program: LinearProgram) -> Outcome:
        """Solve a program with rows and objective of about 1, whatever the units of throughputs and weights."""
        scaled, scales = scale_program(program, ("rise",) if "rise" in program.variable_blocks else ())
        return scales.restored(solve(scaled, self.engine, self.options))

    def _likely(self) -> Columns | None:
        """Pairs to begin with: those of the optimum where jobs that are nearly identical count as identical."""
        if self.policy in ("hierarchical", "finish_time"):  # what jobs get there hangs on much more than their weight
            return None
        about = job_classes(self.instance, self.policy, self.unit, deadlines=self.deadlines, within=_NEAR)
        if 2 * len(about.first) > len(about.of):
            return None
        members = about.many if self.many is None else np.bincount(about.of, weights=self.many).astype(np.int64)
        policy = "max_min" if self.policy == "water_filling" else self.policy
        unit = None if self.unit is None else self.unit[about.first]
        rough = replace(self, instance=about.merged(self.instance), policy=policy, unit=unit, many=members)
        answer = rough._solved(rough._master())
        if answer.outcome.values is None:
            return None
        columns, _ = about.spread(answer.columns, np.maximum(answer.outcome.values[: answer.columns.count], 0.0))
        pairs = columns.paired
        return Columns(columns.first[pairs], columns.second[pairs], columns.gpu[pairs], columns.speed[pairs])

    def _solved(self, master: Master) -> Answer:
        labels = [job.name for job in self.instance.jobs]
        if self.policy in TOTALS:
            outcome, program = master.solve(self.total, self.goal)
            if outcome.status is not Status.OPTIMAL or outcome.duals is None or outcome.objective is None:
                return Answer(outcome, (), None, master.base.columns)
            prices = prices_of(program, outcome.duals)
            step = Step(float(outcome.objective), prices, np.zeros(len(labels), bool))
            return Answer(outcome, (step,), None, master.base.columns)
        raised: Raise
        if self.policy == "finish_time":
            raised = finish_times(master, self.times, labels, best=self.best, gap=self.tolerance)
        else:
            once = self.policy in ("max_min", "makespan")
            raised = fill(master, self.gain, self.pace, labels, unit=self.unit, once=once)
        steps = raised.steps if raised.level is not None else ()
        return Answer(raised.outcome, steps, raised.level, raised.columns or master.base.columns)


def _filled(columns: Columns, share: Floats, needed: Floats, most: float, *, speed: bool) -> Floats:
    """Shares with a little more time for jobs that miss what they need by no more than a solver's tolerance."""
    short = needed - columns.per_job(share, len(needed), speed=speed)
    alone = np.flatnonzero(~columns.paired)
    rate = columns.speed[alone, 0]
    order = np.lexsort((-rate, -share[alone], columns.first[alone]) if not speed else (-rate, columns.first[alone]))
    jobs, at = np.unique(columns.first[alone][order], return_index=True)
    chosen = alone[order][at]
    more = np.maximum(short[jobs], 0.0) / (columns.speed[chosen, 0] if speed else 1.0)
    filled = share.copy()
    small = more <= most
    filled[chosen[small]] += more[small]
    return filled


def unit_of(instance: AllocationInstance, policy: str, *, aware: bool) -> Floats | None:
    """(n,) gain per step/s; None where gain is time."""
    view = instance.arrays
    if policy == "makespan":
        return np.asarray(quickest(instance) / view.steps)
    return 1 / equal_throughput(view) if aware else None
