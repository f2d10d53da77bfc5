"""The search for even loads from above: seeded annealing by moves and exchanges of pods, compiled."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from flowlex.formulations.processor_time import processor_seconds
from flowlex.formulations.program_arrays import Floats, Integers
from flowlex.instances.pod_rule_arrays import SKEW
from flowlex.models.pods.problem.balance_measures import MEASURES, Measure
from flowlex.models.pods.problem.integer_program import pinned
from flowlex.models.pods.problem.node_fill_state import Cluster
from flowlex.models.pods.search.search_state import SearchState

__all__ = ["Annealing"]

#: Steps of one call into the compiled loop, so that a time limit is kept.
_BATCH = 500_000
#: Lengths of runs: the second only where the first did not suffice, and longer, which finds more than other seeds do.
_LENGTHS = (1, 3)
#: Runs towards smaller largest loads.
_TARGETS = 6
#: First temperature of runs that start from a good answer.
_MILD = 0.003
#: Temperatures fall from the first to the last share of the typical cost of a move.
_HOT, _COLD = 0.3, 3e-5


@dataclass(frozen=True)
class Annealing:
    """Seeded runs of the search."""

    seed: int  # the same seed, cluster and steps give the same answer, unless time runs out
    steps: int  # of a run
    move_budget: float = 0.0  # running pods may move up to this total cost, what the cluster moves already included
    until: float | None = None  # stop at this `processor_seconds`

    def once(
        self, cluster: Cluster, measure: Measure, *, times: float = 1, target: float | None = None, heat: float = _HOT
    ) -> Cluster:
        """One run; the answer may be worse than what it started from.

        ``times``: how many times the usual steps. ``target``: for ``max_load``: the largest load sought (by default a
        little below that of the cluster). ``heat``: first temperature, as a share of the typical cost of a move.
        """
        from flowlex.models.pods.search.annealing_kernels import anneal

        state, home, move = self._movable(cluster)
        pods, steps = np.flatnonzero(state.movable), int(times * self.steps)
        if len(pods) < 2 or len(state.loads) < 2:
            return cluster
        mode = measure.mode
        centre = measure.value(state.loads) * 0.995 if target is None else target
        typical = float(np.median(state.load.min(axis=1)[state.row[pods]]))
        scale = max(typical, 1e-9) ** (1 if mode == 1 else 2)
        rng, batches = np.random.default_rng(self.seed), max(1, -(-steps // _BATCH))
        heats = scale * heat * (_COLD / heat) ** (np.arange(batches + 1) / batches)
        for k in range(batches):
            if self.until is not None and processor_seconds() >= self.until:
                break
            if mode == 1:
                centre = float(state.loads.mean())
            size = min(_BATCH, steps - k * _BATCH)
            cost = anneal(state, pods, home, move, mode, centre, heats[k], heats[k + 1], size, rng)
            if mode == 2 and cost < 1e-18:
                break
        return state.cluster(cluster)

    def _movable(self, cluster: Cluster) -> tuple[SearchState, Integers, Floats]:
        """The state in which what may move at a cost is free, where it runs, and the costs with what is left to pay."""
        view, state = cluster.view, SearchState.of(cluster)
        free = (pinned(view, self.move_budget) < 0) & (cluster.node >= 0) & ~view.rules.members(SKEW)
        home = np.where(free, view.running, -1)
        cost = np.where(home >= 0, view.move_cost, 0.0)
        left = self.move_budget - cost[home != cluster.node].sum()
        state = state._replace(movable=state.movable | (home >= 0), pin=np.where(home >= 0, -1, state.pin))
        return state, home, np.append(cost, left)

    def several(
        self, start: Cluster, measure: Measure, *, least: float, enough: float, longer: bool = True
    ) -> list[Cluster]:
        """Several good answers, the best first, the start among them; no more once one is as even as ``enough``;
        ``longer`` runs for the deviation where the first did not suffice.

        The deviation is annealed from ``start``. Other measures go on from there: the mean absolute deviation at a low
        temperature, the largest load towards targets between the best so far and ``least``, its lower bound.
        """
        found = [start]

        def run(cluster: Cluster, by: Measure, **more: float) -> None:
            if measure.value(found[0].loads) > enough:
                again = replace(self, seed=self.seed * 101 + len(found))
                found.append(again.once(cluster, by, **more))
                found.sort(key=lambda each: measure.value(each.loads))

        for times in _LENGTHS if measure.curved and longer else _LENGTHS[:1]:
            run(start, MEASURES["deviation"], times=times)
        for times in _LENGTHS if measure.centred and not measure.curved else ():
            run(found[0], measure, times=times, heat=_MILD)
        for _ in range(0 if measure.centred else _TARGETS):
            target = 0.5 * (least + measure.value(found[0].loads))
            run(found[0], measure, target=target, heat=_MILD)
            if measure.value(found[0].loads) > target + 1e-9:
                least = target  # not met: aim less high
        return found
