r"""Fractions of time as a mixture of rounds: which sets of jobs may run together, and how often each set does.

A *configuration* M is what one round may run: every job at most once, on no type more GPUs than there are. Fractions X
can be kept by rounds only if they are a mixture of configurations,

    X = sum_k lambda_k M_k,   sum_k lambda_k = 1,   lambda >= 0,

and the time and GPU rows that X keeps are not enough: with 3 GPUs, two jobs of 2 GPUs each could run 3/4 of the time as
fractions, but never in one round together. So we look for the largest part theta <= 1 of X that is a mixture. Where all
jobs have one scale and none are paired, the rows are those of a bipartite b-matching, whose corners are whole; then
theta is 1 (Birkhoff). Configurations of jobs alone come first from slots
(`flowlex.models.allocation.slot_configurations`), then from rounds in which those run that are owed most, and then,
where that is not enough, by column generation: whatever fits by weight is tried first, at the prices of the mixture and
on a walk from them; where that finds nothing, an integer program finds the configuration that the prices want most, and
where none is wanted, theta is proven the largest. A part of a configuration is one too, so that a mixture may run more
than is owed until the end, when the surplus is taken out: prices are then never negative and jump less.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from flowlex.formulations.engines import solve
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.program_arrays import Booleans, Floats, Integers
from flowlex.formulations.sessions.growing_program import GrowingProgram
from flowlex.formulations.solver_outcome import EngineError, SolveOptions, Status
from flowlex.models.allocation.slot_configurations import slot_configurations

__all__ = ["Mixture", "Pool", "mixture"]

#: Fractions and slacks below this are nothing: what linear programs leave.
_NOTHING = 1e-9
#: A part that is short of 1 by no more than this is all: what two programs leave.
_ROUNDING = 1e-7
#: Weights below this are dropped.
_LEAST = 1e-12
#: Steps of a walk per column (1 where no jobs are paired), and their length as a part of the mean price.
_WALK, _STEP = 8, 0.1
#: The search ends where the configurations found, times the columns, are so many: a linear program over them takes
#: minutes, and is stopped.
_MOST_CELLS = 6_000_000


@dataclass(frozen=True, eq=False)
class Pool:
    """What may run and what it needs. Sizes: C columns, n jobs, J GPU types."""

    # first, second, gpu: (C,) jobs (``second`` is -1 for a job alone) and GPU type
    first: Integers
    second: Integers
    gpu: Integers
    scale: Integers  # (C,) GPUs used at once
    count: Integers  # (J,) GPUs
    jobs: int  # n

    @cached_property
    def _program(self) -> LinearProgram:
        program = LinearProgram("configuration")
        runs = program.variables("runs", len(self.first), upper=1.0, integer=True)
        pair = np.flatnonzero(self.second >= 0)
        time = runs.sum_by(self.first, self.jobs) + runs[pair].sum_by(self.second[pair], self.jobs)
        program.constrain("time", time, "<=", 1.0)
        program.constrain(
            "gpus", (runs * self.scale.astype(float)).sum_by(self.gpu, len(self.count)), "<=", self.count.astype(float)
        )
        return program

    def heaviest(self, weight: Floats) -> Booleans:
        """(C,) the configuration of most weight; nothing of no weight runs."""
        program = self._program.with_upper("runs", (weight > 0).astype(float))
        program.maximize((program.variable("runs") * np.maximum(weight, 0.0)).sum())
        return np.asarray(_solved(program) > 0.5)

    def heavy(self, weight: Floats) -> list[Booleans]:
        """Configurations of much weight, quickly: whatever fits, by weight, by weight per GPU, and by both."""
        found = []
        useful = np.flatnonzero(weight > 0)
        first, second, gpu, scale = (each[useful].tolist() for each in (self.first, self.second, self.gpu, self.scale))
        for power in (0.0, 0.5, 1.0):
            free, busy, chosen = self.count.tolist(), bytearray(self.jobs + 1), []
            for c in np.argsort(-weight[useful] / self.scale[useful] ** power, kind="stable").tolist():
                a, b, j = first[c], second[c], gpu[c]  # b = -1 is the last place, which stays free
                if free[j] >= scale[c] and not busy[a] and not busy[b]:
                    busy[a] = 1
                    busy[b] = b >= 0
                    free[j] -= scale[c]
                    chosen.append(c)
            one = np.zeros(len(weight), bool)
            one[useful[chosen]] = True
            found.append(one)
        return found


@dataclass(frozen=True, eq=False)
class Mixture:
    """``part * share`` as a mixture of configurations."""

    part: float  # theta: 1 where the fractions can be kept fully, else the largest part that was found
    configurations: Booleans  # (K, C) what runs
    weight: Floats  # (K,) fraction of rounds; they sum to 1
    # whether no larger part is a mixture (proven by prices, up to 1e-9), or the search stopped at its limit
    largest: bool


def mixture(pool: Pool, share: Floats) -> Mixture:
    """The largest part of (C,) fractions that is a mixture of configurations."""
    by_slots: list[Booleans] = []
    if (pool.second < 0).all():
        slots = slot_configurations(pool.first, pool.gpu, pool.scale, pool.count, share)
        if slots is not None:
            configurations, weight = slots
            if float((weight @ configurations / share).min()) >= 1 - _ROUNDING:
                return Mixture(1.0, configurations, weight, True)
            by_slots = list(configurations)
    found = list({one.tobytes(): one for one in by_slots + _by_credit(pool, share)}.values())
    known, master = {one.tobytes() for one in found}, _Master(share)
    new, largest = found, False
    while True:
        master.add(new)
        if len(found) * len(share) > _MOST_CELLS:
            weight = master.stopped(2 * len(share))
            part = min(1.0, float((weight @ np.array(found) / share).min()))
            break
        part, weight, price, rent = master.solve()
        if part >= 1 - _NOTHING:
            largest = True
            break
        new = _walk(pool, part * share, price, rent, known)
        new = new or _worth([pool.heaviest(price)], price, rent, known)
        if (pool.second >= 0).any():
            master.interior()
        if not new:
            largest = True
            break
        found += new
    used = weight > _LEAST
    configurations, weight = _without_surplus(np.array(found)[used], weight[used], part * share)
    return Mixture(part, configurations, weight / weight.sum(), largest)


def _without_surplus(configurations: Booleans, weight: Floats, owed: Floats) -> tuple[Booleans, Floats]:
    """The mixture without what runs more than is owed; at most one configuration per column is split in two."""
    rows, weights = list(configurations.copy()), weight.tolist()
    for c, surplus in enumerate((weight @ configurations - owed).tolist()):
        for k in range(len(rows)):
            if surplus <= _LEAST:
                break
            if rows[k][c]:
                if weights[k] > surplus:
                    rows.append(rows[k].copy())
                    weights.append(weights[k] - surplus)
                    weights[k] = surplus
                rows[k][c] = False
                surplus -= weights[k]
    return np.array(rows), np.array(weights)


def _worth(wanted: list[Booleans], price: Floats, rent: float, known: set[bytes]) -> list[Booleans]:
    """New configurations with a value above the price of a round; they are added."""
    new = []
    for one in wanted:
        if price[one].sum() > rent + _NOTHING and one.tobytes() not in known:
            known.add(one.tobytes())
            new.append(one)
    return new


def _by_credit(pool: Pool, share: Floats) -> list[Booleans]:
    """Configurations of rounds in which those run that are owed most, as Gavel schedules rounds; all run in one."""
    credit, found = np.zeros(len(share)), []
    for _ in range(2 * len(share)):
        credit += share
        chosen = max(pool.heavy(credit), key=lambda one: credit[one].sum())
        credit[chosen] -= 1
        found.append(chosen)
    for c in np.flatnonzero(~np.any(found, axis=0)):
        found.append(pool.heavy(np.where(np.arange(len(share)) == c, credit.max() + 1, credit))[0])
    return found


def _walk(pool: Pool, owed: Floats, price: Floats, rent: float, known: set[bytes]) -> list[Booleans]:
    """New configurations on a walk from these prices: what runs becomes cheaper, what waits more expensive.

    These are the steps of a subgradient method, which stays near the best prices; the linear program's own prices are
    one of many corners and lead only there.
    """
    new, step, weight = [], _STEP * price.mean(), price
    for _ in range(_WALK if (pool.second >= 0).any() else 1):
        for _ in owed:
            heavy = pool.heavy(weight)
            new += _worth(heavy, price, rent, known)
            chosen = max(heavy, key=lambda one: weight[one].sum())
            weight = np.maximum(weight + step * (owed - chosen), 0.0)
        if not new:
            break
    return new


class _Master:
    """The largest part that is a mixture of the configurations so far, kept hot."""

    def __init__(self, share: Floats) -> None:
        self._program = GrowingProgram(primal=True)
        self._kept = [self._program.add_row(0.0, np.inf) for _ in share]
        self._whole = self._program.add_row(1.0, 1.0)
        self._part = self._program.add_column(-1.0, 1.0, rows=self._kept, values=(-share).tolist())

    def interior(self) -> None:
        """From now on by the interior point method: thousands of columns come at once."""
        self._program.use_interior()

    def add(self, configurations: list[Booleans]) -> None:
        """More of them."""
        for one in configurations:
            rows = [*np.flatnonzero(one).tolist(), self._whole]
            self._program.add_column(0.0, rows=rows, values=[1.0] * len(rows))

    def stopped(self, iterations: int) -> Floats:
        """(K,) weights that sum to 1, where the simplex method is after so many iterations."""
        found = self._program.solve(max_iterations=iterations)
        if found.values is None:
            raise EngineError(f"mixture: the solver ended as {found.status}; please report this")
        weight = np.maximum(np.delete(found.values, self._part), 0.0)
        return np.asarray(weight / weight.sum())

    def solve(self) -> tuple[float, Floats, Floats, float]:
        """The part, (K,) weights, (C,) prices of running, price of a round."""
        found = self._program.solve()
        if found.values is None or found.duals is None:
            raise EngineError(f"mixture: the solver ended as {found.status}; please report this")
        values = np.delete(found.values, self._part)
        return float(found.values[self._part]), values, found.duals[:-1], -float(found.duals[-1])


def _solved(program: LinearProgram) -> Floats:
    outcome = solve(program, "highs", SolveOptions(threads=1))
    if outcome.status is not Status.OPTIMAL or outcome.values is None:
        raise EngineError(f"{program.name}: the solver ended as {outcome.status}; please report this")
    return outcome.values
