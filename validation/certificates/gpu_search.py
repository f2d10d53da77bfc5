"""Proofs of GPU assignment: nothing is fairer, moves less data, or stops fewer tasks.

The proof is a search tree: an inner node splits on a running ``task`` (it and all of its job that run longer are
``kept``; or it and all that run shorter are ``stopped``), so that the leaves cover every answer. A leaf holds

``cuts``
    Where as many run as can: sets of jobs R and of free GPUs X (those of at least ``memory_gb``, and ``gpus``).
    Whatever runs, for every v ::

        sum_j min(n_j, v)  <=  v |J - R|  +  sum_(j in R) kept_j  +  tasks of R that fit a GPU outside X  +  |X|

``gpu_price`` (not negative) and ``job_price``
    With costs ``factor c - keep`` (``keep`` for a running task that goes on, ``factor`` above their sum), whatever runs
    costs at least  ``sum_j price_j n_j - sum_g price_g - sum_t max(0, price_j(t) - min over all fitting g of (cost +
    price_g))``. The cuts that are tight bound ``n_j`` and its sums; with waiting at a price, fair shares do.

A leaf is done when its cuts show that it is less fair, or its prices that it is dearer (or no better).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from flowlex.instances.exact import rational
from flowlex.validation.certificates.certificate import Check
from flowlex.validation.certificates.contract import Strict
from flowlex.validation.certificates.gpu_cluster import Cluster, none
from flowlex.validation.certificates.gpu_costs import Costs, largest_unit
from flowlex.validation.certificates.gpu_shares import Limits, fair_limits
from flowlex.validation.certificates.numbers import whole

__all__ = ["GpuProof", "SearchProof"]


class GpuProof(Strict):
    """See the module; empty where no optimum is claimed."""

    unit_s: str = "1"
    factor: int = 1
    base: int = 1
    keep: dict[str, int] = Field(default_factory=dict)
    shares: dict[str, str] = Field(default_factory=dict)
    search: dict[str, Any] | None = None


@dataclass(eq=False)
class SearchProof:
    """The search tree against the answer; ``priced`` where tasks may wait at a price.

    With a ``bound`` it need only show that nothing is fairer, and nothing as fair costs less than that.
    """

    cluster: Cluster
    costs: Costs
    proof: GpuProof
    policy: str
    objective: Fraction
    priced: bool
    bound: Fraction | None = None

    def checks(self) -> list[Check]:
        cluster, proof, running = self.cluster, self.proof, self.cluster.own >= 0
        on = cluster.at >= 0
        self.sorted: list[Any] = sorted(cluster.counts(on).tolist())
        self.reached: NDArray[np.int64] = np.array(self.sorted, dtype=np.int64)
        wrong = [name for name in proof.keep if name not in cluster.task]
        keep = _by_position({} if wrong else proof.keep, cluster.task)
        # A task that goes on counts more than all that could start; where their number is given, starts do not count.
        steps = int(np.count_nonzero(~running)) + 1 if self.priced else 1
        kept = running if self.policy == "FSP" else np.zeros(len(running), bool)
        sound = proof.factor >= 1 and proof.base >= 1 and all(k >= proof.base * steps for k in keep[kept].tolist())
        unit = rational(proof.unit_s)
        checks = [
            none("weights of tasks of this instance", wrong),
            Check(
                "weights put transfer before stops",
                sound and not keep[~kept].any() and unit > 0,
                detail=f"factor {proof.factor}, base {proof.base}, unit {proof.unit_s}",
            ),
        ]
        self.limits: Limits | None = None
        if self.priced:
            shares, self.limits = fair_limits(cluster, self.policy, proof.shares)
            checks += shares
        if not all(check.ok for check in checks):
            return checks
        # Everything in one unit: true costs and the prices, which are in units of ``unit_s / factor``.
        common = largest_unit([self.costs.unit, unit])
        self.start: int
        self.price_unit: int
        self.price_unit, self.start = int(unit / common), proof.base if self.priced else 0
        self.waiting: int
        self.keep, self.waiting = keep, int(self.costs.waiting_s / common) * proof.factor
        self.ways = self.costs.ways(common, proof.factor)
        score = int(np.count_nonzero(on & kept)) * steps + int(np.count_nonzero(on & ~running)) * self.priced
        # An answer with a lesser objective, or the same and a better score, would cost no more than this.
        better = min(proof.factor, proof.base * (score + 1) * self.price_unit)
        self.limit: int = proof.factor * int(self.objective / common) - better
        if self.bound is not None:  # costs are whole: what exceeds the unit before the bound reaches it
            self.limit = math.floor(proof.factor * (self.bound / common - 1))
        self.leaves = 0
        nobody = np.zeros(len(cluster.names), bool)
        failed = self._node(proof.search, running if self.policy != "FSP" else nobody, nobody)
        said = failed or self._said()
        name = "nothing is fairer, moves less or stops less"
        if self.bound is not None:
            name = "nothing is fairer, or as fair and below the bound"
        return [*checks, Check(name, not failed, detail=said)]

    def _said(self) -> str:
        return f"{self.leaves} part{'s' if self.leaves > 1 else ''} of the search"

    def _node(self, root: Any, kept: NDArray[np.bool_], stopped: NDArray[np.bool_]) -> str:
        """Reason why the part is not shown to be no better; empty when it is."""
        cluster, stack = self.cluster, [(root, kept, stopped)]
        while stack:
            node, kept, stopped = stack.pop()
            if not isinstance(node, dict):
                return f"a part is {node!s:.40}"
            if node.keys() not in ({"task", "kept", "stopped"}, {"cuts", "gpu_price", "job_price"}):
                return f"a part holds {', '.join(node):.60}"
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
        low, high = self._between(kept, candidate)
        job = self._prices(leaf["job_price"], cluster.job)
        gpu = self._prices(leaf["gpu_price"], cluster.gpu)
        if job is None or gpu is None or (gpu < 0).any():
            return "prices of what is not there, or of GPUs below zero"
        if self.limits is not None:
            each = [price - self.waiting for price in job.tolist()]
            least = self.limits.least(each, low.tolist(), high.tolist())
            rest = self.waiting * len(cluster.names)
        else:
            found = self._fair(leaf, kept, candidate, free, low, high)
            if isinstance(found, str):
                return found
            least = _least(job.tolist(), *found)
            rest = 0 if self.policy == "FSU" else self.waiting * (len(cluster.names) - sum(self.sorted))
        if least is None:
            return ""  # no answer of this part is as fair as ours
        bound = least + rest - sum(gpu[free].tolist()) - sum(self.keep[kept].tolist()) * self.price_unit
        bound -= sum(price * int(n) for price, n in zip(job.tolist(), cluster.counts(kept).tolist(), strict=True))
        bound -= self._claims(candidate, free, gpu, job)
        if bound <= self.limit:
            return f"a part may cost {float(Fraction(self.limit - bound, self.proof.factor)):.6g} cost units less"
        return ""

    def _fair(
        self,
        leaf: dict[str, Any],
        kept: NDArray[np.bool_],
        candidate: NDArray[np.bool_],
        free: NDArray[np.bool_],
        low: Any,
        high: Any,
    ) -> str | tuple[list[int], list[int], list[tuple[NDArray[np.bool_], int]]]:
        """What the cuts say of answers as fair as ours; or why there may be a fairer one (empty: none is as fair)."""
        cluster = self.cluster
        cuts = [self._cut(cut, kept, candidate, free) for cut in leaf["cuts"]]
        if self.policy == "FSU":
            total = min((c for _, slope, c in cuts if not slope), default=None)
            if total is None or total > sum(self.sorted):
                return f"a part may run {total} tasks, here {sum(self.sorted)} run"
            if total < sum(self.sorted):
                return ""
            return low.tolist(), high.tolist(), [(np.ones(len(cluster.job), bool), total)]
        fairness = self._fairness(cuts)
        if fairness is not None:
            return fairness
        low, high, sums = self._tight(cuts, low, high)
        return low.tolist(), high.tolist(), sums

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
        return bool(bound < int(np.minimum(self.reached, v).sum()))

    def _tight(self, cuts: Any, low: Any, high: Any) -> tuple[Any, Any, list[tuple[NDArray[np.bool_], int]]]:
        """What the cuts say of answers as fair as ours: limits of each job, and sums over sets of jobs."""
        low, high, sums = low.copy(), high.copy(), []
        for v in sorted({w for n in self.sorted for w in (n, n + 1)}):
            most = int(np.minimum(self.reached, v).sum())
            for inside, slope, constant in cuts:
                if slope * v + constant == most:
                    low[~inside] = np.maximum(low[~inside], v)
                    high[inside] = np.minimum(high[inside], v)
                    sums.append((inside, most - slope * v))
        return low, high, sums

    def _prices(self, stated: dict[str, int], names: dict[str, int]) -> Any:
        """Prices in the common unit; None when one is of nothing in the instance."""
        if stated.keys() - names.keys():
            return None
        return _by_position({name: price * self.price_unit for name, price in stated.items()}, names)

    def _claims(self, candidate: NDArray[np.bool_], free: NDArray[np.bool_], gpu: Any, job: Any) -> int:
        """Sum over tasks of what their job's price exceeds the cheapest way to run them, over all GPUs that fit."""
        cluster = self.cluster
        worth = job[cluster.job_of]
        mine = np.flatnonzero(candidate & (cluster.own >= 0))
        earned = worth[mine] + self.keep[mine].astype(object) * self.price_unit - gpu[cluster.own[mine]]
        total = sum(int(price) for price in earned.tolist() if price > 0)
        if not free.any():
            return total
        fits = cluster.need <= cluster.gpu_memory[free].max()
        waiting = np.flatnonzero(candidate & (cluster.own < 0) & fits)
        gpus = cluster.gpu_node[free], cluster.gpu_memory[free], gpu[free]
        way = self.ways.cheapest(waiting, cluster.need, gpus)
        earned = worth[waiting].astype(object) - way + self.start * self.price_unit
        return total + sum(int(price) for price in earned.tolist() if price > 0)


def _by_position(stated: dict[str, int], number: dict[str, int]) -> NDArray[Any]:
    """Whole numbers in the order of the names, 0 where none is stated."""
    values = whole(stated.values())
    found: NDArray[Any] = np.zeros(len(number), values.dtype)
    found[[number[name] for name in stated]] = values
    return found


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
