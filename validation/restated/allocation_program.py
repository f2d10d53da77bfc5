"""Allocation of GPU time stated again from the instance alone: who may run where, rows and objectives of each policy.

Columns: ``share[job, partner, gpu_type]``, the fraction of time that a job (without a partner: alone) spends on a type;
``rise``, how far the gains of all jobs rise together; for changes ``runs[job, gpu_type]``, the time of a job on a type.

Rows: ``time`` of each job and ``gpus`` of each type; ``most`` and ``least`` of each limit; ``deadline``: steps/s that
are owed; ``level``: the gain of a job is at least the rises times its paces.

Objectives: ``objective``, the rise, total steps/s or cost. Where levels rise one after the other (`FILLING`), the
answer states which jobs are full after each step. Then there is a rise for each step; ``rise_k`` is maximised, and
``full_k``, the sum of the gains of the jobs that step k fills: at its optimum, none of them can gain more.

Finish-time fairness asks of a ratio whether any allocation has a lower one: the gain of a job is its steps/s relative
to what the ratio needs, and the rise is at most 1.

Coefficients are computed in floats, and rows hold to a tolerance.
Source: Narayanan et al. (OSDI 2020), sections 3 to 5.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.block_labels import label_text
from flowlex.instances.allocation import AllocationInstance, Limit
from flowlex.instances.exact_rationals import rational
from flowlex.validation.proofs.exact_program import Exact, ExactProgram, Labels
from flowlex.validation.proofs.program_builder import ProgramBuilder

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Relative tolerance of rows and optima.
TOLERANCE = 1e-6
#: Policies that raise the levels of jobs one after the other.
FILLING = ("water_filling", "hierarchical")
#: Policies whose objective is a sum.
TOTALS = ("max_throughput", "min_cost")
#: Policies that minimise their objective.
LEAST = ("makespan", "min_cost", "finish_time")
#: Number of pairs of jobs in one array.
_CHUNK = 2**19


class Cluster:
    """Data of an instance under its options, read from its fields. Sizes: n jobs, J GPU types."""

    def __init__(self, instance: AllocationInstance, options: Mapping[str, Any]) -> None:
        self.instance, self.options = instance, options
        self.policy = str(options.get("policy", "max_min"))
        self.job = {job.name: m for m, job in enumerate(instance.jobs)}
        self.gpu = {t.name: j for j, t in enumerate(instance.gpu_types)}
        self._kinds = {kind.name: k for k, kind in enumerate(instance.job_types)}
        self.count = np.array([t.count for t in instance.gpu_types], np.float64)
        self.price = np.array([t.usd_per_hour for t in instance.gpu_types], np.float64)
        self.kind: Ints = np.array([self._kinds[job.job_type] for job in instance.jobs], np.int64)
        self.scale = np.array([kind.gpus for kind in instance.job_types], np.float64)[self.kind]
        self.weight = np.array([job.weight for job in instance.jobs], np.float64)
        self.steps = np.array([job.steps_left or np.nan for job in instance.jobs])
        table = np.zeros((len(instance.job_types), len(self.gpu)))
        for k, kind in enumerate(instance.job_types):
            for name, speed in kind.steps_per_s.items():
                if kind.gpus <= self.count[self.gpu[name]]:
                    table[k, self.gpu[name]] = speed
        #: (n, J) steps/s alone.
        self.speed: Floats = table[self.kind]

    @cached_property
    def pairs(self) -> tuple[Ints, Floats]:
        """The sorted pairs that may share GPUs: (P, 3) two job types and GPU type, (P, 2) both speeds."""
        instance, place = self.instance, self._kinds
        if not self.options.get("sharing", True):
            return np.zeros((0, 3), np.int64), np.zeros((0, 2))
        listed = [(*(place[name] for name in p.job_types), self.gpu[p.gpu_type]) for p in instance.pairs]
        keys = [np.array(listed, np.int64).reshape(-1, 3)]
        speeds = [np.array([p.steps_per_s for p in instance.pairs], np.float64).reshape(-1, 2)]
        for table in instance.pair_tables:
            of = np.array([place[name] for name in table.job_types], np.int64)
            beside = np.fromiter(chain.from_iterable(table.steps_per_s), np.float64).reshape(len(of), len(of))
            row, column = np.nonzero(np.triu((beside > 0) | (beside.T > 0)))
            keys.append(np.column_stack([of[row], of[column], np.full(len(row), self.gpu[table.gpu_type])]))
            speeds.append(np.column_stack([beside[row, column], beside[column, row]]))
        key, speed = np.concatenate(keys), np.concatenate(speeds)
        needed = np.array([kind.gpus for kind in instance.job_types])
        kept = np.flatnonzero((speed > 0).any(axis=1) & (needed[key[:, 0]] <= self.count[key[:, 2]]))
        kept = kept[np.argsort(self._number(*key[kept].T), kind="stable")]
        return key[kept], speed[kept]

    def _number(self, a: Any, b: Any, j: Any) -> Any:
        return (a * len(self.instance.job_types) + b) * len(self.gpu) + j

    @cached_property
    def _numbers(self) -> Ints:
        return np.asarray(self._number(*self.pairs[0].T))

    def together(self, one: Ints, two: Ints, gpu: Ints) -> tuple[Ints, Ints, Ints]:
        """Jobs that may share GPUs of a type, in the order of their pair, and its number; -1 if they may not."""
        first, second, pair = one.copy(), two.copy(), np.full(len(one), -1)
        for a, b in ((two, one), (one, two)):
            number = self._number(self.kind[a], self.kind[b], gpu)
            at = np.searchsorted(self._numbers, number)
            at[at == len(self._numbers)] = -1
            found = (at >= 0) & (self._numbers[at] == number) if len(self._numbers) else np.zeros(len(at), bool)
            first[found], second[found], pair[found] = a[found], b[found], at[found]
        return first, second, pair

    @cached_property
    def pair_count(self) -> int:
        """Number of pairs of jobs by GPU type, at most."""
        size = np.bincount(self.kind, minlength=len(self._kinds))
        return int((size[self.pairs[0][:, 0]] * size[self.pairs[0][:, 1]]).sum())

    def every_pair(self) -> Iterator[tuple[Ints, Ints, Ints]]:
        """First and second job of all pairs, and their number in ``pairs``, in chunks."""
        key = self.pairs[0]
        order, size = np.argsort(self.kind, kind="stable"), np.bincount(self.kind, minlength=len(self._kinds))
        begin, many = np.cumsum(size) - size, size[key[:, 0]] * size[key[:, 1]]
        ends = np.searchsorted(np.cumsum(many), np.arange(_CHUNK, many.sum(), _CHUNK))
        for part in np.split(np.arange(len(key)), ends):
            pair = np.repeat(part, many[part])
            at = np.arange(len(pair)) - np.repeat(np.cumsum(many[part]) - many[part], many[part])
            others = size[key[pair, 1]]
            one, two = order[begin[key[pair, 0]] + at // others], order[begin[key[pair, 1]] + at % others]
            kept = (key[pair, 0] != key[pair, 1]) | (one < two)
            yield one[kept], two[kept], pair[kept]

    @cached_property
    def equal(self) -> Floats:
        """(n,) steps/s if time is split in proportion to the GPUs of each type."""
        return np.asarray((self.speed * self.count).sum(axis=1) / self.count.sum())

    @cached_property
    def owed(self) -> dict[int, float]:
        """Steps/s that deadlines require, by job."""
        kept = self.options.get("deadlines")
        if not (self.policy in TOTALS if kept is None else kept):
            return {}
        return {
            m: float(rational(job.steps_left) / rational(job.deadline_s))
            for m, job in enumerate(self.instance.jobs)
            if job.deadline_s is not None and job.steps_left is not None
        }

    def counts(self, limit: Limit) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """(n,) jobs and (J,) GPU types to which a limit applies."""
        jobs = [limit.job in (None, job.name) and limit.entity in (None, job.entity) for job in self.instance.jobs]
        return np.array(jobs), np.array([limit.gpu_type in (None, name) for name in self.gpu])

    @cached_property
    def limits(self) -> list[tuple[Limit, NDArray[np.bool_], NDArray[np.bool_]]]:
        """The limits with the jobs and GPU types to which they apply."""
        return [(limit, *self.counts(limit)) for limit in self.instance.limits]

    @cached_property
    def best(self) -> Floats:
        """(n,) the most steps/s of a job, alone or beside another."""
        together = np.zeros(len(self._kinds))
        np.maximum.at(together, self.pairs[0][:, :2], self.pairs[1])
        return np.asarray(np.maximum(self.speed.max(axis=1), together[self.kind]))

    @cached_property
    def shortest(self) -> float:
        """Seconds that the longest job needs alone on its fastest type: no makespan is shorter."""
        return float((self.steps / self.speed.max(axis=1)).max())

    @cached_property
    def isolation(self) -> tuple[Floats, Floats]:
        """(n,) seconds that each job has run, and in isolation: those so far, and the rest at an equal share."""
        share = np.where(self.speed > 0, self.count / len(self.job) / self.scale[:, None], 0.0)
        share = share / np.maximum(1.0, share.sum(axis=1, keepdims=True))
        jobs = self.instance.jobs
        alone = np.array([job.isolated_s for job in jobs]) + self.steps / (share * self.speed).sum(axis=1)
        return np.array([job.running_s for job in jobs]), alone

    def ratios(self, throughput: Floats) -> Floats:
        """(n,) finish times divided by those in isolation."""
        run, alone = self.isolation
        with np.errstate(divide="ignore"):
            return np.asarray((run + self.steps / throughput) / alone)

    def needed(self, ratio: float) -> Floats:
        """(n,) steps/s at which each job has a ratio; infinite if none suffices."""
        run, alone = self.isolation
        room = ratio * alone - run
        with np.errstate(divide="ignore", over="ignore"):
            return np.where(room > 0, self.steps / np.where(room > 0, room, 1.0), np.inf)

    def units(self, ratio: float | None = None) -> Floats | None:
        """(n,) gain of each job per step/s; None if gains are time. ``ratio``: of finish-time fairness."""
        if self.policy == "makespan":
            return self.shortest / self.steps
        if self.policy == "finish_time" and ratio is not None:
            return 1 / self.needed(ratio)
        return None if not self.options.get("aware", True) else 1 / self.equal

    def paces(self, full: set[int]) -> Floats:
        """(n,) pace of each job's gain, 0 for full ones.

        Weight by GPUs; by entities, a job's part of its entity's weight among the jobs that can rise.
        """
        pace = np.zeros(len(self.job))
        rising = [(m, job) for m, job in enumerate(self.instance.jobs) if m not in full]
        if self.policy != "hierarchical":
            for m, job in rising:
                pace[m] = job.weight / self.scale[m] if self.policy in ("max_min", "water_filling") else 1.0
            return pace
        entities = {entity.name: entity for entity in self.instance.entities}
        groups: dict[str | None, list[int]] = {}
        for m, job in rising:
            groups.setdefault(job.entity, []).append(m)
        for owner, members in groups.items():
            if owner is None:
                pace[members] = self.weight[members] / self.scale[members]
            elif entities[owner].inside == "fifo":
                pace[members[0]] = entities[owner].weight / self.scale[members[0]]
            else:
                part = self.weight[members] / self.weight[members].sum()
                pace[members] = entities[owner].weight * part / self.scale[members]
        return pace


@dataclass(frozen=True, eq=False)
class Runs:
    """What may run, C columns: (C,) jobs (second: -1 alone) and GPU type, (C, 2) steps/s of both."""

    first: Ints
    second: Ints
    gpu: Ints
    speed: Floats

    @classmethod
    def of(cls, cluster: Cluster, pairs: Iterable[tuple[Ints, Ints, Ints]]) -> Runs:
        """All jobs alone, then pairs, each once; the earlier job of the instance is the first."""
        job, gpu = np.nonzero(cluster.speed)
        none = np.zeros(0, np.int64)
        one, two, pair = map(np.concatenate, zip((none,) * 3, *pairs, strict=True))
        _, once = np.unique((pair * len(cluster.job) + one) * len(cluster.job) + two, return_index=True)
        one, two, pair = one[once], two[once], pair[once]
        turned, speed = one > two, cluster.pairs[1][pair]
        return cls(
            np.concatenate([job, np.where(turned, two, one)]),
            np.concatenate([np.full(len(job), -1), np.where(turned, one, two)]),
            np.concatenate([gpu, cluster.pairs[0][pair, 2]]),
            np.concatenate(
                [
                    np.column_stack([cluster.speed[job, gpu], np.zeros(len(job))]),
                    np.where(turned[:, None], speed[:, ::-1], speed),
                ]
            ),
        )

    @cached_property
    def places(self) -> dict[tuple[int, int, int], int]:
        """Column of each combination."""
        keys = zip(self.first.tolist(), self.second.tolist(), self.gpu.tolist(), strict=True)
        return {key: c for c, key in enumerate(keys)}

    def by_job(self, coefficient: Floats) -> tuple[Ints, Ints, Floats]:
        """Rows, columns and values of sums over the columns of each job, from (C, 2) coefficients of both jobs."""
        pair = np.flatnonzero(self.second >= 0)
        columns = np.concatenate([np.arange(len(self.first)), pair])
        values = np.concatenate([coefficient[:, 0], coefficient[pair, 1]])
        return np.concatenate([self.first, self.second[pair]]), columns, values


@dataclass(frozen=True, eq=False)
class Policy:
    """The rises of a policy: gains per step/s (None: time), and for each step the (n,) paces and the jobs it fills."""

    units: Floats | None
    paces: Sequence[Floats]
    full: Sequence[Sequence[int]]

    @property
    def last(self) -> dict[int, int]:
        """The step that fills a job."""
        return {m: k for k, members in enumerate(self.full) for m in members}


class Restated:
    """The problem of a cluster over some columns; ``steps``: the jobs that each step fills, of `FILLING`."""

    def __init__(
        self,
        cluster: Cluster,
        runs: Runs,
        steps: Sequence[Sequence[int]] | None = None,
        ratio: float | None = None,
        *,
        changes: bool = False,
    ) -> None:
        self.cluster, self.runs, self.steps, self.changes = cluster, runs, steps, changes
        full: set[int] = set()
        paces = []
        for members in steps or ((),):
            paces.append(cluster.paces(full))
            full.update(members)
        self.rising = Policy(cluster.units(ratio), paces, steps or ())

    @cached_property
    def program(self) -> ExactProgram:
        """All columns, rows and objectives."""
        cluster, runs, to = self.cluster, self.runs, ProgramBuilder()
        keys, every = ("job", "partner", "gpu_type"), np.arange(len(runs.first))
        to.columns("share", self._levels, len(every), keys=keys, integer=False)
        jobs, types = list(cluster.job), list(cluster.gpu)
        row, column, speed = runs.by_job(runs.speed)
        held = cluster.scale[runs.first]
        to.rows("time", "<=", jobs, 1, (row, column, 1))
        to.rows("gpus", "<=", types, cluster.count, (runs.gpu, every, held))
        counted = [self._counted(members, on) for _, members, on in cluster.limits]
        for name, relation in (("most", "<="), ("least", ">=")):
            sides = [getattr(limit, f"{name}_gpus") for limit, _, _ in cluster.limits]
            chosen = [k for k, side in enumerate(sides) if (side is not None if name == "most" else side > 0)]
            of = np.repeat(np.arange(len(chosen)), [len(counted[k]) for k in chosen])
            mine = np.concatenate([np.zeros(0, np.int64), *(counted[k] for k in chosen)])
            most = np.array([sides[k] for k in chosen], np.float64)
            to.rows(name, relation, [*map(str, chosen)], most, (of, mine, held[mine]))
        due = np.full(len(jobs), -1)
        due[list(cluster.owed)] = np.arange(len(cluster.owed))
        late = np.flatnonzero(due[row] >= 0)
        owed = np.array(list(cluster.owed.values()), np.float64)
        terms = due[row[late]], column[late], speed[late]
        to.rows("deadline", ">=", [jobs[m] for m in cluster.owed], owed, terms)
        if self.changes:
            self._time_on_types(to)
        self._objectives(to, speed, column, held)
        return to.program(TOLERANCE)

    def _levels(self) -> list[Labels]:
        jobs, types, runs = self.cluster.instance.jobs, list(self.cluster.gpu), self.runs
        found: list[Labels] = []
        for a, b, j in zip(runs.first.tolist(), runs.second.tolist(), runs.gpu.tolist(), strict=True):
            partner, owner = jobs[b].name if b >= 0 else "", jobs[a].entity or ""
            found.append({"job": jobs[a].name, "partner": partner, "gpu_type": types[j], "entity": owner})
        return found

    def _counted(self, members: NDArray[np.bool_], on: NDArray[np.bool_]) -> Ints:
        """Columns that count against a limit; a pair counts once."""
        runs = self.runs
        mine = members[runs.first] | ((runs.second >= 0) & members[runs.second])
        return np.flatnonzero(mine & on[runs.gpu])

    def _time_on_types(self, to: ProgramBuilder) -> None:
        """``runs``, and the rows that tie it to the shares."""
        jobs, types = self.cluster.instance.jobs, list(self.cluster.gpu)
        row, column, _ = self.runs.by_job(self.runs.speed)
        keys, at = np.unique(row * len(types) + self.runs.gpu[column], return_inverse=True)
        labels: list[Labels] = [
            {"job": jobs[m].name, "gpu_type": types[j], "entity": jobs[m].entity or ""}
            for m, j in (divmod(key, len(types)) for key in keys.tolist())
        ]
        k = np.arange(len(keys))
        own = to.columns("runs", labels, keys=("job", "gpu_type"), integer=False) + k
        texts = [label_text((each["job"], each["gpu_type"])) for each in labels]
        to.rows("runs", "==", texts, 0, (at, column, 1), (k, own, -1))

    def _objectives(self, to: ProgramBuilder, speed: Floats, column: Ints, held: Floats) -> None:
        policy, cluster, every = self.cluster.policy, self.cluster, np.arange(len(self.runs.first))
        if policy == "max_throughput":
            total = np.bincount(column, speed, len(every)).astype(np.float64)
            to.objective("objective", (every, total), maximize=True)
            return
        if policy == "min_cost":
            to.objective("objective", (every, held * cluster.price[self.runs.gpu]))
            return
        rising, jobs = self.rising, list(cluster.job)
        steps, start = len(rising.paces), to.count
        gain = np.ones((len(every), 2))
        if rising.units is not None:
            pair = self.runs.second
            gain = self.runs.speed * np.column_stack([rising.units[self.runs.first], rising.units[pair]])
        row, column, value = self.runs.by_job(gain)
        last = np.array([rising.last.get(m, steps - 1) for m in range(len(jobs))])
        own = [np.flatnonzero((pace > 0) & (last >= k)) for k, pace in enumerate(rising.paces)]
        paces = [(each, np.full(len(each), start + k), -rising.paces[k][each]) for k, each in enumerate(own)]
        to.rows("level", ">=", jobs, 0, (row, column, value), *paces)
        highest = np.zeros(len(jobs))
        np.maximum.at(highest, row, value)
        most = np.zeros(steps)
        for k, pace in enumerate(rising.paces):
            moved = pace > 0
            if not own[k].size:
                raise ValueError(f"step {k + 1} raises no job")
            most[k] = 2 * float((highest[moved] / pace[moved]).max())
        labels: list[Labels] = [{}] if self.steps is None else [{"step": k + 1} for k in range(steps)]
        to.columns("rise", labels, upper=most, integer=False)
        if self.steps is None:
            to.objective("objective", {start: 1}, maximize=True)
            return
        by_step = np.array([rising.last.get(m, -1) for m in range(len(jobs))])[row]
        for k in range(steps):
            mine = np.flatnonzero(by_step == k)
            to.objective(f"rise_{k + 1}", {start + k: 1}, maximize=True)
            to.objective(f"full_{k + 1}", (column[mine], value[mine]), maximize=True)

    def values(self, shares: Mapping[tuple[int, int, int], float]) -> Exact:
        """Values of all columns of an answer: its shares, and how far its gains rise in each step."""
        x = np.zeros(self.program.count)
        for key, fraction in shares.items():
            x[self.runs.places[key]] = fraction
        if self.cluster.policy not in TOTALS:
            level, rising, start = self.program.rows["level"], self.rising, len(x) - len(self.rising.paces)
            reached = np.bincount(level.row, Exact(level.value, level.unit).floats * x[level.column], level.count)
            last = np.array([rising.last.get(m, len(rising.paces)) for m in range(level.count)])
            for k, pace in enumerate(rising.paces):
                own = np.flatnonzero((pace > 0) & (last >= k))
                x[start + k] = max(float((reached[own] / pace[own]).min(initial=np.inf)), 0.0)
                reached[own] -= pace[own] * x[start + k]
        return Exact.of_floats(x)
