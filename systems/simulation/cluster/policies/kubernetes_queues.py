"""Queues of batch schedulers on Kubernetes: one queue per user; shares and quotas determine which tasks run.

Volcano's *proportion* and *priority* plugins with its actions allocate, preempt and reclaim; Kueue's cluster queues of
one cohort, with borrowing, reclaiming and admission of complete jobs. Both follow their documentation (volcano.sh/docs,
kueue.sigs.k8s.io/docs/concepts) without using their code and, like them, ignore the cost of a place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from flowlex.systems.simulation.cluster.policies.queues import fair_shares, places_after_stops, victims_rank
from flowlex.systems.simulation.cluster.policy_interface import Action, LiveJob, LivePlace, LiveTask, Policy, State
from flowlex.systems.simulation.policy_registry import policy


def _units(task: LiveTask) -> int:
    """Return the sum of a task's demands; intended for workloads with one resource."""
    return sum(task.task.demand.values())


def _capacity(state: State) -> int:
    return sum(sum(place.place.capacity.values()) for place in state.places if place.node.up)


def _emptiest(places: Iterable[LivePlace], task: LiveTask) -> LivePlace | None:
    fitting = (place for place in places if place.fits(task))
    return max(fitting, key=lambda place: (sum(place.free.values()), -place.number), default=None)


def _order(task: LiveTask) -> tuple[int, float, int]:
    return task.job.job.priority, task.job.job.arrival_s, task.number


@policy("cluster", "Volcano")
class Volcano(Policy):
    """The queue with the lowest fraction of its deserved share is served next, its most important task first.

    A queue deserves its max-min fair share of the cluster, given its demand. A task that fits nowhere may stop less
    important ones of its own queue (preempt) and, while its queue is below its deserved share, tasks of queues above
    theirs (reclaim).
    """

    def decide(self, state: State) -> Iterable[Action]:
        """One cycle."""
        held, waiting = Counter[str](), dict[str, list[LiveTask]]()
        for job in state.jobs.values():
            held[job.job.user] += sum(map(_units, job.running))
            if job.waiting:
                waiting.setdefault(job.job.user, []).extend(job.waiting)
        wanted = {user: used + sum(map(_units, waiting.get(user, ()))) for user, used in held.items()}
        shares = fair_shares(np.array(list(wanted.values()), np.int64), _capacity(state))
        deserved = dict(zip(wanted, shares.tolist(), strict=True))
        queues = {user: sorted(tasks, key=_order, reverse=True) for user, tasks in waiting.items()}
        spared: set[LiveTask] = set()
        places = state.open_places()
        while queues:
            user = min(queues, key=lambda name: held[name] / deserved[name] if deserved[name] else np.inf)
            task = queues[user].pop()
            if not queues[user]:
                del queues[user]
            place = _emptiest(places, task)
            if place is None:
                victims = self._victims(state, task, held, deserved, spared)
                if victims is None:
                    queues.pop(user, None)  # later tasks of the queue find no place either
                    continue
                place, stops = victims
                spared.update(stops)
                for other in stops:
                    held[other.job.job.user] -= _units(other)
                    yield state.stop(other)
            held[user] += _units(task)
            spared.add(task)
            yield state.start(task, place)
            places = [each for each in places if each.open]

    @staticmethod
    def _victims(
        state: State, task: LiveTask, held: Counter[str], deserved: dict[str, float], spared: set[LiveTask]
    ) -> tuple[LivePlace, list[LiveTask]] | None:
        """Return a place and the tasks to stop there: less important ones of the queue, or of queues above share."""
        mine = task.job.job.user
        below = held[mine] + _units(task) <= deserved[mine]

        def may(other: LiveTask) -> bool:
            whose = other.job.job.user
            if other in spared:
                return False
            if whose == mine:
                return other.job.job.priority > task.job.job.priority
            return below and held[whose] - _units(other) >= deserved[whose]

        found = places_after_stops(state, task, may)
        return min(found, key=lambda each: (victims_rank(each[1]), each[0].number), default=None)


@dataclass
class _Quota:
    """Quota use of the admitted jobs of each queue; their full demand counts until their tasks end."""

    total: int
    nominal: float
    used: Counter[str] = field(default_factory=Counter)

    def fits(self, user: str, need: int) -> bool:
        """Return whether the cohort has enough quota left."""
        return self.used.total() + need <= self.total

    def own(self, user: str, need: int) -> bool:
        """Whether a queue would stay within its nominal quota."""
        return self.used[user] + need <= self.nominal


@policy("cluster", "Kueue")
class Kueue(Policy):
    """Complete jobs are admitted by quota; their tasks go to the emptiest places.

    All queues are in one cohort with equal nominal quotas, and borrow unused quota. A job within the nominal quota of
    its queue evicts jobs of borrowing queues (reclaimWithinCohort: Any) and less important jobs of its own queue, the
    least important and youngest first. Jobs that do not fit are skipped (best-effort FIFO).
    """

    def __init__(self) -> None:
        self._admitted: dict[LiveJob, None] = {}

    def decide(self, state: State) -> Iterable[Action]:
        """Admit, evict, start."""
        present = set(state.jobs.values())
        self._admitted = {job: None for job in self._admitted if job in present}
        users = {job.user for job in state.workload.jobs}
        total = _capacity(state)
        quota = _Quota(total, total / len(users))
        for job in self._admitted:
            quota.used[job.job.user] += self._need(job)
        pending = [job for job in state.jobs.values() if job not in self._admitted and job.waiting]
        evicted: list[LiveJob] = []
        while pending:
            job = min(pending, key=lambda job: self._rank(job, quota))
            pending.remove(job)
            for other in self._evictions(job, quota) or ():
                evicted.append(other)
                del self._admitted[other]
                quota.used[other.job.user] -= self._need(other)
            if quota.fits(job.job.user, self._need(job)):
                self._admitted[job] = None
                quota.used[job.job.user] += self._need(job)
        for job in evicted:
            yield from (state.stop(task) for task in list(job.running))
        places = state.open_places()
        for job in self._admitted:
            for task in list(job.waiting):
                place = _emptiest(places, task)
                if place is None:
                    break
                yield state.start(task, place)
                places = [each for each in places if each.open]

    @staticmethod
    def _need(job: LiveJob) -> int:
        return sum(_units(task) for task in (*job.running, *job.waiting))

    def _rank(self, job: LiveJob, quota: _Quota) -> tuple[bool, int, float, int]:
        """Rank jobs that do not borrow first, then by importance and arrival."""
        borrows = not quota.own(job.job.user, self._need(job))
        return borrows, job.job.priority, job.job.arrival_s, job.number

    def _evictions(self, job: LiveJob, quota: _Quota) -> list[LiveJob] | None:
        """Return jobs to evict so that this one fits; None if none are needed or none suffice."""
        user, need = job.job.user, self._need(job)
        if quota.fits(user, need):
            return None
        used, found = quota.used.copy(), list[LiveJob]()
        own = quota.own(user, need)

        def may(other: LiveJob) -> bool:
            whose = other.job.user
            if whose == user:
                return other.job.priority > job.job.priority
            return own and used[whose] > quota.nominal

        def by_rank(other: LiveJob) -> tuple[bool, int, float]:
            return other.job.user == user, -other.job.priority, -other.job.arrival_s

        for other in sorted(self._admitted, key=by_rank):
            if used.total() + need <= quota.total:
                break
            if may(other):
                used[other.job.user] -= self._need(other)
                found.append(other)
        return found if used.total() + need <= quota.total else None
