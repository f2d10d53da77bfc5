"""Proofs of GPU assignment: no answer is fairer, transfers less or stops fewer tasks.

The proof is a search tree: an inner node splits on a running ``task`` (it and all of its job that run longer are
``kept``; or it and all that run shorter are ``stopped``), so that the leaves cover every answer. A leaf holds

``shares``
    Fair shares of the jobs within the leaf, kept tasks included. They determine the sorted numbers of tasks in its
    fairest answers, and the number of each job up to odd GPUs (see `fair_shares`). With FSU only the total number of
    tasks matters.
``gpu_price`` (not negative) and ``job_price``
    With costs ``factor c - keep`` (``keep`` for a running task that continues, ``factor`` above their sum), an answer
    costs at least  ``sum_j price_j n_j - sum_g price_g - sum_t max(0, price_j(t) - min over all fitting g of (cost +
    price_g))``. Shares bound ``n_j``.

A leaf is proven if its shares show that it is less fair, or its prices that it is no better.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from flowlex.instances.exact_rationals import rational
from flowlex.validation.certificates.certificate import Check
from flowlex.validation.certificates.exact_numbers import whole
from flowlex.validation.certificates.gpu.cluster_columns import Cluster, none
from flowlex.validation.certificates.gpu.fair_shares import Limits, Mask, fair_limits, most_tasks
from flowlex.validation.certificates.gpu.preemption import Stops
from flowlex.validation.certificates.gpu.transfer_costs import Costs
from flowlex.validation.certificates.proof_time_budget import Budget
from flowlex.validation.certificates.verifier_interface import Strict
from flowlex.validation.restated.gpu import PolicyRules, common_unit


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
    """Check a search tree against the answer; ``priced`` if tasks may wait at a price.

    With a ``bound`` the tree need only show that no answer is fairer, and none as fair costs less than the bound.
    """

    cluster: Cluster
    costs: Costs
    proof: GpuProof
    policy: PolicyRules
    stops: Stops
    objective: Fraction
    priced: bool
    budget: Budget
    bound: Fraction | None = None

    def checks(self) -> list[Check]:
        cluster, proof, running = self.cluster, self.proof, self.cluster.own >= 0
        on = cluster.at >= 0
        self.sorted: list[Any] = sorted(cluster.counts(on).tolist())
        wrong = [name for name in proof.keep if name not in cluster.task]
        keep = _by_position({} if wrong else proof.keep, cluster.task)
        # A task that continues counts more than all possible starts; starts do not count if their number is fixed.
        steps = int(np.count_nonzero(~running)) + 1 if self.priced else 1
        kept = running if self.policy.preemptive else np.zeros(len(running), bool)
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
            sure = self.stops.kept(np.zeros(len(running), bool), np.zeros(len(running), bool))
            found = "" if sure is None else self._limits(proof.shares, sure, self.stops.startable | (running & ~sure))
            self.limits = None if isinstance(found, str) else found
            wrong = [found] if isinstance(found, str) else found.exceeded(cluster.counts(on).tolist())
            checks.append(none("shares are fair, and no job runs more than its share", wrong))
        if not all(check.ok for check in checks):
            return checks
        # Everything in one unit: true costs and the prices, which are in units of ``unit_s / factor``.
        common = common_unit([self.costs.unit_s, unit])
        self.start: int
        self.price_unit: int
        self.price_unit, self.start = int(unit / common), proof.base if self.priced else 0
        self.waiting: int
        self.keep, self.waiting = keep, int(self.costs.waiting_s / common) * proof.factor
        self.stop: list[int] = [int(seconds / common) * proof.factor if seconds else 0 for seconds in self.costs.stop_s]
        self.ways = self.costs.ways(common, proof.factor)
        score = int(np.count_nonzero(on & kept)) * steps + int(np.count_nonzero(on & ~running)) * self.priced
        # An answer with a smaller objective, or the same objective and a better score, would cost no more than this.
        better = min(proof.factor, proof.base * (score + 1) * self.price_unit)
        self.limit: int = proof.factor * int(self.objective / common) - better
        if self.bound is not None:  # costs are integers: above bound - 1 unit is at least the bound
            self.limit = math.floor(proof.factor * (self.bound / common - 1))
        self.leaves = 0
        nobody = np.zeros(len(cluster.names), bool)
        failed = self._node(proof.search, nobody, nobody)
        said = failed or self._said()
        name = "optimal: no answer is fairer, transfers less or preempts less"
        if self.bound is not None:
            name = "bound: no answer is fairer, or as fair and below it"
        if self.budget.spent and not failed:
            return [*checks, self.budget.quoted(name)]
        return [*checks, Check(name, not failed, detail=said)]

    def _said(self) -> str:
        return f"{self.leaves} part{'s' if self.leaves > 1 else ''} of the search"

    def _node(self, root: Any, kept: NDArray[np.bool_], stopped: NDArray[np.bool_]) -> str:
        """Why the part may hold a better answer; empty if it is proven that it does not."""
        cluster, stack = self.cluster, [(root, kept, stopped)]
        while stack and not self.budget.spent:
            node, kept, stopped = stack.pop()
            if not isinstance(node, dict):
                return f"a part is {node!s:.40}"
            if node.keys() not in ({"task", "kept", "stopped"}, {"shares", "gpu_price", "job_price"}):
                return f"a part holds {', '.join(node):.60}"
            if "task" in node:
                t = cluster.task.get(node["task"], -1)
                if t < 0 or cluster.own[t] < 0 or not self.policy.preemptive:
                    return f"{node['task']!r} cannot be stopped"
                same = (cluster.own >= 0) & (cluster.job_of == cluster.job_of[t])
                longer, shorter = (
                    (same & (cluster.elapsed > cluster.elapsed[t])),
                    (same & (cluster.elapsed < cluster.elapsed[t])),
                )
                longer[t] = shorter[t] = True
                stack += [(node["kept"], kept | longer, stopped), (node["stopped"], kept, stopped | shorter)]
                continue
            sure = None if (kept & stopped).any() else self.stops.kept(kept, stopped)
            if sure is None:
                continue  # no answer satisfies the rule
            self.leaves += 1
            reason = self._leaf(node, sure, stopped)
            if reason:
                return reason
        return ""

    def _leaf(self, leaf: dict[str, Any], kept: NDArray[np.bool_], stopped: NDArray[np.bool_]) -> str:
        cluster = self.cluster
        free = np.ones(len(cluster.gpu), bool)
        free[cluster.own[kept]] = False
        candidate = self.stops.startable | ((cluster.own >= 0) & ~kept & ~stopped)
        job = self._prices(leaf["job_price"], cluster.job)
        gpu = self._prices(leaf["gpu_price"], cluster.gpu)
        if job is None or gpu is None or (gpu < 0).any():
            return "prices of what is not there, or of GPUs below zero"
        least, rest = self._numbers(leaf, kept, candidate, job.tolist())
        if isinstance(least, str):
            return least
        if least is None:
            return ""  # no answer of this part is as fair as ours
        rest += sum(self.stop[t] for t in np.flatnonzero((cluster.own >= 0) & ~kept).tolist())
        bound = least + rest - sum(gpu[free].tolist()) - sum(self.keep[kept].tolist()) * self.price_unit
        bound -= sum(price * int(n) for price, n in zip(job.tolist(), cluster.counts(kept).tolist(), strict=True))
        bound -= self._claims(candidate, free, gpu, job)
        if bound <= self.limit:
            return f"a part may cost {float(Fraction(self.limit - bound, self.proof.factor)):.6g} cost units less"
        return ""

    def _numbers(
        self, leaf: dict[str, Any], kept: Mask, candidate: Mask, price: list[int]
    ) -> tuple[int | str | None, int]:
        """Least price of the tasks that jobs may run, and the cost of waiting.

        None if no answer is as fair as ours, text if one may be fairer.
        """
        cluster = self.cluster
        low = cluster.counts(kept).tolist()
        high = cluster.counts(kept | candidate).tolist()
        everyone, ours = len(cluster.names), sum(self.sorted)
        if self.limits is not None:
            each = [p - self.waiting for p in price]
            return self.limits.least(each, low, high), self.waiting * everyone
        if not self.policy.fair:
            most = most_tasks(cluster, kept, candidate)
            fairer = f"a part may run {most} tasks, here {ours} run"
            return (fairer if most > ours else None if most < ours else _fill(price, low, high, ours)), 0
        limits = self._limits(leaf["shares"], kept, candidate)
        if isinstance(limits, str):
            return limits, 0
        fairest = limits.sorted_counts()
        if fairest != self.sorted:
            return (f"a part may run {fairest} tasks of the jobs" if fairest > self.sorted else None), 0
        return limits.least_fair(price), self.waiting * (everyone - ours)

    def _limits(self, stated: dict[str, str], kept: Mask, candidate: Mask) -> Limits | str:
        """The limits of stated shares, or why they are not fair."""
        cluster = self.cluster
        if stated.keys() != cluster.job.keys():
            return "shares are not those of all jobs"
        wrong, limits = fair_limits(cluster, kept, candidate, [rational(stated[name]) for name in cluster.job])
        return ", ".join(wrong[:3]) if limits is None else limits

    def _prices(self, stated: dict[str, int], names: dict[str, int]) -> Any:
        """Prices in the common unit; None if a name is not in the instance."""
        if stated.keys() - names.keys():
            return None
        return _by_position({name: price * self.price_unit for name, price in stated.items()}, names)

    def _claims(self, candidate: NDArray[np.bool_], free: NDArray[np.bool_], gpu: Any, job: Any) -> int:
        """Sum over tasks of the excess of their job's price over the cheapest way to run them on a GPU that fits."""
        cluster = self.cluster
        worth = job[cluster.job_of]
        mine = np.flatnonzero(candidate & (cluster.own >= 0))
        saved = self.keep.astype(object) * self.price_unit + np.array(self.stop, dtype=object)
        earned = worth[mine] + saved[mine] - gpu[cluster.own[mine]]
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
    """Integers in the order of the names, 0 where none is stated."""
    values = whole(stated.values())
    found: NDArray[Any] = np.zeros(len(number), values.dtype)
    found[[number[name] for name in stated]] = values
    return found


def _fill(price: list[int], low: list[int], high: list[int], units: int) -> int:
    """Minimum of ``sum price n`` for low <= n <= high with the sum ``units``."""
    left, total = units - sum(low), sum(p * n for p, n in zip(price, low, strict=True))
    for j in sorted(range(len(price)), key=lambda j: price[j]):
        more = min(left, high[j] - low[j])
        total, left = total + price[j] * more, left - more
    return total
