r"""The policies as sequences of linear programs; the duals of every step prove its optimum.

Most policies raise a gain of every job: they maximise t with ``gain_m >= level_m + pace_m t``.

=================  =============================================  ====================================================
policy             gain                                           pace
=================  =============================================  ====================================================
max_min            thr(m) / thr(m, equal), or time (not aware)    w_m / s_m
water_filling      the same                                       the same, again and again for jobs that can rise
hierarchical       thr(m) / thr(m, equal)                         w_e w_m / (sum of w of e's jobs that can rise) / s_m
makespan           T0 thr(m) / n_m                                1, so that t = T0 / T
finish_time        thr(m)                                         n_m / (rho isolated_m - t_m); is t >= 1?
=================  =============================================  ====================================================

Duals show which jobs can still rise: if the dual of a job's level is positive, the job is at its level in every
optimum, so it is full. A full job whose dual is zero is found in the next step, which then has rise 0. So the method
needs neither a tolerance nor an auxiliary program.

Source: Narayanan et al. (OSDI 2020), sections 4 and 5; the steps by duals are ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from flowlex.formulations.linear_expression import Expression
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.program_arrays import Booleans, Floats, Integers
from flowlex.formulations.solver_outcome import EngineError, Outcome, Status
from flowlex.instances.allocation import AllocationArrays, AllocationInstance
from flowlex.models.allocation.allocation_linear_program import Base, JobColumns, raised_program

#: Duals of levels above this fraction of the largest count as positive (a full job missed here is found later).
_POSITIVE = 1e-7


@dataclass(frozen=True, eq=False)
class Goal:
    """The objective: the common rise of all gains, or a sum."""

    unit: Floats | None = None  # (n,) gain per step/s; None if gain is time; only for the common rise
    # objective coefficients of a sum: per step/s of any job, and (J,) cost per GPU
    speed: float = 0.0
    cost: Floats | None = None
    # (n,) paces and levels of the common rise, summed over the jobs that each job represents; None for a sum
    pace: Floats | None = None
    level: Floats | None = None


class Master(Protocol):
    """Solver of a sequence of programs over the same constraints; every solve may add columns to ``base``."""

    base: Base

    def solve(self, make: Callable[[Base], LinearProgram], goal: Goal) -> tuple[Outcome, LinearProgram]:
        """Solve the program that ``make`` builds over the constraints; return the outcome and the program."""
        ...


@dataclass(eq=False)
class WholeMaster:
    """Solve programs with all columns, by any engine."""

    base: Base
    run: Callable[[LinearProgram], Outcome]

    def solve(self, make: Callable[[Base], LinearProgram], goal: Goal) -> tuple[Outcome, LinearProgram]:
        """Solve the program without column generation."""
        program = make(self.base)
        return self.run(program), program


@dataclass(frozen=True, eq=False)
class Step:
    """One program of a sequence."""

    value: float  # optimum
    # nonnegative duals by name of rows; ``level`` are those of the jobs' levels
    prices: dict[str, Floats] = field(repr=False)
    full: Booleans = field(repr=False)  # (n,) jobs that this step proves full
    rise: float | None = None  # common rise of all jobs; None if the objective is a sum


@dataclass(frozen=True, eq=False)
class Raise:
    """A sequence of steps and its last outcome; ``level``, (n,), is the final gain of every job."""

    outcome: Outcome
    steps: tuple[Step, ...] = ()
    level: Floats | None = None
    columns: JobColumns | None = None  # those of an answer that is not of the last program


def quickest(instance: AllocationInstance) -> float:
    """Lower bound on the makespan, seconds: the longest time of a job alone on its fastest type."""
    view = instance.arrays
    return float((view.steps / view.speed.max(axis=1)).max())


def pace_of(
    instance: AllocationInstance, full: Booleans, *, hierarchical: bool, many: Integers | None = None
) -> Floats:
    """Return the pace of every job, (n,), 0 for jobs in ``full``; a job may represent ``many`` identical jobs."""
    view = instance.arrays
    claim = view.weight if many is None else view.weight * many
    if not hierarchical:
        return np.where(full, 0.0, view.weight / view.scale)
    pace = np.zeros(len(full))
    alone = ~full & (view.entity == -1)  # a job without an entity is its own entity
    pace[alone] = view.weight[alone]
    for e, entity in enumerate(instance.entities):
        rising = np.flatnonzero(~full & (view.entity == e))
        rising = rising[:1] if entity.inside == "fifo" else rising
        pace[rising] = entity.weight * view.weight[rising] / claim[rising].sum()
    return np.asarray(pace / view.scale)


def prices_of(program: LinearProgram, duals: Floats) -> dict[str, Floats]:
    """Return the nonnegative duals of a maximisation by name of rows."""
    return {name: np.abs(values) for name, values in program.split_rows(duals).items()}


def fill(
    master: Master,
    gain: Callable[[Base], Expression],
    pace: Callable[[Booleans], Floats],
    labels: list[str],
    *,
    unit: Floats | None,
    once: bool = False,
) -> Raise:
    """Raise all jobs until each is full (``once``: only one step); each step is a linear program.

    ``pace`` maps the full jobs, (n,), to paces, (n,), which are 0 for full jobs. ``unit``: (n,) gain per step/s; None
    if gain is time.
    """
    level, full, many = np.zeros(len(labels)), np.zeros(len(labels), bool), master.base.many
    steps: list[Step] = []
    last: Outcome | None = None
    columns = master.base.columns
    while True:
        speed = pace(full)
        rise_all = _raising(gain, speed, level, labels)
        outcome, program = master.solve(rise_all, Goal(unit, pace=speed * many, level=level * many))
        if outcome.status is not Status.OPTIMAL or outcome.values is None or outcome.duals is None:
            if last is not None and outcome.status is not Status.TIME_LIMIT:  # optimal within tolerances
                return Raise(replace(last, status=Status.FEASIBLE), tuple(steps), level, columns)
            return Raise(outcome, tuple(steps))
        last, columns = outcome, master.base.columns
        prices = prices_of(program, outcome.duals)
        rise = max(float(outcome.values[-1]), 0.0)
        level = level + speed * rise
        pull = prices["level"] * speed
        found = pull > _POSITIVE * pull.max()
        if not found.any():
            raise EngineError("the solver returned no price for any job's level; try another engine or algorithm")
        full = full | found
        steps.append(Step(rise, prices, found, rise))
        if once or full.all():
            return Raise(outcome, tuple(steps), level)


def _raising(
    gain: Callable[[Base], Expression], pace: Floats, level: Floats, labels: list[str]
) -> Callable[[Base], LinearProgram]:
    return lambda base: raised_program(base, gain(base), pace, level, labels)


@dataclass(frozen=True, eq=False)
class FinishTimes:
    """The data of finish-time fairness, (n,) each: seconds run, steps left, seconds in isolation."""

    running: Floats
    steps: Floats
    isolated: Floats

    @classmethod
    def of(cls, view: AllocationArrays, jobs: int) -> FinishTimes:
        """Compute seconds in isolation: those so far plus the steps left at an equal share ``N_j / (M s_m)``."""
        share = np.where(view.speed > 0, view.count / (jobs * view.scale[:, None]), 0.0)
        share /= np.maximum(share.sum(axis=1), 1.0)[:, None]
        alone = (share * view.speed).sum(axis=1)
        return cls(view.running, view.steps, view.isolated + view.steps / alone)

    def needed(self, rho: float) -> Floats:
        """Return the steps/s, (n,), at which every job's ratio is rho; infinite if no throughput suffices."""
        with np.errstate(over="ignore"):
            room = rho * self.isolated - self.running
        with np.errstate(divide="ignore", over="ignore"):
            return np.where(room > 0, self.steps / np.maximum(room, 0.0), np.inf)

    def ratio(self, throughput: Floats) -> Floats:
        """Return the finish time divided by that in isolation, (n,)."""
        with np.errstate(divide="ignore"):
            return np.asarray((self.running + self.steps / throughput) / self.isolated)

    def least(self, price: Floats, most: float) -> float:
        """Bisect for the least rho with ``sum of price * needed(rho) <= most``; the sum decreases in rho."""
        priced = price > 0
        low = float((self.running / self.isolated)[priced].max())
        high = 2 * low + 1.0
        while (price[priced] * self.needed(high)[priced]).sum() > most:
            high *= 2
        for _ in range(200):
            middle = 0.5 * (low + high)
            if not low < middle < high:
                break
            if (price[priced] * self.needed(middle)[priced]).sum() > most:
                low = middle
            else:
                high = middle
        return low


