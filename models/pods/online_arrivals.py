"""Online arrivals and departures of pods: a policy places each pod on arrival, if necessary with a few moves of others.

Source of the protocol: Weng et al., *Beware of Fragmentation*, section 6: pods are submitted one after another until
their requests reach a given percentage of all GPUs; no pod ends and none is retried; the result is the share of all
GPUs that is allocated.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from flowlex.formulations.deferred_compilation import with_small_work
from flowlex.formulations.program_arrays import Floats, Integers
from flowlex.instances.pods import PodArrays, PodInstance
from flowlex.models.model_base import ModelError
from flowlex.models.pods.methods.placement_policies import POLICIES, Placing
from flowlex.models.pods.problem.cluster import Cluster, packed_running


class Arrivals(Placing):
    """A cluster on which pods of an instance arrive and depart.

    - ``instance``: its running pods are there from the start and stay where they are.
    - ``policy``: one of `POLICIES`.
    - ``moves``: at most so many placed pods move for an arrival that fits nowhere; each goes where the policy says.
    - Raises `ModelError`: there is no such policy, ``moves`` is negative, or the running pods do not pack.

    A gang is placed once all of its pods have arrived and fit together. Its pods, and those of a spread with a skew, do
    not move for others, and no pod moves for them.


    >>> from flowlex.instances.generators import generate
    >>> live = Arrivals(generate("kubeflow-testbed"), "fgd")
    >>> live.arrive([0, 1]).tolist()
    [0, 1]
    """

    def __init__(self, instance: PodInstance, policy: str = "fgd", *, moves: int = 0, seed: int = 0) -> None:
        if policy not in POLICIES:
            raise ModelError(f"there is no policy {policy!r}; there are: {', '.join(POLICIES)}")
        if moves < 0:
            raise ModelError(f"moves must be at least 0, got {moves}")
        super().__init__(packed_running(instance.arrays), POLICIES[policy], seed, moves)

    def arrive(self, pods: Sequence[int] | Integers) -> Integers:
        """Place pods in this order; return their (n,) nodes, -1 if a pod does not fit or its gang is incomplete."""
        order = np.asarray(pods, np.int64)
        self.place(order)
        node: Integers = self.state.node[order]
        return node

    def depart(self, pods: Sequence[int] | Integers) -> None:
        """Remove pods; pods without a node are ignored."""
        from flowlex.models.pods.methods.compiled_policies import depart

        gone = np.asarray(pods, np.int64)
        depart(self.state, self.scores, gone, self.dead)
        self.freed(gone)


def gpus_of(view: PodArrays) -> Floats:
    """(P,) requested GPUs of each pod, as shares of the smallest card."""
    card = view.card_gb[np.unique(view.gpu.column, return_index=True)[1]]
    share = np.divide(view.gpu.table, card, where=card > 0, out=np.zeros_like(view.gpu.table))
    return np.asarray(share.max(axis=1, initial=0.0)[view.gpu.row] * view.gpu_cards, np.float64)


@dataclass(frozen=True)
class ArrivalCurve:
    """Submitted and allocated GPUs after each arrival."""

    # submitted, allocated: (P,) GPUs requested and allocated up to each arrival, as shares of all GPUs
    submitted: Floats = field(repr=False)
    allocated: Floats = field(repr=False)
    moved: int  # total number of moves
    cluster: Cluster = field(repr=False)  # the final placement

    def at(self, load: float) -> float:
        """Share of all GPUs allocated when the requests reach ``load`` (1: all GPUs)."""
        reached = int(np.searchsorted(self.submitted, load, side="right"))
        return float(self.allocated[reached - 1]) if reached else 0.0


def submit_all(instance: PodInstance, policy: str = "fgd", *, moves: int = 0, seed: int = 0) -> ArrivalCurve:
    """Submit the waiting pods one after another, as listed; no pod ends, and none is retried."""
    view = instance.arrays
    live, order = Arrivals(instance, policy, moves=moves, seed=seed), np.flatnonzero(view.running < 0)
    got = live.arrive(order) >= 0
    gpus, whole = gpus_of(view), max(1.0, float(view.cards.sum()))
    running = float(gpus[view.running >= 0].sum())
    submitted = (running + np.cumsum(gpus[order])) / whole
    allocated = (running + np.cumsum(np.where(got, gpus[order], 0.0))) / whole
    return ArrivalCurve(submitted, allocated, live.moved, live.cluster())


@dataclass(frozen=True)
class Life:
    """Times of every pod of a trace, and the allocation over time."""

    # started_s, ended_s: (P,) start and end of each pod; NaN if never
    started_s: Floats = field(repr=False)
    ended_s: Floats = field(repr=False)
    waited_s: Floats = field(repr=False)  # (P,) waiting time; NaN if it was never placed
    allocation: Floats = field(repr=False)  # (E, 2) time and share of all GPUs allocated from then on
    moved: int  # moves made in all

    def summary(self) -> dict[str, float | int]:
        """Pods placed and never placed, waiting times, and mean and peak share of GPUs from first to last event.

        If all events have the same time, the mean is the final allocation.
        """
        placed, held = np.isfinite(self.started_s), np.diff(self.allocation[:, 0])
        waits = self.waited_s[placed] if placed.any() else np.zeros(1)
        whole = float(held.sum())
        return {
            "placed": int(placed.sum()),
            "never placed": int((~placed).sum()),
            "waited": int((waits > 0).sum()),
            "mean wait s": float(waits.mean()),
            "p99 wait s": float(np.percentile(waits, 99)),
            "mean GPU allocation": float(self.allocation[:-1, 1] @ held / whole if whole else self.allocation[-1, 1]),
            "peak GPU allocation": float(self.allocation[:, 1].max()),
            "moved": self.moved,
        }


@with_small_work
def live_through(instance: PodInstance, policy: str = "fgd", *, moves: int = 0, seed: int = 0) -> Life:
    """Simulate the arrivals and ends of a trace; pods that do not fit wait and are retried by priority at every end.

    A pod that waited runs as long as in the trace, from its actual start. Pods without ``created_s`` arrive at time 0;
    those without ``deleted_s`` never end. At equal times, ends precede arrivals.
    """
    view, live = instance.arrays, Arrivals(instance, policy, moves=moves, seed=seed)
    gpus, whole = gpus_of(view), max(1.0, float(view.cards.sum()))
    created = np.array([pod.created_s or 0.0 for pod in instance.pods])
    lasts = np.array([np.inf if p.deleted_s is None else p.deleted_s - (p.created_s or 0.0) for p in instance.pods])
    started, ended = np.full((2, len(gpus)), np.nan)
    started[view.running >= 0] = 0.0
    used, queue = float(gpus[view.running >= 0].sum()), np.zeros(0, np.int64)
    events = [(float(created[p]), 1, p) for p in np.flatnonzero(view.running < 0).tolist()]
    events += [(float(lasts[p]), 0, p) for p in np.flatnonzero((view.running >= 0) & np.isfinite(lasts)).tolist()]
    heapq.heapify(events)
    course = [(events[0][0] if events else 0.0, used / whole)]
    while events:
        now = events[0][0]
        ends, new = list[int](), list[int]()
        while events and events[0][0] == now:
            _, arrives, p = heapq.heappop(events)
            (new if arrives else ends).append(p)
        live.depart(ends)
        ended[ends] = now
        used -= float(gpus[ends].sum())
        again = bool(ends) or bool(live.alone[new].any())  # the last pod of a gang may complete it
        tries = np.concatenate([queue, np.array(new, np.int64)]) if again else np.array(new, np.int64)
        tries = tries[np.lexsort((tries, created[tries], -view.priority[tries]))]
        got = live.arrive(tries) >= 0
        queue = tries[~got] if again else np.concatenate([queue, tries[~got]])
        used += float(gpus[tries[got]].sum())
        started[tries[got]] = now
        for p in tries[got][np.isfinite(lasts[tries[got]])].tolist():
            heapq.heappush(events, (now + float(lasts[p]), 0, p))
        course.append((now, used / whole))
    return Life(started, ended, started - created, np.array(course), live.moved)
