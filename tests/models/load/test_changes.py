"""Changes of load partition: equal to an independent program, proven; invalid ones are refused by name."""

import pytest

from flowlex.models.load.model import LoadPartition
from flowlex.models.solution import ModelError
from tests.models.load.test_model import cluster

VARIANTS = [(objective, level) for objective in ("targets", "makespan") for level in ("node", "item")]


def random_cluster(rng):
    nodes = int(rng.integers(2, 5))
    pairs = [(a, b) for a in range(nodes) for b in range(nodes) if a != b and rng.random() < 0.4]
    return cluster(
        [float(rng.choice([0, 1, 2, 3, 1.5])) for _ in range(nodes - 1)] + [1.0],
        [
            (int(rng.integers(1, 7)), rng.permutation(nodes)[: int(rng.integers(1, 3))].tolist())
            for _ in range(int(rng.integers(1, 5)))
        ],
        {pair: float(rng.integers(0, 30)) / 10 for pair in pairs},
    )


def test_rules_by_hand():
    """12 items on n0, three equal nodes: 4 stay; moving one to n1 costs 1 s, to n2 3 s."""
    model = LoadPartition(cluster([1, 1, 1], [(12, [0])], {(0, 1): 1.0, (0, 2): 3.0}))
    x = model.variables["x"]
    assert model.solve().objective == 4 + 12
    assert model.without("node").solve().objective == 0
    free = model.without("node", ["n0", "n1", "n2"])
    assert free.with_constraint("leave", x.sel(node="n0").sum() <= 5).solve().objective == 7
    few = free.with_constraint("leave", x.sel(node="n0").sum() <= 5).with_bounds(x.sel(node="n1"), upper=4)
    solution = few.solve()
    assert solution.objective == 4 + 9 and solution.targets == {"n0": 5, "n1": 4, "n2": 3}
    assert solution.moves.tolist() == [[0, 4, 3], [0, 0, 0], [0, 0, 0]]
    assert list(model.variables["x"].index) == [("b0", "n0", "n0"), ("b0", "n0", "n1"), ("b0", "n0", "n2")]


def test_the_makespan_is_the_least_under_the_rules():
    """9 items on n0, speeds 1, 1, 1: 3 s; with at most 1 item on n2 it is 4 s, one finish time later."""
    model = LoadPartition(cluster([1, 1, 1], [(9, [0])]), objective="makespan")
    x = model.variables["x"]
    solution = model.with_constraint("few", x.sel(node="n2").sum() <= 1).solve()
    assert dict(solution.stages) == {"makespan": 1, "moved": 5} and solution.finish.max() == 4
    # A cost of 1 per finish time passed leaves the stage unchanged; with a cost of moves in it, more items may stay.
    late = model.with_cost(x.sel(node=["n1", "n2"]).sum(), stage="makespan").solve()
    assert late.stages["makespan"] == 6 and late.targets["n0"] >= 3
    assert [label for label in model.variables["late"].index][:2] == [(1, 3.0), (2, 4.0)]


def test_changes_that_make_no_sense_are_refused():
    instance = cluster([1, 1], [(4, [0])])
    model = LoadPartition(instance, objective="makespan")
    for rows in ("group", "finish", "order"):
        with pytest.raises(ModelError, match=f"rows '{rows}' cannot be dropped"):
            model.without(rows)
    with pytest.raises(ModelError, match="no rows named 'node'"):
        model.without("node")
    with pytest.raises(ModelError, match="no node 'n7'"):
        model.variables["x"].sel(node="n7")
    by_hand = LoadPartition(instance, capacity=lambda node: 1.0)
    with pytest.raises(ModelError, match="no file can hold a function as capacity"):
        by_hand.relaxed()
    huge = LoadPartition(cluster([1, 1], [(10**9, [0])]), objective="makespan")
    with pytest.raises(ModelError, match="finish times, more than"):
        _ = huge.variables
    fine = LoadPartition(cluster([1, 1], [(10**9, [0])], {(0, 1): 0.123456789012}))
    with pytest.raises(ModelError, match="no common unit"):
        _ = fine.variables


def test_split_items_are_said_to_be_rounded():
    model = LoadPartition(cluster([1, 1], [(4, [0])])).without("node").relaxed()
    solution = model.with_constraint("half", 2 * model.variables["x"].sel(node="n1").sum() == 3).solve()
    assert solution.objective == 1.5 and "rounded to integers" in solution.message
