r"""Phase 1 of pod placement with fair queues: maximise the least share, then the next least, and so on.

The share of a queue is the value of its running and placed pods divided by its weight. The sum of the k least shares is
the maximum of :math:`k t - \sum_q d_q` over t and d with :math:`d_q \ge t - s_q, d_q \ge 0` (Ogryczak). Maximising
these sums one after another gives the lexicographically largest sorted shares, also for integral pods.
"""

from __future__ import annotations

import heapq
from fractions import Fraction

import numpy as np

from flowlex.formulations.solver_outcome import Outcome, Status
from flowlex.models.pods.methods.admission import Admission, Admitting
from flowlex.models.pods.methods.placement_policies import POLICIES, Placing
from flowlex.models.pods.problem.cluster import Cluster, running_cluster


class FairAdmitting(Admitting):
    """One run of fair admission: greedy by the least share; if the programs are small, the optimum."""

    def run(self) -> Admission:
        """Admit greedily, then maximise the sums of the least shares."""
        start = running_cluster(self.view, cards=self.placeable.cards, all_of_it=False)
        best = None if start is None else self._turns(start)
        if best is not None and self.count(best) == self.wanted:
            return self._result(best, list(self.wanted))
        if self.by_program:
            return self._raised(best)
        if best is None:
            message = "the running pods do not pack on their cards in falling order of size; let some of them move"
            return Admission(failed=Outcome(Status.TIME_LIMIT, self.engine, message=message))
        return self._result(best, list(self.wanted))

    def _turns(self, start: Cluster) -> Cluster:
        """Place pods of the queue with the least share, the most important pods first, then small before large."""
        levels, view, size = self.levels, self.view, self.view.load.most()
        shares, waiting = list(levels.shares([0] * len(levels.keys))), list[list[int]]()
        for k in range(len(levels.keys)):
            pods = np.flatnonzero(self.can & (levels.of == k))
            waiting.append(pods[np.lexsort((-pods, -size[pods], view.priority[pods]))].tolist())
        heap = [(share, k) for k, share in enumerate(shares)]
        heapq.heapify(heap)
        placing = Placing(start, POLICIES["fgd"], self.options.seed)
        while heap and not self.late:
            k = heapq.heappop(heap)[1]
            if not waiting[k]:
                continue
            for pod in placing.offer(waiting[k].pop()):
                q = int(levels.of[pod])
                if q < len(shares):
                    shares[q] += int(levels.worth[pod]) * levels.unit[q] / levels.weight[q]
            heapq.heappush(heap, (shares[k], k))
        rest = waiting[len(shares)] if len(waiting) > len(shares) else []
        placing.place(np.array(rest[::-1], np.int64))
        return placing.cluster()

    def _raised(self, cluster: Cluster | None) -> Admission:
        """Maximise the sums of the least shares one after another, then the number of pods without a queue."""
        levels, proven = self.levels, True
        many = len(levels.weight)
        step = min((u / w for u, w in zip(levels.unit, levels.weight, strict=False)), default=Fraction(1))
        for k in range(len(levels.keys)):
            name = f"admission fair {k + 1}" if k < many else f"admission {levels.keys[k]}"
            outcome, found = self._stated(name, () if cluster is None else self.count(cluster))
            best = () if cluster is None else levels.rank(self.count(cluster))
            if found is not None and levels.rank(self.count(found)) > best:
                cluster = found
            if cluster is None:
                return Admission(failed=outcome)
            value = float(levels.stages(self.count(cluster))[name])
            top = np.inf if outcome.bound is None else float(outcome.bound)
            proven &= top <= value + max(1e-6 * abs(value), float(step) * 1e-3)
        if cluster is None:
            return super().run()  # there is nothing to place, but running pods must be packed
        return self._result(cluster, list(self.count(cluster)) if proven else list(self.wanted))
