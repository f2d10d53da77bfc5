r"""Pricing of pairs of jobs: find pairs with a positive reduced value without enumerating all pairs.

Measured (benchmark *allocation*): 4096 jobs with own weights and 10 million pairs need 28 223 columns and 6.3 s; 1024
jobs with own throughputs 1.8 s, 1.3 times plain column generation without a certificate.

With duals of time u, of GPUs p and of gains y, a pair of jobs a and b on type j has the reduced value

    v_a + v_b - s p_j,    v_m = (y_m g_m + d_m) T_m - u_m - s q_m    (g: gain per step/s, d: deadline, q: limits of m)

so the best partner of a job in a pair of job types is the best job of the other type. All computations are sums over
*halves*: a job on one side of a pair of job types on a GPU type. With K job types there are n K J halves, but n n J
pairs. A limit of an entity counts the GPUs of a pair once, even if both jobs belong to the entity; such a pair gets the
second count back. So the best partner is searched twice: among jobs of the same entity and among all others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from flowlex.formulations.coefficient_scaling import scale_program
from flowlex.formulations.column_generation import Priced, generate_columns
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.program_arrays import Booleans, Floats, Integers
from flowlex.formulations.solver_outcome import EngineError, Outcome, SolveOptions, Status
from flowlex.instances.allocation import AllocationInstance
from flowlex.models.allocation.allocation_linear_program import Base, JobColumns
from flowlex.models.allocation.policies import Goal

#: Columns added per job and round.
_FEW = 3
#: Smallest reduced value of a pair to add, relative to the largest dual value.
_EARNS = 1e-10


@dataclass(frozen=True, eq=False)
class _Side:
    """Halves of one side of all P pairs of job types, sorted by pair, then by the E owners; ``group`` codes both."""

    pair: Integers
    group: Integers
    job: Integers
    speed: Floats
    many: Integers
    grouped: Integers

    @classmethod
    def of(cls, kind: Integers, owner: Integers, owners: int, kinds: Integers, speed: Floats) -> _Side:
        order = np.lexsort((owner, kind))
        types = int(max(kind.max(), kinds.max(initial=0))) + 1
        sizes = np.bincount(kind * owners + owner, minlength=types * owners).reshape(types, owners)
        size = sizes.sum(axis=1)
        begin, many = np.cumsum(size) - size, size[kinds]
        pair = np.repeat(np.arange(len(kinds)), many)
        inside = np.arange(len(pair)) - (np.cumsum(many) - many)[pair]
        job = order[begin[kinds][pair] + inside]
        return cls(pair, pair * owners + owner[job], job, speed[pair], many, sizes[kinds].ravel())

    def best(self, value: Floats) -> tuple[Floats, Integers]:
        """Return the best value of each group and its half, (P E,); minus infinity and -1 for empty groups."""
        most, which = np.full(len(self.grouped), -np.inf), np.full(len(self.grouped), -1)
        some = self.grouped > 0
        if len(value):
            most[some] = np.maximum.reduceat(value, (np.cumsum(self.grouped) - self.grouped)[some])
            hit = np.flatnonzero(value == most[self.group])
            which[self.group[hit[::-1]]] = hit[::-1]
        return most, which

    def among(self, pairs: Booleans, value: Floats) -> tuple[Any, Any, Integers]:
        """Rank the halves of some pairs of job types by value: job and value, padded with -1 and minus infinity."""
        of = np.flatnonzero(pairs[self.pair])
        of = of[np.lexsort((-value[of], self.pair[of]))]
        row = np.cumsum(pairs)[self.pair[of]] - 1
        rank = np.arange(len(of)) - np.searchsorted(row, row)
        shape = (int(pairs.sum()), int(self.many[pairs].max(initial=0)))
        job, ranked = np.full(shape, -1), np.full(shape, -np.inf)
        job[row, rank], ranked[row, rank] = self.job[of], value[of]
        return job, ranked, self.many[pairs]


def _elsewhere(most: Floats, which: Integers, owners: int) -> tuple[Floats, Integers]:
    """Return for each group, (P E,), the best value and its half among the other groups of the same pair."""
    if owners == 1:
        return np.full_like(most, -np.inf), np.full_like(which, -1)
    value, half = most.reshape(-1, owners), which.reshape(-1, owners)
    order = np.argsort(-value, axis=1, kind="stable")[:, :2]
    taken = np.where(np.arange(owners) == order[:, :1], order[:, 1:], order[:, :1])
    return np.take_along_axis(value, taken, 1).ravel(), np.take_along_axis(half, taken, 1).ravel()


class PairPrices:
    """All pairs of an instance, for pricing; a job may represent ``many`` identical jobs."""

    def __init__(self, instance: AllocationInstance, *, sharing: bool = True, many: Integers | None = None) -> None:
        view = instance.arrays
        self.many: Integers = np.ones(len(view.kind), np.int64) if many is None else many
        self.instance: AllocationInstance
        self.instance, self.view = instance, view
        kinds, speed = view.pair_kind[: None if sharing else 0], view.pair_speed[: None if sharing else 0]
        self.gpu: Integers = view.pair_gpu[: len(kinds)]
        named = {limit.entity for limit in instance.limits if limit.entity is not None}
        limited = [e for e, entity in enumerate(instance.entities) if entity.name in named]
        self.owners: int = len(limited) + 1  # the last: entities without a limit
        owner = np.full(len(instance.entities) + 1, len(limited))
        owner[limited] = np.arange(len(limited))
        self.owner: Integers = owner[view.entity]
        self.other: _Side
        self.one, self.other = (
            _Side.of(view.kind, self.owner, self.owners, kinds[:, side], speed[:, side]) for side in (0, 1)
        )
        self.same_type: Booleans = kinds[:, 0] == kinds[:, 1]
        #: Whether every pair of job types consists of two different types with one job each; halves are then pairs.
        self.unique: bool = bool(
            (self.one.many == 1).all() and (self.other.many == 1).all() and not self.same_type.any()
        )
        scale = np.zeros(int(max(view.kind.max(), view.pair_kind.max(initial=0))) + 1, np.int64)
        scale[view.kind] = view.scale
        self.scale: Integers = scale[kinds[:, 0]]
        self._index = [job.name for job in instance.jobs], [t.name for t in instance.gpu_types]
        self._entities = [instance.entities[e].name for e in limited]

    @property
    def count(self) -> int:
        """Number of pairs."""
        both = np.where(self.same_type, self.one.many * (self.one.many - 1) // 2, self.one.many * self.other.many)
        return int(both.sum())

    def _rent(self, prices: dict[str, Floats], goal: Goal) -> tuple[Floats, Floats, Floats]:
        """Return costs of a GPU: for any job (J,), in addition per job (n, J), and the part of its owner (E, J)."""
        jobs, types = self._index
        rent = prices["gpus"] if goal.cost is None else prices["gpus"] + goal.cost
        own = np.zeros((len(jobs), len(types)))
        rent, shared = rent.copy(), np.zeros((self.owners, len(types)))
        for k, limit in enumerate(self.instance.limits):
            on = slice(None) if limit.gpu_type is None else types.index(limit.gpu_type)
            price = prices["most"][k] - prices["least"][k]
            if limit.entity is not None:
                shared[self._entities.index(limit.entity), on] += price
            elif limit.job is None:
                rent[on] += price
            else:
                own[jobs.index(limit.job), on] += price
        return rent, own + shared[self.owner], shared

    def all_rows(self, prices: Mapping[str, Floats]) -> dict[str, Floats]:
        """Extend duals to all possible rows, by job, type and limit, with 0 for rows that do not exist."""
        limits, n, found = self.instance.limits, len(self.view.kind), dict(prices)
        rows: dict[str, tuple[int, Any]] = {
            "most": (len(limits), [k for k, limit in enumerate(limits) if limit.most_gpus is not None]),
            "least": (len(limits), [k for k, limit in enumerate(limits) if limit.least_gpus > 0]),
            "deadline": (n, np.flatnonzero(np.isfinite(self.view.deadline))),
            "level": (n, slice(None)),
        }
        for name, (size, places) in rows.items():
            spread = np.zeros(size)
            if name in found:
                spread[places] = found[name]
            found[name] = spread
        return found

    def bound(self, prices: dict[str, Floats], goal: Goal) -> tuple[float, Floats]:
        """Return the upper bound on the objective from nonnegative duals, and the duals of time that it needs, (n,).

        ``prices``: duals by name of rows: ``level`` and ``deadline`` (n,), ``gpus`` (J,), ``most`` and ``least`` by
        limit, and optionally ``time`` (n,).
        """
        time = self._halves(prices, goal)[0]
        return self._value(prices, goal, time), time

    def look(self, prices: dict[str, Floats], goal: Goal) -> tuple[float, JobColumns]:
        """Return the upper bound from the duals, and the pairs to add as columns."""
        time, a, b, charge, earned, back, partner = self._halves(prices, goal)
        size = max(float(prices["level"].max(initial=0.0)), float(np.abs(time).max(initial=0.0)), 1e-300)
        live = np.zeros(len(charge), bool)
        half = np.flatnonzero(earned > _EARNS * size)
        live[self.one.pair[half]] = True
        best = self.one.job[half], self.other.job[partner[half]], self.one.pair[half], earned[half]
        return self._value(prices, goal, time), self._worth(live, a, b, charge, back, best, _EARNS * size)

    def _halves(
        self, prices: dict[str, Floats], goal: Goal
    ) -> tuple[Floats, Floats, Floats, Floats, Floats, Floats, Integers]:
        """Evaluate all halves: feasible duals of time (n,); values of the halves of both sides; GPU cost of a pair;
        best reduced value of each half of the first side with a partner, at the given duals; refund of pairs of one
        owner (P, E); and that best partner.
        """
        view, n = self.view, len(self.view.kind)
        level = prices["level"]
        pull = prices["deadline"] + goal.speed + (0.0 if goal.unit is None else level * goal.unit)
        flat = level if goal.unit is None and goal.pace is not None else np.zeros(n)
        rent, own, shared = self._rent(prices, goal)
        alone = pull[:, None] * view.speed + flat[:, None] - view.scale[:, None] * (rent + own)
        time = np.maximum(prices.get("time", 0.0), np.where(view.speed > 0, alone, 0.0).max(axis=1))
        worth, one, other = flat - time, self.one, self.other
        a, b = (
            pull[s.job] * s.speed + worth[s.job] - self.scale[s.pair] * own[s.job, self.gpu[s.pair]]
            for s in (one, other)
        )
        charge, back = self.scale * rent[self.gpu], self.scale[:, None] * shared[:, self.gpu].T
        over = np.zeros(n)
        if self.unique:
            together = self.owner[one.job] == self.owner[other.job]
            earned = a + b - charge + np.where(together, back[one.pair, self.owner[one.job]], 0.0)
            np.maximum.at(over, one.job, earned)
            return time + over, a, b, charge, earned, back, one.pair
        best, at = other.best(b)
        rest = b.copy()
        rest[at[at >= 0]] = -np.inf
        best_rest, at_rest = other.best(rest)  # if the best partner is the job itself
        near = at[one.group]
        itself = (near >= 0) & (other.job[near] == one.job) & (self.many[one.job] == 1) if len(b) else near > 0
        with_own = np.where(itself, best_rest[one.group], best[one.group]) + back.ravel()[one.group]
        near = np.where(itself, at_rest[one.group], near)
        best, at = _elsewhere(best, at, self.owners)
        with_others, far = best[one.group], at[one.group]
        earned = a + np.maximum(with_own, with_others) - charge[one.pair]
        np.maximum.at(over, one.job, earned)
        return time + over, a, b, charge, earned, back, np.where(with_own >= with_others, near, far)

    def _value(self, prices: dict[str, Floats], goal: Goal, time: Floats) -> float:
        view, limits = self.view, self.instance.limits
        most = np.array([limit.most_gpus or 0.0 for limit in limits])
        least = np.array([limit.least_gpus for limit in limits])
        owed = np.where(prices["deadline"] > 0, self.many * view.steps / view.deadline, 0.0)
        value = prices["gpus"] @ view.count + time @ self.many + prices["most"] @ most
        value -= prices["least"] @ least + prices["deadline"] @ owed
        if goal.pace is None:
            return float(value)
        lifted = prices["level"] @ goal.pace
        before = 0.0 if goal.level is None else prices["level"] @ goal.level
        return float((value - before) / lifted) if lifted > 0 else np.inf

    def _worth(
        self, live: Booleans, a: Floats, b: Floats, charge: Floats, back: Floats, best: Any, least: float
    ) -> JobColumns:
        """Select columns: each job with its best partner and, for larger job types, pairs by rank; a few per job."""
        found, single = [best], self.many == 1
        if not self.unique:
            found += self._by_rank(live, a, b, charge, back)
        first, second, pair, value = (np.concatenate(column) for column in zip(*found, strict=True))
        good = np.flatnonzero((value > least) & ((first != second) | ~single[first]))
        good = good[np.lexsort((-value[good], first[good]))]
        good = good[np.arange(len(good)) - np.searchsorted(first[good], first[good]) < _FEW]
        first, second, pair = first[good], second[good], pair[good]
        turned = self.same_type[pair] & (first > second)
        first, second = np.where(turned, second, first), np.where(turned, first, second)
        n = len(self.view.kind)
        key = np.unique((pair * n + first) * n + second)
        pair = key // (n * n)
        return JobColumns(key // n % n, key % n, self.view.pair_gpu[pair], self.view.pair_speed[pair])

    def _by_rank(
        self, live: Booleans, a: Floats, b: Floats, charge: Floats, back: Floats
    ) -> list[tuple[Integers, Integers, Integers, Floats]]:
        """Pair the jobs of two types by rank (first with first and so on), and each job with the first."""
        job_a, rank_a, many_a = self.one.among(live, a)
        job_b, rank_b, many_b = self.other.among(live, b)
        pairs, same_type = np.flatnonzero(live), self.same_type[live]
        found: list[tuple[Integers, Integers, Integers, Floats]] = []
        single = self.many == 1
        for shift, (jobs, values, partners, worth, many, mine) in (
            (False, (job_a, rank_a, job_b, rank_b, many_b, np.ones(len(pairs), bool))),
            (True, (job_b, rank_b, job_a, rank_a, many_a, ~same_type)),
        ):
            row, rank = np.nonzero((jobs >= 0) & mine[:, None])
            for to in (rank % np.maximum(many[row], 1), np.zeros_like(rank)):
                to = np.where(same_type[row] & (to == rank) & single[jobs[row, rank]], rank ^ 1, to)
                fits = to < many[row]
                r, k, t = row[fits], rank[fits], to[fits]
                first, second = (partners[r, t], jobs[r, k]) if shift else (jobs[r, k], partners[r, t])
                together = np.where(self.owner[first] == self.owner[second], back[pairs[r], self.owner[first]], 0.0)
                found.append((first, second, pairs[r], values[r, k] + worth[r, t] - charge[pairs[r]] + together))
        return found


class PricedMaster:
    """Restricted master: the shared constraints over jobs alone and the pairs added so far.

    ``build`` returns the constraints over given columns.
    """

    def __init__(
        self, pairs: PairPrices, base: Base, build: Callable[[JobColumns], Base], options: SolveOptions
    ) -> None:
        self.base: Base
        self.pairs, self.base, self._build, self._options = pairs, base, build, options
        self.rounds = 0

    def solve(self, make: Callable[[Base], LinearProgram], goal: Goal) -> tuple[Outcome, LinearProgram]:
        """Solve by column generation; return the outcome and the program over all columns so far."""
        program = make(self.base)
        scaled, scales = scale_program(program, ("rise",) if "rise" in program.variable_blocks else ())
        joined = [self.base.columns]

        def price(duals: Floats) -> Priced:
            rows = program.split_rows(np.abs(duals) * scales.row / scales.objective)
            prices = self.pairs.all_rows(rows)
            bound, found = self.pairs.look(prices, goal)
            new = _unknown(joined[0], found)
            joined[0] = JobColumns.joined([joined[0], new])
            arrays = make(self._build(new)).arrays()
            matrix = arrays.matrix.tocsc()[:, : new.count]
            matrix.data = matrix.data * scales.row[matrix.indices]
            return Priced(arrays.cost[: new.count] * scales.objective, matrix, bound * scales.objective)

        before, options = self.base, self._options
        given: Any = {"time_limit_s": options.time_limit_s, "seed": options.seed, "log": options.log}
        got = generate_columns(scaled.arrays(), price, **given)
        self.rounds += got.rounds
        if got.status is Status.TIME_LIMIT:
            raise EngineError("a linear program stopped at its limit; raise time_limit_s or max_steps")
        if joined[0].count > before.columns.count:
            self.base = self._build(joined[0])
        last = make(self.base)
        if got.status is not Status.OPTIMAL:
            return Outcome(got.status, "highs"), last
        first, many, rest = before.columns.count, self.base.columns.count - before.columns.count, program.column_count
        added = np.zeros(many)
        added[: len(got.values) - rest] = got.values[rest:]  # columns of the last round were not added
        values = np.concatenate([got.values[:first], added, got.values[first:rest]])
        about: Any = {"algorithm": "columns", "iterations": got.rounds, "values": values, "duals": got.duals}
        found = Outcome(Status.OPTIMAL, "highs", got.objective, got.bound, **about)
        kept = np.concatenate([np.ones(first + many), scales.column[first:]])
        return replace(scales, column=kept).restored(found), last


def _unknown(known: JobColumns, found: JobColumns) -> JobColumns:
    """Return the pairs that are new; within the solver's tolerance, pricing may return known pairs."""

    def key(columns: JobColumns) -> Integers:
        most = int(max(known.first.max(initial=0), known.second.max(initial=0), found.second.max(initial=0))) + 2
        types = int(max(known.gpu.max(initial=0), found.gpu.max(initial=0))) + 1
        return np.asarray((columns.first * most + columns.second + 1) * types + columns.gpu)

    new = ~np.isin(key(found), key(known))
    return JobColumns(found.first[new], found.second[new], found.gpu[new], found.speed[new])
