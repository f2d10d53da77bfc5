from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pulp
import pytest

from flowlex.formulations import UNBOUNDED, EngineError, FlowNetwork, NetworkBuilder, solve
from flowlex.formulations.lexicographic.lexicographic_network import optimal_face, solve_lexicographic
from flowlex.validation.certificates import certify_network
from tests.pulp_solver import solver_of_pulp

ENGINES = ("pulp", "highs", "network")


def textbook() -> FlowNetwork:
    """Four nodes: 4 units from 0 to 3; 0-1 (cap 4, cost 2), 0-2 (2, 2), 1-2 (2, 1), 1-3 (3, 3), 2-3 (5, 1).

    The cheapest way is 0-2-3 (3 each, cap 2), then 0-1-2-3 (4 each, cap 2): 4 units cost 2*3 + 2*4 = 14.
    """
    return FlowNetwork.from_arrays(
        [0, 0, 1, 1, 2], [1, 2, 2, 3, 3], upper=[4, 2, 2, 3, 5], cost=[2, 2, 1, 3, 1], supply=[4, 0, 0, -4]
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_a_network_without_anything_costs_nothing(engine: str) -> None:
    assert solve(FlowNetwork.from_arrays([], [], upper=1, cost=1, supply=[]), engine).objective == 0


def test_large_integers_stay_exact() -> None:
    """Costs and flows whose products need more than 53 bits, on the engine that keeps integers throughout."""
    network = FlowNetwork.from_arrays(
        [0, 0], [1, 1], upper=[2**40 + 1, 2**41], cost=[2**50 + 1, 2**50 + 3], supply=[2**41, -(2**41)]
    )
    outcome = solve(network, "network")
    cheap = 2**40 + 1
    assert outcome.objective == cheap * (2**50 + 1) + (2**41 - cheap) * (2**50 + 3)
    assert certify_network(network, outcome).ok


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: {"cost": 2**59, "upper": 1}, "integer overflow: costs along a path can reach"),
        (lambda: {"cost": -(2**62), "upper": 1}, r"is -4611686018427387904 on node\[0\] -> node\[1\]"),
        (lambda: {"cost": -1, "upper": [2**59, 2**59, 2**59]}, "integer overflow: supplies and bounds sum to"),
        (lambda: {"cost": 1, "lower": -(2**59), "upper": 2**59}, "Use a coarser unit of flow"),
        (
            lambda: {"cost": -1, "upper": UNBOUNDED, "supply": [2**58, 0, 0, -(2**58)]},
            "3 arcs of negative cost have no capacity",
        ),
    ],
)
def test_magnitudes_that_could_overflow_are_refused(make: Callable[[], dict[str, Any]], message: str) -> None:
    network = FlowNetwork.from_arrays([0, 1, 2], [1, 2, 3], **{"supply": [0, 0, 0, 0], **make()})
    for engine in ENGINES if "supply" not in make() else ("network",):
        with pytest.raises(EngineError, match=message):
            solve(network, engine)


@pytest.mark.parametrize(
    ("what", "data"),
    [
        ("cost", {"cost": 2**53}),
        ("capacity", {"upper": 2**53 + 1}),
        ("supply", {"lower": 2**53 + 1, "upper": 2**53 + 1, "supply": [2**53 + 1, -(2**53) - 1]}),
        ("lower bound", {"tail": [0, 1], "head": [1, 0], "lower": 2**53 + 1, "upper": 2**55, "supply": [0, 0]}),
    ],
)
def test_floating_engines_refuse_what_they_cannot_hold(what: str, data: dict[str, Any]) -> None:
    one_arc = {"tail": [0], "head": [1], "cost": 1, "upper": 1, "supply": [1, -1]}
    network = FlowNetwork.from_arrays(**(one_arc | data))
    for engine in ("highs", "pulp"):
        with pytest.raises(EngineError, match=f"a {what} of .* is not exact in floating point"):
            solve(network, engine)
    assert solve(network, "network").status == "optimal"


def test_blocks_names_and_views() -> None:
    net = NetworkBuilder("assignment")
    worker = net.nodes("worker", 2, supply=1, labels=["ann", "bob"])
    sink = net.nodes("sink", 1, supply=-2)
    works = net.arcs("works", worker, sink, upper=1, cost=[4, 2])
    spare = net.arcs("spare", 0, 1, labels=["a>b"])
    network = net.build()
    assert (works.tolist(), spare.tolist()) == ([0, 1], [2])
    assert network.node_names == ["worker[ann]", "worker[bob]", "sink[0]"]
    assert network.column_names() == ["works[0]", "works[1]", "spare[a>b]"]
    assert network.describe_arc(1) == "worker[bob] -> sink[0]"
    assert network.upper.tolist() == [1, 1, UNBOUNDED]
    assert network.incidence().toarray().tolist() == [[1, 0, 1], [0, 1, -1], [-1, -1, 0]]
    assert {k: v.tolist() for k, v in network.split_arcs(np.arange(3)).items()} == {"works": [0, 1], "spare": [2]}
    assert {k: v.tolist() for k, v in network.split_nodes(np.arange(3)).items()} == {"worker": [0, 1], "sink": [2]}
    assert network.to_linear_program().row_names() == network.node_names
    assert network.to_linear_program().column_names() == network.column_names()
    net.nodes("later", 1)
    assert list(network.node_blocks) == ["worker", "sink"]
    assert repr(network) == "<flow network 'assignment': 3 nodes, 3 arcs>"


