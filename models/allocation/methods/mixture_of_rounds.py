r"""Decompose fractions of time into a convex combination of configurations: sets of jobs that run in the same round.

A *configuration* M is a set of columns that can run in one round: each job at most once, within the GPUs of each type.
Rounds can realise fractions X only if they are a convex combination of configurations,

    X = sum_k lambda_k M_k,   sum_k lambda_k = 1,   lambda >= 0,

and the time and GPU constraints do not imply this: with 3 GPUs, two jobs of 2 GPUs each can run 3/4 of the time as
fractions, but never in the same round. So we maximise theta <= 1 such that theta X is a convex combination. If all jobs
have the same scale and none are paired, the constraints are those of a bipartite b-matching with integral vertices, and
theta is 1 (Birkhoff). Configurations without pairs come first from slots
(`~.methods.slot_configurations`), then from rounds that run the jobs furthest behind, and then from column generation.
Pricing is first a greedy heuristic, at the duals of the master and on subgradient steps from them.
If it fails, an integer program finds the configuration with the best reduced cost; if no configuration improves, theta
is proven optimal. A subset of a configuration is a configuration, so the master may cover more than X and the surplus
is removed at the end. This keeps the duals nonnegative and more stable.
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
from flowlex.models.allocation.methods.slot_configurations import slot_configurations

#: Tolerance for fractions and slacks: the accuracy of a linear program.
_NOTHING = 1e-9
#: Tolerance for theta = 1: the accuracy of two linear programs in sequence.
_ROUNDING = 1e-7
#: Weights below this are dropped.
_LEAST = 1e-12
#: Subgradient steps per column (1 if no jobs are paired), and their length relative to the mean dual value.
_WALK, _STEP = 8, 0.1
#: The search ends if configurations times columns exceed this: solving the master then takes minutes, so it stops
#: early.
_MOST_CELLS = 6_000_000


@dataclass(frozen=True, eq=False)
class Pool:
    """Columns that may run, and the resources they use. Sizes: C columns, n jobs, J GPU types."""

    # (C,) jobs (``second`` is -1 for a job alone) and GPU type
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
        """Return a configuration of maximum weight, (C,); columns without positive weight do not run."""
        program = self._program.with_upper("runs", (weight > 0).astype(float))
        program.maximize((program.variable("runs") * np.maximum(weight, 0.0)).sum())
        return np.asarray(_solved(program) > 0.5)

    def heavy(self, weight: Floats) -> list[Booleans]:
        """Greedy heuristic: three configurations, columns in order of weight over GPUs to the power 0, 1/2 and 1."""
        found = []
        useful = np.flatnonzero(weight > 0)
        first, second, gpu, scale = (each[useful].tolist() for each in (self.first, self.second, self.gpu, self.scale))
        for power in (0.0, 0.5, 1.0):
            free, busy, chosen = self.count.tolist(), bytearray(self.jobs + 1), []
            for c in np.argsort(-weight[useful] / self.scale[useful] ** power, kind="stable").tolist():
                a, b, j = first[c], second[c], gpu[c]  # b = -1 is the last entry, which is always 0
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
    """``part * share`` as a convex combination of configurations."""

    part: float  # theta: 1 if rounds can realise the fractions, else the largest value found
    configurations: Booleans  # (K, C) columns that run
    weight: Floats  # (K,) fraction of rounds; they sum to 1
    # whether ``part`` is optimal (proven by duals, up to 1e-9); False if the search stopped at its limit
    largest: bool


def mixture(pool: Pool, share: Floats) -> Mixture:
    """Maximise the part of the fractions, (C,), that is a convex combination of configurations."""
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
    """Remove what runs beyond the fractions; splits at most one configuration in two per column."""
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
    """Return the new configurations with positive reduced value, and add them to ``known``."""
    new = []
    for one in wanted:
        if price[one].sum() > rent + _NOTHING and one.tobytes() not in known:
            known.add(one.tobytes())
            new.append(one)
    return new


def _by_credit(pool: Pool, share: Floats) -> list[Booleans]:
    """Return configurations of simulated rounds by credit, as in Gavel; every column runs in at least one."""
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
    """Return new configurations from subgradient steps that start at these duals: weights of running columns fall.

    The subgradient method stays near optimal duals. The duals of the linear program are only one of many vertices, and
    give configurations only for that vertex.
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
    """The master program over the configurations so far, re-solved from its last basis."""

    def __init__(self, share: Floats) -> None:
        self._program = GrowingProgram(primal=True)
        self._kept = [self._program.add_row(0.0, np.inf) for _ in share]
        self._whole = self._program.add_row(1.0, 1.0)
        self._part = self._program.add_column(-1.0, 1.0, rows=self._kept, values=(-share).tolist())

    def interior(self) -> None:
        """Switch to the interior point method, for thousands of new columns at once."""
        self._program.use_interior()

    def add(self, configurations: list[Booleans]) -> None:
        """Add configurations as columns."""
        for one in configurations:
            rows = [*np.flatnonzero(one).tolist(), self._whole]
            self._program.add_column(0.0, rows=rows, values=[1.0] * len(rows))

    def stopped(self, iterations: int) -> Floats:
        """Return the weights, (K,), after a limited number of simplex iterations, normalised to sum 1."""
        found = self._program.solve(max_iterations=iterations)
        if found.values is None:
            raise EngineError(f"mixture: the solver ended as {found.status}; please report this")
        weight = np.maximum(np.delete(found.values, self._part), 0.0)
        return np.asarray(weight / weight.sum())

    def solve(self) -> tuple[float, Floats, Floats, float]:
        """Solve the master: theta, weights (K,), duals of the columns' rows (C,) and of the convexity row."""
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
