"""The bound that prices of GPUs, jobs and rules prove for a stage of a changed GPU round."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.instances.exact_rationals import rational
from flowlex.validation.certificates.gpu.large_rounds import Large
from flowlex.validation.certificates.statement.stage_proof import StatedLeaf

_WIDE = 2**61
Whole = NDArray[Any]


class Prices:
    """Multipliers of a leaf as integer multiples of a common unit.

    Those of the rows of single tasks (``task``, ``running``) are completed here: each task takes its cheapest GPU at
    the prices of the other rows, which bounds at least as much as any multiplier that a file may state.

    Raises `ValueError`: a multiplier is of a row that does not exist, or has the wrong sign.
    """

    def __init__(self, large: Large, leaf: StatedLeaf, stage: str, before: Mapping[str, Fraction]) -> None:
        self.large = large
        self.size = large.unit if stage == "transfer" else Fraction(1)
        rows = {(n, x): rational(y) / self.size for n, each in leaf.rows.items() for x, y in each.items()}
        earlier = {name: rational(e) / self.size * large.size_of(name) for name, e in leaf.earlier.items()}
        coefficients = [part.coefficient for row in large.rules.rows.values() for part in row.parts]
        parts = math.lcm(1, *(value.denominator for value in coefficients))
        self.whole = parts * math.lcm(1, *(value.denominator for value in (*rows.values(), *earlier.values())))
        jobs, gpus = len(large.cluster.job), len(large.cluster.gpu)
        self.weight = dict.fromkeys(large.names, 0)
        if leaf.own and stage:
            self.weight[stage] = self.whole
        self.fixed = Fraction(0)
        for name, e in earlier.items():
            if name not in before or e > 0:
                raise ValueError(f"a multiplier of stage {name!r}, which comes later or has the wrong sign")
            self.weight[name] -= int(e * self.whole)
            self.fixed += e * self.whole * before[name] / large.size_of(name)
        self.gpu, self.share, self.stays = [0] * gpus, [0] * jobs, [0] * len(large.cluster.names)
        self.own = {name: np.zeros(row.groups, object) for name, row in large.rules.rows.items()}
        for (name, label), y in rows.items():
            if y:
                self._row(name, label, y * self.whole)

    def _row(self, name: str, label: str, y: Fraction) -> None:
        large, cluster = self.large, self.large.cluster
        relation, side = "==", Fraction(0)
        if name in self.own:
            row = large.rules.rows[name]
            a, b, side = row.rhs[label]
            self.own[name][a, b] += y
            relation = row.relation
        elif name == "gpu_out":
            self.gpu[cluster.gpu[label]] += int(y)
            relation, side = "<=", Fraction(1)
        elif name in ("task", "stay") and self._of_task(name, label):
            if name == "task" and y > 0:
                raise ValueError(f"the multiplier of row {name}[{label}] has the wrong sign")
            return
        elif name == "share" and large.policy.fair:
            self.share[cluster.job[label]] += int(y)
        elif name == "keep" and large.policy.preemptive:
            for t in np.flatnonzero(large.held & (cluster.job_of == cluster.job[label])).tolist():
                self.stays[t] += int(y)
            relation, side = ">=", Fraction(large.least[cluster.job[label]])
        elif name == "order" and large.policy.preemptive:
            longer, shorter = self._ordered(label)
            self.stays[longer] += int(y)
            self.stays[shorter] -= int(y)
            relation = ">="
        else:
            raise ValueError(f"a multiplier of row {name}[{label}], which does not exist")
        if (y > 0 and relation == "<=") or (y < 0 and relation == ">="):
            raise ValueError(f"the multiplier of row {name}[{label}] has the wrong sign")
        self.fixed += y * side

    def _of_task(self, name: str, label: str) -> bool:
        """Whether a task has this row."""
        task = self.large.cluster.task.get(label, -1)
        return task >= 0 and (name == "task" or bool(self.large.held[task] and not self.large.policy.preemptive))

    def _ordered(self, label: str) -> tuple[int, int]:
        cluster = self.large.cluster
        for k in (k for k, letter in enumerate(label) if letter == ","):
            first, second = cluster.task.get(label[:k], -1), cluster.task.get(label[k + 1 :], -1)
            both = first >= 0 and second >= 0 and cluster.own[first] >= 0 and cluster.own[second] >= 0
            same = both and cluster.job_of[first] == cluster.job_of[second]
            if same and cluster.elapsed[first] > cluster.elapsed[second]:
                return first, second
        raise ValueError(f"a multiplier of row order[{label}], which does not exist")

    def total(self) -> Fraction:
        """The bound, in the unit of the stage."""
        return (self.fixed + sum(self._tasks()) + sum(self._running()) + sum(self._steps())) / self.whole * self.size

    def _steps(self) -> Iterator[int]:
        for j, most in enumerate(self.large.most if self.large.policy.fair else ()):
            for step in range(1, most + 1):
                yield min(0, self.share[j] - self.weight[f"share_{step}"])

    def _groups(self) -> Whole:
        """(K, P) costs that own rows and own costs add to pairs of a task and a GPU with these codes."""
        large = self.large
        found = np.zeros(large.low.shape, dtype=object)
        for name, row in large.rules.rows.items():
            for part in row.parts:
                _add(found, part.task[large.task_one], part.gpu[large.gpu_one], self.own[name] * -part.coefficient)
        for part in large.rules.costs:
            value = np.array([[int(part.coefficient / large.unit) * self.weight["transfer"]]], dtype=object)
            _add(found, part.task[large.task_one], part.gpu[large.gpu_one], value)
        return np.array([[int(value) for value in row] for row in found.tolist()], dtype=object).reshape(found.shape)

    def _tasks(self) -> Iterator[int]:
        """Least cost of the waiting tasks, each on its best GPU or nowhere."""
        large, cluster, moved = self.large, self.large.cluster, self.weight["transfer"]
        self.groups = groups = self._groups()
        price, rank = np.unique(np.array(self.gpu, dtype=object), return_inverse=True)
        node = cluster.gpu_node if moved else np.zeros_like(cluster.gpu_node)
        _, one = np.unique(np.stack([node, cluster.gpu_memory, large.gpu_code, rank]), axis=1, return_index=True)
        task = np.flatnonzero(large.starts)
        many = np.ones(len(task), np.int64)
        if not moved and len(task):
            key = np.stack([cluster.need[task], cluster.job_of[task], large.task_code[task]])
            _, first, many = np.unique(key, axis=1, return_index=True, return_counts=True)
            task = task[first]
        if not len(task):
            return
        base = np.array([-self.share[j] - self.weight["running"] for j in cluster.job_of[task].tolist()], dtype=object)
        cost = large.table(task, cluster.gpu_node[one]) if moved else np.zeros((1, 1), np.int64)
        waiting = int(large.waiting / large.unit)
        largest = abs(moved) * (int(np.abs(cost).max()) + waiting)
        largest += sum(int(np.abs(part).max()) for part in (base, price, groups))
        kind = np.int64 if largest * (len(cluster.names) + 1) < _WIDE else object
        total = groups.astype(kind)[:, large.gpu_code[one]][large.task_code[task]]
        total += base.astype(kind)[:, None] - price.astype(kind)[rank[one]][None, :]
        if moved:
            total += (cost.astype(kind) - waiting) * moved
        fits = cluster.need[task][:, None] <= cluster.gpu_memory[one][None, :]
        low, high = (each[:, large.gpu_code[one]][large.task_code[task]] for each in (large.low, large.high))
        forced: Whole = np.any((low > 0) & fits, axis=1)
        usable = fits & (high > 0) & ((low > 0) | ~forced[:, None])
        worst = total.max() + 1
        best = np.where(usable, total, worst).min(axis=1)
        best = np.where(forced, best, np.minimum(np.where(best == worst, 0, best), 0))
        yield sum(int(b) * n for b, n in zip(best.tolist(), many.tolist(), strict=True))

    def _running(self) -> Iterator[int]:
        """Least cost of each running task: on its GPU, or stopped if allowed."""
        large, cluster, weight = self.large, self.large.cluster, self.weight
        for t in np.flatnonzero(large.held).tolist():
            g, code = int(cluster.own[t]), (large.task_code[t], large.gpu_code[cluster.own[t]])
            worth = int((large.costs.stop_s[t] + large.waiting) / large.unit) * weight["transfer"]
            total = self.groups[code] - worth - weight["running"] - weight.get("stops", 0)
            total -= self.share[cluster.job_of[t]] + self.gpu[g] + self.stays[t]
            stays = not large.policy.preemptive or large.low[code] > 0
            yield total if stays else min(0, total) if large.high[code] else 0


def _add(found: Whole, task: Whole, gpu: Whole, value: Whole) -> None:
    """Add the values of groups to the pairs of codes that are in them."""
    a, b = np.flatnonzero(task >= 0), np.flatnonzero(gpu >= 0)
    found[np.ix_(a, b)] += value[np.ix_(task[a], gpu[b])]
