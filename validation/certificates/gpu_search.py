"""Proofs of GPU assignment: nothing is fairer, moves less data, or stops fewer tasks.

The proof is a search tree: an inner node splits on a running ``task`` (it and all of its job that run longer are
``kept``; or it and all that run shorter are ``stopped``), so that the leaves cover every answer. A leaf holds

``cuts``
    Sets of jobs R and of free GPUs X (those of at least ``memory_gb``, and ``gpus``). Whatever runs, for every v ::

        sum_j min(n_j, v)  <=  v |J - R|  +  sum_(j in R) kept_j  +  tasks of R that fit a GPU outside X  +  |X|

``gpu_price`` (not negative) and ``job_price``
    With costs ``factor c - keep`` (``keep`` for a running task that goes on, ``factor`` above their sum), whatever runs
    costs at least  ``sum_j price_j n_j - sum_g price_g - sum_t max(0, price_j(t) - min over all fitting g of (cost +
    price_g))``. The cuts that are tight bound ``n_j`` and its sums.

A leaf is done when its cuts show that it is less fair, or its prices that it is dearer (or no better).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from flowlex.instances.gpu import GpuInstance
from flowlex.validation.certificates.certificate import Check
from flowlex.validation.certificates.contract import Strict
from flowlex.validation.certificates.gpu_costs import Costs
from flowlex.validation.certificates.numbers import exact, whole

__all__ = ["Cluster", "GpuProof", "SearchProof", "none"]


class GpuProof(Strict):
    """See the module; empty where no optimum is claimed."""

    unit_s: str = "1"
    factor: int = 1
    base: int = 1
    keep: dict[str, int] = Field(default_factory=dict)
    search: dict[str, Any] | None = None


class Cluster:
    """The instance as columns in its own order, and the answer placed in them."""

    def __init__(self, instance: GpuInstance, placements: dict[str, str]) -> None:
        gpus = [(gpu, node) for node in instance.nodes for gpu in node.gpus]
        tasks = [(task, j) for j, job in enumerate(instance.jobs) for task in job.tasks]
        self.gpu = {gpu.name: g for g, (gpu, _) in enumerate(gpus)}
        self.task = {task.name: t for t, (task, _) in enumerate(tasks)}
        self.job = {job.name: j for j, job in enumerate(instance.jobs)}
        self.gpu_memory = np.array([gpu.memory_gb for gpu, _ in gpus])
        node = {n.name: i for i, n in enumerate(instance.nodes)}
        self.gpu_node = np.array([node[n.name] for _, n in gpus])
        self.need = np.array([task.memory_gb for task, _ in tasks])
        self.job_of = np.array([j for _, j in tasks])
        self.own = np.array([-1 if t.running is None else self.gpu[t.running.gpu] for t, _ in tasks])
        self.elapsed = np.array([0.0 if t.running is None else t.running.elapsed_s for t, _ in tasks])
        self.names = list(self.task)
        self.at = np.full(len(tasks), -1)
        self.strange = [f"{t} on {g}" for t, g in placements.items() if t not in self.task or g not in self.gpu]
        if not self.strange:
            for t, g in placements.items():
                self.at[self.task[t]] = self.gpu[g]

    def counts(self, chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
        return np.bincount(self.job_of[chosen], minlength=len(self.job))


def none(name: str, offenders: list[str]) -> Check:
    return Check(name, not offenders, len(offenders), ", ".join(offenders[:3]))


@dataclass(eq=False)
class SearchProof:
    """The search tree against the answer."""

    cluster: Cluster
    costs: Costs
    proof: GpuProof
    policy: str
    transfer: Fraction

    def checks(self) -> list[Check]:
        cluster, proof = self.cluster, self.proof
        count = cluster.counts(cluster.at >= 0)
        self.sorted = sorted(count.tolist())
        keep = np.zeros(len(cluster.names), dtype=object)
        keep[:] = [proof.keep.get(name, 0) for name in cluster.names]
        running = cluster.own >= 0
        wrong = [name for name in proof.keep if name not in cluster.task]
        preemptive = self.policy == "FSP" and running.any()
        if preemptive:
            extra = [int(k) - proof.base for k in keep[running].tolist()]
            fair = proof.base > sum(extra) and min(extra) >= 0 and proof.factor > sum(keep.tolist())
        else:
            fair = proof.factor >= 1 and not proof.keep
        checks = [
            none("weights of tasks of this instance", wrong),
            Check("weights put transfer before stops", bool(fair), detail=f"factor {proof.factor}, base {proof.base}"),
        ]
        # Everything in one unit: true costs and the prices, which are in units of ``unit_s / factor``.
        unit = exact(proof.unit_s)
        if unit <= 0:
            return [*checks, Check("a positive unit of cost", False, detail=proof.unit_s)]
        common = self.costs.common(unit)
        self.price_unit, self.factor, self.keep = int(unit / common), proof.factor, keep
        self.cost = self.costs.dense(common)
        kept_now = int(np.count_nonzero(running & (cluster.at >= 0)))
        # An answer with less transfer, or as much and fewer stops, would cost no more than this.
        self.limit = proof.factor * int(self.transfer / common) - proof.base * (kept_now + 1) * self.price_unit
        self.leaves = 0
        nobody = np.zeros(len(cluster.names), bool)
        kept = running if self.policy != "FSP" else nobody
        failed = "" if not wrong and fair else "not looked at"
        failed = failed or self._node(proof.search, kept, nobody)
        return [
            *checks,
            Check("nothing is fairer, moves less or stops less", not failed, detail=failed or self._said()),
        ]

    def _said(self) -> str:
        return f"{self.leaves} part{'s' if self.leaves > 1 else ''} of the search"

    def _node(self, root: Any, kept: NDArray[np.bool_], stopped: NDArray[np.bool_]) -> str:
        """Reason why the part is not shown to be no better; empty when it is."""
        cluster, stack = self.cluster, [(root, kept, stopped)]
        while stack:
            node, kept, stopped = stack.pop()
            if not isinstance(node, dict):
                return f"a part is {node!s:.40}"
            if "task" in node:
                t = cluster.task.get(node["task"], -1)
                if t < 0 or cluster.own[t] < 0 or self.policy != "FSP":
                    return f"{node['task']!r} cannot be stopped"
                same = (cluster.own >= 0) & (cluster.job_of == cluster.job_of[t])
                longer, shorter = (
                    (same & (cluster.elapsed > cluster.elapsed[t])),
                    (same & (cluster.elapsed < cluster.elapsed[t])),
                )
                longer[t] = shorter[t] = True
                stack += [(node["kept"], kept | longer, stopped), (node["stopped"], kept, stopped | shorter)]
                continue
            if (kept & stopped).any():
                continue  # nothing can be both
            self.leaves += 1
            reason = self._leaf(node, kept, stopped)
            if reason:
                return reason
        return ""

    def _leaf(self, leaf: dict[str, Any], kept: NDArray[np.bool_], stopped: NDArray[np.bool_]) -> str:
        cluster = self.cluster
        free = np.ones(len(cluster.gpu), bool)
        free[cluster.own[kept]] = False
        candidate = ~kept & ~stopped
        cuts = [self._cut(cut, kept, candidate, free) for cut in leaf["cuts"]]
        if self.policy == "FSU":
            total = min((c for _, slope, c in cuts if not slope), default=None)
            if total is None or total > sum(self.sorted):
                return f"a part may run {total} tasks, here {sum(self.sorted)} run"
            if total < sum(self.sorted):
                return ""
            low, high, sums = *self._between(kept, candidate), [(np.ones(len(cluster.job), bool), total)]
        else:
            fairness = self._fairness(cuts)
            if fairness is not None:
                return fairness
            low, high, sums = self._tight(cuts, *self._between(kept, candidate))
        return self._priced(leaf, candidate, kept, free, low, high, sums)

    def _between(self, kept: NDArray[np.bool_], candidate: NDArray[np.bool_]) -> tuple[Any, Any]:
        low = self.cluster.counts(kept)
        return low, low + self.cluster.counts(candidate)

    def _cut(
        self, cut: dict[str, Any], kept: NDArray[np.bool_], candidate: NDArray[np.bool_], free: NDArray[np.bool_]
    ) -> tuple[NDArray[np.bool_], int, int]:
        """Jobs R, slope and constant of the bound on ``sum min(n, v)`` that a cut gives."""
        cluster = self.cluster
        inside = np.zeros(len(cluster.job), bool)
        inside[[cluster.job[name] for name in cut["jobs"]]] = True
        least = np.inf if cut["memory_gb"] is None else float(cut["memory_gb"])
        taken = cluster.gpu_memory >= least
        taken[[cluster.gpu[name] for name in cut["gpus"]]] = True
        taken &= free
        outside = free & ~taken
        largest = float(cluster.gpu_memory[outside].max(initial=-1.0))
        fits = np.where(cluster.own >= 0, outside[cluster.own], cluster.need <= largest)
        mine = inside[cluster.job_of]
        constant = np.count_nonzero(kept & mine) + np.count_nonzero(candidate & mine & fits) + np.count_nonzero(taken)
        return inside, int(np.count_nonzero(~inside)), int(constant)

    def _fairness(self, cuts: list[tuple[NDArray[np.bool_], int, int]]) -> str | None:
        """None when answers of this part may be as fair as ours but not fairer; empty when none is as fair."""
        ours, jobs = self.sorted, len(self.sorted)
        before = 0
        for i, n in enumerate(ours):
            if i + 1 == jobs or ours[i + 1] > n:
                v = n + 1
                bound = min((slope * v + constant for _, slope, constant in cuts), default=jobs * v)
                if bound >= before + (jobs - i) * v:
                    if self._less_fair(cuts, i):
                        return ""
                    return f"a part may raise job number {i + 1} of the poorest above {n}"
                if self._less_fair(cuts, i):
                    return ""
            before += n
        return None

    def _less_fair(self, cuts: list[tuple[NDArray[np.bool_], int, int]], i: int) -> bool:
        """Whether no answer of this part has our first ``i + 1`` counts (given that none exceeds those before)."""
        v = self.sorted[i]
        bound = min((slope * v + constant for _, slope, constant in cuts), default=len(self.sorted) * v)
        return bool(bound < sum(min(n, v) for n in self.sorted))

    def _tight(self, cuts: Any, low: Any, high: Any) -> tuple[Any, Any, list[tuple[NDArray[np.bool_], int]]]:
        """What the cuts say of answers as fair as ours: limits of each job, and sums over sets of jobs."""
        low, high, sums = low.copy(), high.copy(), []
        for v in sorted({w for n in self.sorted for w in (n, n + 1)}):
            most = sum(min(n, v) for n in self.sorted)
            for inside, slope, constant in cuts:
                if slope * v + constant == most:
                    low[~inside] = np.maximum(low[~inside], v)
                    high[inside] = np.minimum(high[inside], v)
                    sums.append((inside, most - slope * v))
        return low, high, sums

    def _priced(
        self,
        leaf: dict[str, Any],
        candidate: NDArray[np.bool_],
        kept: NDArray[np.bool_],
        free: NDArray[np.bool_],
        low: Any,
        high: Any,
        sums: list[tuple[NDArray[np.bool_], int]],
    ) -> str:
        cluster = self.cluster
        scale = self.price_unit
        gpu = whole(leaf["gpu_price"].get(name, 0) * scale for name in cluster.gpu)
        job = whole(leaf["job_price"].get(name, 0) * scale for name in cluster.job)
        strange = [*(leaf["gpu_price"].keys() - cluster.gpu.keys()), *(leaf["job_price"].keys() - cluster.job.keys())]
        if strange or (gpu < 0).any():
            return f"prices of {strange[:1] or 'GPUs below zero'}"
        least = _least(job.tolist(), low.tolist(), high.tolist(), sums)
        if least is None:
            return ""  # no answer of this part is as fair as ours
        bound = least - sum(gpu[free].tolist()) - int(self.keep[kept].sum() if kept.any() else 0) * scale
        bound -= sum(price * int(n) for price, n in zip(job.tolist(), cluster.counts(kept).tolist(), strict=True))
        bound -= self._claims(candidate, free, gpu, job)
        if bound <= self.limit:
            return f"a part may cost {float(Fraction(self.limit - bound, self.factor)):.6g} cost units less"
        return ""

    def _claims(self, candidate: NDArray[np.bool_], free: NDArray[np.bool_], gpu: Any, job: Any) -> int:
        """Sum over tasks of what their job's price exceeds the cheapest way to run them, over all GPUs that fit."""
        cluster, total = self.cluster, 0
        mine = np.flatnonzero(candidate & (cluster.own >= 0))
        for t in mine.tolist():
            price = int(job[cluster.job_of[t]]) + int(self.keep[t]) * self.price_unit - int(gpu[cluster.own[t]])
            total += max(0, price)
        waiting = np.flatnonzero(candidate & (cluster.own < 0))
        # On a node only the cheapest GPU of each memory or more matters: take classes from large to small.
        for need in np.unique(cluster.need[waiting]).tolist():
            tasks = waiting[cluster.need[waiting] == need]
            large = np.flatnonzero(free & (cluster.gpu_memory >= need))
            if not len(large):
                continue
            order = np.argsort(cluster.gpu_node[large], kind="stable")
            node, first = np.unique(cluster.gpu_node[large][order], return_index=True)
            cheapest = np.minimum.reduceat(gpu[large][order], first)
            for part in np.array_split(tasks, max(1, len(tasks) * len(node) // 2_000_000)):
                way = (self.cost[part][:, node] * self.factor + cheapest).min(axis=1)
                total += sum(np.maximum(job[cluster.job_of[part]] - way, 0).tolist())
        return total


def _least(price: list[int], low: list[int], high: list[int], sums: list[tuple[NDArray[np.bool_], int]]) -> int | None:
    """Least of ``sum price n`` for low <= n <= high with given sums over nested sets; None when there is no n."""
    nested = sorted(sums, key=lambda part: int(np.count_nonzero(part[0])))
    total, done, before = 0, np.zeros(len(price), bool), 0
    for inside, value in nested:
        if not (done <= inside).all():
            continue  # not nested: leaving it out only weakens the bound
        members = np.flatnonzero(inside & ~done).tolist()
        found = _fill(price, low, high, members, value - before)
        if found is None:
            return None
        total, done, before = total + found, inside, value
    for j in np.flatnonzero(~done).tolist():
        if low[j] > high[j]:
            return None
        total += price[j] * (low[j] if price[j] > 0 else high[j])
    return total


def _fill(price: list[int], low: list[int], high: list[int], members: list[int], units: int) -> int | None:
    left = units - sum(low[j] for j in members)
    if left < 0 or any(low[j] > high[j] for j in members) or left > sum(high[j] - low[j] for j in members):
        return None
    total = sum(price[j] * low[j] for j in members)
    for j in sorted(members, key=lambda j: price[j]):
        more = min(left, high[j] - low[j])
        total, left = total + price[j] * more, left - more
    return total
