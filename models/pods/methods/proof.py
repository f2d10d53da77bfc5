"""What solving leaves of a pod placement, at its end or on the way, and what proves it in the instance's own names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from flowlex.formulations.program_arrays import Floats, Integers
from flowlex.formulations.solver_outcome import EngineName, Outcome, Status
from flowlex.instances.exact_rationals import rational
from flowlex.instances.pods import PodInstance
from flowlex.models.model_base import Run
from flowlex.models.pods.methods.admission import Admission
from flowlex.models.pods.methods.balance import BalanceProof
from flowlex.models.pods.methods.column_generation import PodPrices
from flowlex.models.pods.methods.node_class_relaxation import ClassRelaxation, ResourcePrices
from flowlex.models.pods.problem.admission_levels import Levels
from flowlex.models.pods.problem.balance_measures import Measure
from flowlex.models.pods.problem.cluster import Cluster
from flowlex.validation.restated.pods.instance_data import kind_of


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
    relaxation: ClassRelaxation,
    levels: Levels,
    admission: Mapping[int, ResourcePrices],
    balance: BalanceProof,
    measure: Measure,
) -> dict[str, Any]:
    """Leaves of the levels, and pieces of the proof of the balance, by names of pods and nodes.

    Multipliers are those of the rows of `flowlex.validation.restated.pods.kinds`.
    """
    names = ProofNames(instance, relaxation, levels)
    proof: dict[str, Any] = {}
    if admission:
        proof["admission"] = {str(levels.keys[k]): names.of_level(k, prices) for k, prices in admission.items()}
    pieces = [names.of_lines(measure, *piece) for piece in balance.straight]
    pieces += [names.of_patterns(piece, balance.of) for piece in balance.patterns]
    if pieces:
        proof["balance"] = pieces
    return {"format": 3, **proof} if proof else {}


class ProofNames:
    """Multipliers by the labels of their rows."""

    def __init__(self, instance: PodInstance, relaxation: ClassRelaxation, levels: Levels) -> None:
        self.instance, self.relaxation, self.levels = instance, relaxation, levels
        self.nodes = [instance.nodes[n].name for n in relaxation.classes.first.tolist()]
        self.many = relaxation.classes.count.astype(np.float64)
        one = {kind_of(pod): p for p, pod in reversed(list(enumerate(instance.pods)))}
        self.pods = np.array(sorted(one.values()), np.int64)  # one pod of each kind

    def _resources(self, prices: ResourcePrices, unit: float) -> dict[str, Any]:
        slots = {
            f"{node},{share!r}": -price * unit
            for node, of in zip(self.nodes, prices.size, strict=True)
            for share, price in of.items()
        }
        return {
            "cpu": _at(zip(self.nodes, (-unit * prices.cpu).tolist(), strict=True)),
            "memory": _at(zip(self.nodes, (-unit * prices.memory).tolist(), strict=True)),
            "slot": _at(slots.items()),
            "moves": _at([("", -unit * prices.move)]),
            "rule": _at((name, -unit * price) for name, price in prices.rules.items()),
        }

    def of_level(self, level: int, prices: ResourcePrices) -> dict[str, Any]:
        """The leaf of the most of a level."""
        levels, own = self.levels, float(self.levels.unit[level])
        earlier = {
            f"admission {levels.keys[j]}": _short(-abs(price) * own / float(levels.unit[j]))
            for j, price in enumerate(prices.kept)
            if price
        }
        if prices.pods is None:
            leaf = {"rows": _used(self._resources(prices, own)), "complete": ["pod", "running"], "blocks": ["card"]}
        else:
            price, of = prices.pods
            at = self.pods[of[self.pods] >= 0]
            value = np.zeros(len(levels.keys))
            value[:level], value[level] = np.abs(prices.kept), 1.0
            worth = np.where(levels.of[at] >= 0, value[levels.of[at]] * levels.worth[at], 0.0)
            least = np.where(levels.of[at] >= 0, 0.0, -np.inf)  # a pod that may wait is never paid for
            rows = self._of_pods(at, np.maximum(price[of[at]], least) * own, worth * own)
            rows["moves"] = _at([("", -own * prices.move)])
            leaf = {"rows": _used(rows), "blocks": ["node"]}
        return leaf | ({"earlier": earlier} if earlier else {})

    def _of_pods(self, pods: Integers, price: Floats, worth: Floats) -> dict[str, Any]:
        """Multipliers of pods at these prices, which those that may wait pay up to what they are worth."""
        must, left = self.levels.of[pods] < 0, price - worth
        names = [self.instance.pods[p].name for p in pods.tolist()]
        each = list(zip(names, left.tolist(), must.tolist(), strict=True))
        return {
            "running": _at((name, y) for name, y, stays in each if stays),
            "pod": _at((name, min(0.0, y)) for name, y, stays in each if not stays),
        }

    def of_lines(self, measure: Measure, low: float, high: float, prices: ResourcePrices) -> dict[str, Any]:
        """A piece with slopes of loads and prices of resources."""
        assert prices.slope is not None
        slope, size = prices.slope, float(self.many.sum())
        rows, tangents = self._resources(prices, 1.0), dict[str, Any]()
        if measure.centred:
            centred = slope - float(slope @ self.many) / size
            points = [_short(each / 2) for each in centred.tolist()] if measure.curved else []
            tangents = dict(zip(self.nodes, points, strict=False))
            if measure.curved:
                rows["tangent"] = {"at": dict.fromkeys(self.nodes, 1)}
                pull = 2 * sum(int(n) * rational(a) for n, a in zip(self.many.tolist(), points, strict=True))
            else:
                slope = np.clip(slope, -1.0, 1.0)
                rows["above"] = _at(zip(self.nodes, np.maximum(slope, 0.0).tolist(), strict=True))
                rows["below"] = _at(zip(self.nodes, np.maximum(-slope, 0.0).tolist(), strict=True))
                pull = sum(
                    int(n) * rational(sign * rows[name]["at"].get(node, 0))
                    for name, sign in (("above", 1), ("below", -1))
                    for n, node in zip(self.many.tolist(), self.nodes, strict=True)
                )
            mean = Fraction(pull) / int(size) - rational(_short(prices.mean))
            rows["mean"] = {"at": {"": str(mean)}}
        else:
            share = np.maximum(slope, 0.0)
            share = share / max(float(share @ self.many), 1e-12) * (1 - 1e-11)
            rows["largest"] = _at(zip(self.nodes, share.tolist(), strict=True))
        levels = self.levels
        each = ((str(levels.keys[k]), y / float(levels.unit[k])) for k, y in enumerate(prices.kept))
        leaf = {"rows": _used(rows | {"kept": _at(each)}), "complete": ["pod", "running"], "blocks": ["card"]}
        return {"low": low, "high": high, "tangents": tangents, "leaf": leaf}

    def of_patterns(self, piece: PodPrices, of: Integers) -> dict[str, Any]:
        """A piece with prices of pods."""
        levels, at = self.levels, self.pods[of[self.pods] >= 0]
        price = piece.pod[of[at]]
        level, worth = levels.of[at], levels.worth[at].astype(np.float64)
        kept = [float((price / np.maximum(worth, 1))[level == k].max(initial=-np.inf)) for k in range(len(levels.keys))]
        kept = [0.0 if each == -np.inf else each for each in kept]  # where all are placed, any that is large enough
        for pod, y in piece.quota:
            kept[int(levels.of[pod])] = y
        paid = np.where(level >= 0, np.array([*kept, 0.0])[level] * worth, 0.0)
        units = [float(unit) for unit in levels.unit]
        rows = self._of_pods(at, price, paid)
        rows["kept"] = _at((str(key), y / unit) for key, y, unit in zip(levels.keys, kept, units, strict=True))
        rows["moves"] = _at([("", -piece.move)])
        rows["mean"] = _at([("", -piece.mean)])
        return {"low": piece.low, "high": piece.high, "leaf": {"rows": _used(rows), "blocks": ["node"]}}


def _at(each: Iterable[tuple[str, float]]) -> dict[str, Any]:
    return {"at": {name: short for name, y in each if (short := _short(y))}}


def _used(rows: dict[str, Any]) -> dict[str, Any]:
    return {name: each for name, each in rows.items() if each["at"]}


def _short(value: float) -> float:
    """A multiplier of at most 12 decimals, and of 15 digits."""
    return float(f"{round(value, 12):.15g}")
