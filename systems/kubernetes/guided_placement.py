"""Pod placement that improves a given placement until its time limit, without bounds of its own.

The bounds of the model's own admission have no time limit and count the rules of the instance, which may be stricter
than Kubernetes' filters; `proven_bounds` computes those that count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from flowlex.formulations.processor_clock import processor_seconds
from flowlex.formulations.solver_outcome import EngineName, SolveOptions
from flowlex.instances.pods import PodInstance
from flowlex.models.pods.admission_phase import Admission, Admitting
from flowlex.models.pods.model import PodPlacement
from flowlex.models.pods.problem.group_rules import broken_rules
from flowlex.models.pods.problem.node_fill_state import Cluster
from flowlex.models.pods.solution import PlacementSolution


@dataclass(eq=False)
class _Improving(Admitting):
    """Admission that starts from a placement and knows no bound below the number of pods."""

    guide: Mapping[int, int] | None = None

    def _bound(self, found: tuple[int, ...]) -> list[int]:
        return list(self.wanted)

    def _first(self, start: Cluster) -> Cluster:
        """Return the guide's placement; or, where an own first placement admits more, that."""
        given = self._given(start)
        if given is not None and (self.late or self.count(given) == self.wanted):
            return given
        best = super()._first(start)
        return given if given is not None and self.count(given) >= self.count(best) else best

    def _given(self, start: Cluster) -> Cluster | None:
        view, cluster = self.view, start.copy()
        for pod, node in (self.guide or {}).items():
            if cluster.node[pod] < 0 and cluster.fits_node(pod, node):
                cluster.add(pod, node)
        for pod in np.flatnonzero((view.running >= 0) & (cluster.node < 0)).tolist():  # those that may be stopped
            if cluster.fits_node(pod, int(view.running[pod])):
                cluster.add(pod, int(view.running[pod]))
        return None if broken_rules(view, cluster.node) else cluster


def improved(
    instance: PodInstance, guide: Mapping[str, str], limit: float | None, *, even: float, gap: float, seed: int
) -> PlacementSolution:
    """Place the pods, starting from ``guide`` (pod to node); raises `ModelError` if the running pods do not fit.

    Pods of the guide that do not fit the instance are left out. ``even`` is the absolute gap of the balance.
    """
    began = processor_seconds()
    number = {pod.name: p for p, pod in enumerate(instance.pods)}
    at = {node.name: n for n, node in enumerate(instance.nodes)}
    start = {number[pod]: at[node] for pod, node in guide.items() if pod in number and node in at}

    class Guided(PodPlacement):
        """Placement with the admission above."""

        def _admit(self, engine: EngineName, options: SolveOptions) -> Admission:
            limits, name = self.limits, self.instance.name
            common = (self.builder, name, self.bounds, engine, options, limits.admission, limits.admitted_kinds)
            return _Improving(*common, guide=start).run()

    model = Guided(instance, absolute_gap=even)
    _ = model.builder.pairs, model.bounds  # views and programs count in the limit, which starts in `solve`
    left = None if limit is None else max(0.1, limit - (processor_seconds() - began))
    return model.solve("highs", certify=False, time_limit_s=left, gap=gap, seed=seed)
