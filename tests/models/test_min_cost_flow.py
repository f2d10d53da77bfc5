"""Minimum-cost flow: a hand-solved network, every engine, infeasible and unbounded ones, pictures."""

from typing import Any

import matplotlib as mpl
import pytest

from flowlex.instances.dimacs import parse_dimacs
from flowlex.instances.min_cost_flow import NetworkInstance
from flowlex.models.min_cost_flow import MinCostFlow

mpl.use("Agg")

ENGINES = ("pulp", "highs", "network")


def network(**changes: Any) -> NetworkInstance:
    """Two units from 0 to 2: over 1 at cost 1 + 1 (capacity 1), or directly at cost 5. Optimum 2 + 5."""
    data: dict[str, Any] = {
        "name": "hand",
        "supply": (2, 0, -2),
        "tail": (0, 1, 0),
        "head": (1, 2, 2),
        "lower": (0, 0, 0),
        "upper": (1, None, 4),
        "cost": (1, 1, 5),
    }
    return NetworkInstance(**{**data, **changes})


@pytest.mark.parametrize("engine", ENGINES)
def test_hand_solved(engine: Any) -> None:
    solution = MinCostFlow(network()).solve(engine)
    assert (solution.status, solution.objective, solution.bound, solution.gap) == ("optimal", 7, 7, 0.0)
    assert solution.to_frame()["flow"].tolist() == [1, 1, 1]
    assert solution.metrics() == {"cost": 7, "arcs_with_flow": 3, "arcs_at_capacity": 1}
    assert solution.duals["flow"].values.tolist()[0] == -3  # one more unit over node 1 saves 5 - 2
    assert solution.certificate is not None
    assert solution.certificate.exact


def test_messages_and_tables_use_the_nodes_numbers_of_the_file() -> None:
    network = parse_dimacs("p min 3 2\nn 1 5\nn 3 -5\na 1 2 0 5 1\na 2 3 0 4 1\n")
    solution = MinCostFlow(network).solve("network")
    assert solution.infeasibility is not None
    assert solution.infeasibility.nodes == ("node[3]",)
    feasible = parse_dimacs("p min 3 2\nn 1 4\nn 3 -4\na 1 2 0 5 1\na 2 3 0 4 1\n")
    frame = MinCostFlow(feasible).solve("network").to_frame()
    assert frame["tail"].tolist() == ["node[1]", "node[2]"]


@pytest.mark.parametrize("cost", [(1, 1, 0), (-1, 1, -1)])
def test_arcs_without_an_upper_bound_have_none_in_changed_models_either(cost: tuple[int, ...]) -> None:
    """Two units from 0 to 2 over 1, and a circulation of three over the arc back; or of ever more, at a gain of 1."""
    circle = network(tail=(0, 1, 2), head=(1, 2, 0), upper=(None, None, None), cost=cost)
    model = MinCostFlow(circle)
    solution = model.with_constraint("back", model.variables["flow"].sel(arc=2).sum() >= 3).solve()
    assert solution.certificate is not None and solution.certificate.verdict == "proven"
    assert (solution.status, solution.objective) == (("optimal", 10) if sum(cost) > 0 else ("unbounded", None))