def finish_times(master: Master, times: FinishTimes, labels: list[str], *, best: Floats, gap: float) -> Raise:
    """Minimise rho by cuts: the duals of the program at one rho prove the next lower bound.

    At rho the program raises all jobs in proportion to the throughput they need. If its optimum is below 1, rho is too
    small. Its duals y bound ``sum of y thr`` over all allocations, so every feasible rho has ``sum of y needed(rho)``
    within this bound. The bounds increase (Newton's method on a convex function) until the ratio of the incumbent is
    within ``gap``. The first bound assumes the ``best`` throughput, (n,), for every job, an upper bound.
    """
    rho = float(times.ratio(best).max())
    steps: list[Step] = []
    none, many = np.zeros(len(labels), bool), master.base.many
    for _ in range(100):
        needed = np.minimum(times.needed(rho), best)
        unit = needed.max()
        goal = Goal(np.ones(len(labels)), pace=many * needed / unit)
        raising = _raising(lambda base: base.throughput, needed / unit, np.zeros(len(labels)), labels)
        outcome, program = master.solve(raising, goal)
        if outcome.status is not Status.OPTIMAL or outcome.values is None or outcome.duals is None:
            return Raise(outcome, tuple(steps))
        prices = prices_of(program, outcome.duals)
        found = master.base.throughput.evaluate(outcome.values[: master.base.columns.count]) / many
        throughput = np.maximum(found, needed / unit * max(outcome.values[-1], 0.0))
        reached = float(times.ratio(throughput).max())
        most = float(outcome.values[-1])  # bound from the duals, by strong duality
        bound = max(rho, times.least(many * prices["level"], most)) if most < unit else rho
        steps.append(Step(bound, prices, none, most))
        if reached <= bound * (1 + gap) or bound <= rho:
            break
        rho = bound
    return Raise(outcome, tuple(steps), throughput)
