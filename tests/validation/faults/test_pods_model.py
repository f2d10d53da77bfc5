"""Seeded faults in the model code of pod placement: every wrong answer is refused (see `seeding`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from flowlex.formulations.solver_outcome import Status
from flowlex.instances import generate
from flowlex.instances.pods import Pod, PodInstance, PodNode
from flowlex.models.pods.model import PodPlacement
from flowlex.models.pods.search_limits import SearchLimits
from tests.validation.faults.seeding import THOROUGH, Change, array, faults_of, field, run_faults, seed

_PODS = "flowlex.models.pods"


class PatternsOnly(PodPlacement):
    """Solve small instances like large ones: duals, searches and patterns, no integer program."""

    limits = SearchLimits(admission=-1, direct=-1, intervals=20)


def times(factor: float) -> Change:
    return lambda value, *_: None if value is None else value * factor


def of_prices(**changes: float) -> Change:
    """Return a change that scales dual values, also those in a tuple of bound and proof."""

    def change(prices: Any, *_: Any) -> Any:
        if isinstance(prices, tuple):
            return tuple(change(each) if hasattr(each, "cpu") else each for each in prices)
        return prices and replace(prices, **{name: getattr(prices, name) * by for name, by in changes.items()})

    return change


def _to_other(nodes: Any) -> None:
    placed = np.flatnonzero(nodes >= 0)
    if len(placed):
        nodes[placed[0]] = (nodes[placed[0]] + 1) % (nodes.max() + 1)


def _dropped(nodes: Any) -> None:
    nodes[np.flatnonzero(nodes >= 0)[-1:]] = -1


def _swapped(nodes: Any) -> None:
    placed = np.flatnonzero(nodes >= 0)[[0, -1]]
    nodes[placed] = nodes[placed[::-1]]


def _numbers(*more: int) -> Change:
    """Return a change that adds ``more`` to the numbers stated for the first level."""

    def change(admitted: dict[Any, Any], *_: Any) -> dict[Any, Any]:
        first = next(iter(admitted))
        return {**admitted, first: tuple(n + m for n, m in zip(admitted[first], more, strict=True))}

    return field("admitted", change)


def _in_cluster(change: Any) -> Change:
    """Return a change that moves pods of a cluster and recomputes its free capacity."""

    def changed(cluster: Any, *_: Any) -> Any:
        if cluster is None:
            return cluster
        node = cluster.node.copy()
        change(node)
        kept = {p: on for p, on in cluster.used_cards.items() if node[p] == cluster.node[p]}
        try:
            return type(cluster).of(cluster.view, node, kept, cards=cluster.cards)
        except AssertionError:
            return cluster

    return changed


def _outcome(**factors: float) -> Change:
    """Return a change that scales the objective or bound of the balance phase."""

    def change(found: Any, *_: Any) -> Any:
        stated = {name: getattr(found.outcome, name) * by for name, by in factors.items()}
        return replace(found, outcome=replace(found.outcome, **stated))

    return change


def _admission(name: str, more: int) -> Change:
    def change(found: Any, *_: Any) -> Any:
        if not getattr(found, name):
            return found
        *above, last = getattr(found, name)
        return replace(found, **{name: (*above, last + more)})

    return change


FAULTS: dict[str, dict[str, Change]] = {
    f"{_PODS}.admission_phase:Admitting.run": {
        "one fewer possible": _admission("most", -1),
        "the last dropped": field("cluster", _in_cluster(_dropped)),
    },
    f"{_PODS}.admission_phase:Admitting._bound": {
        "one fewer": lambda most, *_: [max(0, n - 1) for n in most],
        "none": lambda most, *_: [0] * len(most),
    },
    f"{_PODS}.balance_phase:Balancing.run": {
        "bound up by a tenth": _outcome(bound=1.1),
        "bound up a little": _outcome(bound=1.01),
        "objective down": _outcome(objective=0.9),
        "both down": _outcome(objective=0.9, bound=0.9),
        "an answer elsewhere": field("cluster", _in_cluster(_to_other)),
    },
    f"{_PODS}.problem.balance_measures:to_measure": {"doubled": times(2.0)},
    f"{_PODS}.problem.balance_measures:Deviation.value": {"a tenth less": times(0.9), "a tenth more": times(1.1)},
    f"{_PODS}.problem.balance_measures:MaxLoad.value": {"a tenth less": times(0.9)},
    f"{_PODS}.problem.admission_levels:Levels.total": {
        "one more of the first": lambda n, *_: (n[0] + 1, *n[1:]) if n else n
    },
    f"{_PODS}.problem.admission_levels:Levels.of_instance": {
        "levels the other way round": lambda made, *_: replace(made, keys=made.keys[::-1]),
        "a pod worth two": field("worth", array(lambda worth: worth[:1].__imul__(2))),
    },
    f"{_PODS}.problem.node_fill_state:Cluster.loads": {
        "the first idle": array(lambda loads: loads[:1].fill(0)),
        "half": times(0.5),
    },
    f"{_PODS}.search.search_state:SearchState.cluster": {
        "the last dropped": _in_cluster(_dropped),
    },
    f"{_PODS}.bounds.price_relaxation:Relaxation.even": {"four times the bound": of_prices(bound=4.0)},
    f"{_PODS}.bounds.column_generation:Columns.prove": {"doubled": field("bound", times(2.0))},
    f"{_PODS}.bounds.branch_and_price:GapSearch._unscaled": {"a tenth more": times(1.1)},
    f"{_PODS}.model:PodPlacement._interpret": {
        "first and last swapped": field("node", array(_swapped)),
        "one dropped": field("node", array(_dropped)),
        "one admitted more": _numbers(1, 0, 0),
        "one fewer wanted": _numbers(0, -1, 0),
        "one fewer possible": _numbers(0, 0, -1),
        "all of it one more": _numbers(1, 1, 1),
        "moves cost more": field("moved_cost", lambda cost, *_: cost + 1),
        "objective less": field("objective", lambda value, *_: value * 0.9 - 0.001),
        "bound more": field("bound", lambda value, *_: value * 1.1 + 0.001),
        "another measure": field("balance", lambda *_: "mean_absolute"),
        "infeasible": field("status", lambda *_: Status.INFEASIBLE),
    },
    f"{_PODS}.problem.admission_levels:Levels.stated": {"one more": lambda units, *_: units + 1},
    f"{_PODS}.solution:PlacementSolution.queue": {"empty": lambda *_: ()},
    f"{_PODS}.solution:PlacementSolution._metrics": {
        "one admitted more": lambda m, *_: {**m, "admitted": m["admitted"] + 1},
        "one more waits": lambda m, *_: {**m, "waiting": m["waiting"] + 1},
        "dearer moves": lambda m, *_: {**m, "move_cost": m["move_cost"] + 1},
    },
    f"{_PODS}.solution:PlacementSolution._answer": {
        "one placed nowhere": lambda answer, *_: {**answer, "placement": dict([*answer["placement"].items()][1:])},
        "no cards": lambda answer, *_: {**answer, "cards": {}},
    },
}

#: Faults that keep the answer but invalidate the proof of its bound.
SPOILT: dict[str, dict[str, Change]] = {
    f"{_PODS}.bounds.price_relaxation:Relaxation.even": {
        "slopes the other way": of_prices(slope=-1.0),
        "slopes doubled": of_prices(slope=2.0),
    },
    f"{_PODS}.bounds.price_relaxation:Relaxation.end_of_means": {"no slopes outside": of_prices(slope=0.0)},
    f"{_PODS}.bounds.column_generation:Columns.stated": {
        "prices half": field("pod", times(0.5)),
        "prices doubled": field("pod", times(2.0)),
        "from the middle on": lambda made, *_: replace(made, low=0.5 * (made.low + made.high)),
    },
}

NODES = (
    PodNode(name="a", cpu_cores=8, memory_gb=16, cards=2, card_gb=8),
    PodNode(name="b", cpu_cores=8, memory_gb=16, cards=2, card_gb=8),
    PodNode(name="c", cpu_cores=6, memory_gb=12, labels={"zone": "x"}),
)
MOVING = PodInstance(
    name="moving",
    nodes=NODES,
    pods=(
        Pod(name="runs", cpu_cores=2, memory_gb=2, node="a"),
        Pod(name="moves", cpu_cores=3, memory_gb=2, node="a", move_cost=1.0),
        *(Pod(name=f"g{k}", cpu_cores=2, memory_gb=3, gpu_memory_gb=5, priority=2) for k in range(3)),
        Pod(name="two", cpu_cores=1, memory_gb=2, gpu_memory_gb=3, gpu_cards=2, priority=2),
        *(Pod(name=f"c{k}", cpu_cores=3, memory_gb=3, priority=1) for k in range(4)),
        Pod(name="zoned", cpu_cores=2, memory_gb=1, node_labels={"zone": "x"}),
    ),
)
FULL = PodInstance(
    name="full",
    nodes=tuple(PodNode(name=f"n{k}", cpu_cores=4, memory_gb=8) for k in range(6)),
    pods=tuple(Pod(name=f"p{k}", cpu_cores=3, memory_gb=1) for k in range(14)),
)
TESTBED: Any = generate("kubeflow-testbed", seed=2, pods=8)
CASES: list[tuple[type[PodPlacement], PodInstance, dict[str, Any]]] = [
    (PodPlacement, TESTBED, {}),
    (PodPlacement, MOVING, {"balance": "max_load", "move_budget": 1.0}),
    (PatternsOnly, FULL, {}),
]


@pytest.mark.rare
@pytest.mark.parametrize("thorough", THOROUGH)
def test_no_fault_in_model_code_gets_a_wrong_answer_through(thorough: bool) -> None:
    """Claims must be true: an optimum is that of the correct model, a bound is at most its balance."""
    made = [lambda c=cls, i=instance, o=options: c(i, **o) for cls, instance, options in CASES]
    truth: dict[str, tuple[dict[Any, float], float]] = {}
    for cls, instance, options in CASES:
        best = cls(instance, **options).solve("highs")
        assert best.objective is not None
        truth[instance.name] = ({k: n[0] for k, n in best.admitted.items()}, float(best.objective))

    def value(solution: Any) -> str:
        admitted, balance = truth[solution.source.name]
        mine = {k: n[0] for k, n in solution.admitted.items()}
        if not solution.status.has_answer:
            return "no answer"
        if [*mine.values()] > [*admitted.values()] or mine.keys() != admitted.keys():
            return f"admits {mine}"
        if any(n[2] < admitted[k] for k, n in solution.admitted.items() if mine == admitted):
            return f"allows {solution.admitted}"
        if mine != admitted:
            return f"optimal with {mine}" if str(solution.status) == "optimal" else "true"
        if solution.objective < balance - 2e-6 and str(solution.status) != "feasible":
            return f"balance {solution.objective}"
        return f"bound {solution.bound}" if solution.bound > balance + 2e-6 else "true"

    faults = faults_of(FAULTS)
    tally = run_faults("pods", faults, made, value, engine="highs", thorough=thorough)
    print(f"\n{tally}\nnever refused: {'; '.join(tally.idle) or 'none'}")
    assert not tally.passed
    assert len(faults) >= 30
    assert len(tally.idle) <= len(faults) // 5  # a fault that is never noticed tests nothing


@pytest.fixture(scope="module")
def proven() -> dict[bool, Any]:
    """Instances proven by slopes alone (True) and by patterns (False) without a fault."""
    found: dict[bool, Any] = {}
    for even, size in ((True, {"nodes": 8, "pods": 30, "seed": 1}), (False, {"nodes": 10, "pods": 40, "seed": 2})):
        found[even] = generate("pods-scale", **size)
        true = PatternsOnly(found[even]).solve("highs", gap=0.01)
        assert true.certificate is not None and true.certificate.claim == "bounded"
    return found


@pytest.mark.parametrize(("name", "target", "change"), faults_of(SPOILT), ids=[f[0] for f in faults_of(SPOILT)])
def test_a_spoilt_proof_proves_less(
    proven: dict[bool, Any], monkeypatch: pytest.MonkeyPatch, name: str, target: str, change: Change
) -> None:
    """The bound is then quoted, and the claim is only feasible."""
    instance = proven["even" in target]
    seed(monkeypatch, target, change)
    spoilt = PatternsOnly(instance).solve("highs", gap=0.01)
    assert spoilt.certificate is not None and spoilt.certificate.claim == "feasible"
    assert [check.name for check in spoilt.certificate.checks if check.how == "quoted"] == ["bound of the balance"]
