"""What solving leaves of a pod placement, at its end or on the way."""

from __future__ import annotations

from dataclasses import dataclass, field

from flowlex.formulations.solver_outcome import EngineName, Outcome, Status
from flowlex.models.model_base import Run
from flowlex.models.pods.admission_phase import Admission
from flowlex.models.pods.balance_phase import BalanceProof
from flowlex.models.pods.problem.balance_measures import Measure
from flowlex.models.pods.problem.node_fill_state import Cluster

__all__ = ["PlacementRun", "so_far"]


@dataclass(frozen=True)
class PlacementRun(Run):
    """The outcome with the cluster it leaves and what phase 1 found."""

    admission: Admission = field(default_factory=Admission)
    proof: BalanceProof = field(default_factory=BalanceProof, repr=False)
    cluster: Cluster | None = field(default=None, repr=False)


def so_far(
    engine: EngineName, measure: Measure, first: Admission, bound: float = 0.0, proof: BalanceProof | None = None
) -> PlacementRun:
    """The answer at hand before the end, with the bound on its balance that is proven so far."""
    cluster = first.cluster
    assert cluster is not None, "only answers are offered"
    value = measure.value(cluster.loads)
    message = "the best answer so far, before the end of solving"
    found = Outcome(Status.FEASIBLE, engine, value, min(bound, value), cluster.node, message=message)
    return PlacementRun(found, first, proof or BalanceProof(), cluster)
