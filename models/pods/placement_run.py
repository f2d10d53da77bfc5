"""What solving leaves of a pod placement, at its end or on the way, and what proves it in the instance's own names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flowlex.formulations.program_arrays import Floats, Integers
from flowlex.formulations.solver_outcome import EngineName, Outcome, Status
from flowlex.instances.pods import PodInstance
from flowlex.models.model_base import Run
from flowlex.models.pods.admission_phase import Admission
from flowlex.models.pods.balance_phase import BalanceProof
from flowlex.models.pods.bounds.price_relaxation import Prices, Relaxation
from flowlex.models.pods.problem.admission_levels import Levels
from flowlex.models.pods.problem.balance_measures import Measure
from flowlex.models.pods.problem.node_fill_state import Cluster
from flowlex.validation.certificates.pods.pod_sizes import kind_of


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


def proof_document(
    instance: PodInstance,
    relaxation: Relaxation,
    levels: Levels,
    admission: Mapping[int, Prices],
    balance: BalanceProof,
) -> dict[str, Any]:
    """Prices by level, and the pieces of the proof of the balance."""
    names: list[list[str]] = [[] for _ in relaxation.classes.count]
    for node, k in zip(instance.nodes, relaxation.classes.of.tolist(), strict=True):
        names[k].append(node.name)
    proof: dict[str, Any] = {}
    one = {kind_of(pod): p for p, pod in reversed(list(enumerate(instance.pods)))}  # one pod of each kind

    def priced(price: Floats, of: Integers) -> dict[str, float]:
        return {instance.pods[p].name: float(price[of[p]]) for p in sorted(one.values()) if of[p] >= 0}

    if admission:
        proof["admission"] = {
            str(levels.keys[k]): prices.document(names if prices.pods is None else ())
            | {"kept": {str(key): price for key, price in zip(levels.keys, prices.kept, strict=False)}}
            | ({} if prices.pods is None else {"pods": priced(*prices.pods)})
            for k, prices in admission.items()
        }
    pieces: list[dict[str, Any]] = [
        {"low": low, "high": high, "mean": prices.mean} | prices.document(names)
        for low, high, prices in balance.straight
    ]
    pieces += [
        {"low": piece.low, "high": piece.high, "mean": piece.mean, "move": piece.move}
        | {"pods": priced(piece.pod, balance.of)}
        for piece in balance.patterns
    ]
    return proof | ({"balance": pieces} if pieces else {})
