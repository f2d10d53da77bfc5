"""Simulated annealing for balanced loads, by moves and exchanges of pods (seeded, compiled).

Without it the deviation of 30 nodes and 150 pods is 0.096 instead of 0.032
(`benchmarks/pods.py`; gap 67 instead of 0.8 %).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from flowlex.formulations.processor_clock import processor_seconds
from flowlex.formulations.program_arrays import Floats, Integers
from flowlex.instances.pod_rule_arrays import SKEW
from flowlex.models.pods.methods.search_state import SearchState
from flowlex.models.pods.problem.balance_measures import MEASURES, Measure
from flowlex.models.pods.problem.cluster import Cluster, pinned

#: Steps of one call of the compiled loop; time limits are checked between calls.
_BATCH = 500_000
#: Relative lengths of runs: the second, if needed, is longer, which helps more than another seed.
_LENGTHS = (1, 3)
#: Number of runs with decreasing targets of the largest load.
_TARGETS = 6
#: Initial temperature of runs that start from a good placement.
_MILD = 0.003
#: First and last temperature, as shares of the typical cost of a move.
_HOT, _COLD = 0.3, 3e-5


@dataclass(frozen=True)
class Annealing:
    """Seeded runs of simulated annealing."""

    seed: int  # equal seeds, clusters and steps give equal results, unless the time limit is reached
    steps: int  # number of steps of one run
    move_budget: float = 0.0  # largest total cost of moves, including those of the initial cluster
    until: float | None = None  # stop at this `processor_seconds`

    def once(
        self, cluster: Cluster, measure: Measure, *, times: float = 1, target: float | None = None, heat: float = _HOT
    ) -> Cluster:
        """Make one run; the result may be worse than the initial placement.

        ``times``: factor of the number of steps. ``target``: for ``max_load``: target of the largest load (by default
        slightly below that of the cluster). ``heat``: first temperature, as a share of the typical cost of a move.
        """
        from flowlex.models.pods.methods.compiled_annealing import anneal

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
        """Return the state with running pods movable, their (P,) nodes, and their costs, last the budget left."""
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
        """Return several good placements including ``start``, the best first; stop once one reaches ``enough``.

        The deviation is annealed from ``start``, with a longer second run if ``longer``. Other measures continue from
        its result: the mean absolute deviation at a low temperature, the largest load with targets between the best
        value and its lower bound ``least``.
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
                least = target  # not reached: use a weaker target next
        return found