def test_lowered_programs_state_the_objective_in_its_own_measure() -> None:
    network = replace(textbook(), unit=Fraction(1, 10), constant=Fraction(7, 2))
    outcome = solve(network, "network")
    assert outcome.values is not None
    stated = float(network.unit * network.total_cost(outcome.values) + network.constant)
    assert solve(network.to_linear_program(), "highs").objective == pytest.approx(stated)
    problem = network.to_pulp()
    problem.solve(solver_of_pulp())
    assert pulp.value(problem.objective) == pytest.approx(stated) != outcome.objective
    assert network.stated_cost().tolist() == [c / 10 for c in network.cost.tolist()]


def test_networkx_sees_the_same_network() -> None:
    graph = textbook().to_networkx()
    assert graph.nodes[0] == {"demand": -4, "name": "node[0]"}
    assert graph.edges[1, 2, 2] == {"lower": 0, "capacity": 2, "weight": 1}
    assert sorted(key for _, _, key in graph.edges(keys=True)) == [0, 1, 2, 3, 4]
    endless = FlowNetwork.from_arrays([0], [1], upper=UNBOUNDED, cost=1, supply=[0, 0]).to_networkx()
    assert "capacity" not in endless.edges[0, 1, 0]


def test_mistakes_name_the_offender() -> None:
    def make(**changes: Any) -> FlowNetwork:
        data: dict[str, Any] = {"tail": [0, 1], "head": [1, 2], "upper": 1, "cost": 1, "supply": [1, 0, -1]}
        return FlowNetwork.from_arrays(**(data | changes))

    refused: list[tuple[dict[str, Any], str]] = [
        ({"head": [1, 3]}, "arc 1: head 3 is no node; there are 3, from 0"),
        ({"tail": [-1, 1]}, "arc 0: tail -1 is no node"),
        ({"lower": [0, 2]}, r"arc 1 \(node\[1\] -> node\[2\]\): lower bound 2 exceeds upper bound 1"),
        ({"supply": [1, 0, -2]}, "network: supplies sum to -1, they must sum to 0"),
        ({"cost": [0.5, 1]}, "cost of flow: networks are exact, every number must be an integer"),
        ({"cost": [np.nan, 1]}, "cost of flow: networks are exact"),
        ({"upper": np.inf}, r"upper of flow: floating-point numbers beyond 2\*\*53"),
        ({"cost": [2**70, 1]}, f"cost of flow: {2**70} does not fit 64 bits"),
        ({"cost": np.array([2**63, 1], np.uint64)}, f"cost of flow: {2**63} does not fit 64 bits"),
        ({"cost": ["3", 1]}, "cost of flow: networks are exact"),
        ({"cost": [1, 2, 3]}, r"cost of flow: expected one number or 2, got shape \(3,\)"),
        ({"tail": [[0, 1]]}, r"tail of flow: expected one number or a vector, got shape \(1, 2\)"),
        ({"head": [1, 2, 1]}, "flow: 2 tails and 3 heads"),
        ({"node_labels": ["a", "b"]}, "node: 2 labels for 3 members"),
        ({"node_labels": ["a", "b", "a"]}, "two nodes named 'node' have one label"),
    ]
    for changes, message in refused:
        with pytest.raises(ValueError, match=message):
            make(**changes)
    builder = NetworkBuilder("twice")
    builder.nodes("n", 1)
    with pytest.raises(ValueError, match="nodes named 'n' exist already"):
        builder.nodes("n", 1)
    builder.arcs("a", 0, 0)
    with pytest.raises(ValueError, match="arcs named 'a' exist already"):
        builder.arcs("a", 0, 0)
    with pytest.raises(ValueError, match="b: 2 labels for 1 members"):
        builder.arcs("b", 0, 0, labels=[1, 2])


def test_arrays_are_read_only() -> None:
    cost = np.array([1, 2])
    network = FlowNetwork.from_arrays([0, 0], [1, 1], upper=2, cost=cost, supply=[1, -1])
    other = replace(network, cost=cost)
    cost[0] = 9
    assert other.cost.tolist() == [1, 2]
    for made in (network, other):
        for name in ("tail", "head", "lower", "upper", "cost", "supply"):
            with pytest.raises(ValueError, match="read-only"):
                getattr(made, name)[0] = 3


def test_undeclared_groups_are_refused() -> None:
    net = NetworkBuilder("model", rows={"task"}, columns={"runs"})
    task = net.nodes("task", 2)
    with pytest.raises(ValueError, match="model: nodes named 'gpu' belong to no declared equation; declare it beside"):
        net.nodes("gpu", 1)
    with pytest.raises(ValueError, match=r"model: arcs named 'run' belong to no declared equation; .* beside: runs"):
        net.arcs("run", task[0], task[1])


def test_stages_in_strict_order_are_exact_beyond_floating_point() -> None:
    """The first stage's potentials are odd and above 2**53; rounding them made the next stage refuse."""
    dear = 2**53 + 1
    network = FlowNetwork.from_arrays(
        [0, 0, 1, 2], [1, 2, 3, 3], upper=1, cost=[dear, dear, 0, 0], supply=[1, 0, 0, -1]
    )
    stages = solve_lexicographic(network, [network.cost, np.array([1, 0, 0, 0])])
    assert [stage.outcome.objective for stage in stages] == [dear, 0]
    assert stages[-1].outcome.values.tolist() == [0, 1, 0, 1]
    face = optimal_face(network, replace(stages[0].outcome, duals=stages[0].outcome.duals.astype(np.int64)))
    assert face.arc_count == 4
    with pytest.raises(ValueError, match="the duals are not integers"):
        optimal_face(network, replace(stages[0].outcome, reduced_costs=np.zeros(4)))
