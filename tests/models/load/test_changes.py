"""Changes of load partition: equal to an independent program, proven; invalid ones are refused by name."""

from __future__ import annotations

import json
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp

from flowlex.models.load.model import LoadPartition
from flowlex.models.solution import ModelError
from flowlex.validation.certificates import verify
from tests.models.load.test_model import cluster
from tests.seeds import seeds
from tests.touched import assert_not_optimal

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


class Oracle:
    """The changed problem by HiGHS over (block, holder, node), trying each finish time; it reads only the data."""

    def __init__(self, instance, objective, level):
        self.makespan = objective == "makespan"
        names = [node.name for node in instance.nodes]
        self.power = [Fraction(node.configuration) for node in instance.nodes]
        self.total = sum(block.items for block in instance.blocks)
        quota = [p * self.total / sum(self.power) for p in self.power]
        self.target = [int(q) for q in quota]
        order = sorted(range(len(quota)), key=lambda i: self.target[i] - quota[i])
        for i in order[: self.total - sum(self.target)]:
            self.target[i] += 1
        lies = [sum(b.items for b in instance.blocks if b.holders[0] == name) for name in names]
        one_way = level == "node" and not self.makespan
        links = {(link.source, link.target): link.seconds_per_item for link in instance.links}
        self.labels, self.high, self.cost = [], [], []
        for block in instance.blocks:
            for h in block.holders if level == "item" else block.holders[:1]:
                for k, n in enumerate(names):
                    i = names.index(h)
                    if h == n or not one_way or (lies[i] > self.target[i] and lies[k] <= self.target[k]):
                        self.labels.append({"block": block.name, "holder": h, "node": n})
                        self.high.append(float(block.items))
                        self.cost.append(0.0 if h == n else links.get((h, n), instance.seconds_per_item))
        self.low = [0.0] * len(self.high)
        self.rows = [(self.member({"block": b.name}), b.items, b.items) for b in instance.blocks]
        self.on_node = [self.member({"node": n}) for n in names]
        self.free = set()  # nodes whose target is dropped
        self.relaxed = False

    def member(self, where):
        return np.array([all(label[k] == v for k, v in where.items()) for label in self.labels], float)

    def milp(self, node_rows):
        rows = [*self.rows, *node_rows]
        constraints = [LinearConstraint(a, low, high) for a, low, high in rows]
        whole = np.full(len(self.cost), not self.relaxed)
        return milp(self.cost, constraints=constraints, bounds=Bounds(self.low, self.high), integrality=whole)

    def solve(self):
        """Return (number of finish times passed, moved cost); None if infeasible."""
        if not self.makespan:
            fixed = [
                (a, t, t) for k, (a, t) in enumerate(zip(self.on_node, self.target, strict=True)) if k not in self.free
            ]
            found = self.milp(fixed)
            return None if found.x is None else (None, found.fun)
        times = sorted({Fraction(n) / p for p in self.power if p for n in range(self.total + 1)})
        enough = [t for t in times if sum(int(p * t) for p in self.power) >= self.total]
        for k, time in enumerate(enough):
            found = self.milp([(a, 0, int(p * time)) for a, p in zip(self.on_node, self.power, strict=True)])
            if found.x is not None:
                return k, found.fun
        return None


def changed(model, oracle, rng):
    """The model and the oracle with the same random changes."""
    x = model.variables["x"]

    def some_labels():
        levels = rng.permutation(["block", "holder", "node"])[: int(rng.integers(1, 3))]
        label = oracle.labels[int(rng.integers(len(oracle.labels)))]
        return {str(level): label[str(level)] for level in levels}

    for k in range(int(rng.integers(1, 4))):
        kind = str(rng.choice(["cap", "floor", "by", "cost", "upper", "fix", "drop", "variable", "relaxed"]))
        where, side = some_labels(), int(rng.integers(0, 7))
        member = oracle.member(where)
        if kind in ("cap", "floor"):
            factor = int(rng.integers(1, 4))
            chosen = factor * x.sel(**where).sum()
            model = model.with_constraint(f"{kind}{k}", chosen <= side if kind == "cap" else chosen >= side / 2)
            oracle.rows.append(
                (factor * member, -np.inf, side) if kind == "cap" else (factor * member, side / 2, np.inf)
            )
        elif kind == "by":
            model = model.with_constraint(f"by{k}", x.sum(by=["holder", "node"]) <= side + 3)
            for pair in {(label["holder"], label["node"]) for label in oracle.labels}:
                oracle.rows.append((oracle.member(dict(zip(("holder", "node"), pair, strict=True))), -np.inf, side + 3))
        elif kind == "cost":
            model = model.with_cost(0.25 * side * x.sel(**where).sum())
            oracle.cost = list(np.array(oracle.cost) + 0.25 * side * member)
        elif kind == "upper" or (kind == "fix" and side > min(np.array(oracle.high)[member > 0])):
            model = model.with_bounds(x.sel(**where), upper=side + 7)
            oracle.high = [side + 7.0 if m else h for m, h in zip(member, oracle.high, strict=True)]
        elif kind == "fix":
            value = max(0, side - 3)
            if any(m and not low <= value <= h for m, low, h in zip(member, oracle.low, oracle.high, strict=True)):
                continue
            model = model.with_fixed(x.sel(**where), value)
            oracle.low = [value if m else v for m, v in zip(member, oracle.low, strict=True)]
            oracle.high = [value if m else v for m, v in zip(member, oracle.high, strict=True)]
        elif kind == "drop" and not oracle.makespan:
            node = int(rng.integers(len(oracle.on_node)))
            if node not in oracle.free and len(oracle.free) + 1 < len(oracle.on_node):
                model = model.without("node", f"n{node}")
                oracle.free.add(node)
        elif kind == "variable":  # items above a soft limit cost a second each
            model = model.with_variable(f"over{k}", upper=100)
            over = model.variables[f"over{k}"]
            model = model.with_constraint(f"soft{k}", model.variables["x"].sel(**where).sum() - over.sum() <= side)
            model = model.with_cost(over.sum())
            oracle.rows = [(np.append(a, 0), low, high) for a, low, high in oracle.rows]
            oracle.rows.append((np.append(member, -1), -np.inf, side))
            oracle.on_node = [np.append(a, 0) for a in oracle.on_node]
            oracle.labels.append(dict.fromkeys(("block", "holder", "node")))
            oracle.cost, oracle.low, oracle.high = [*oracle.cost, 1.0], [*oracle.low, 0.0], [*oracle.high, 100.0]
            return model
        elif kind == "relaxed" and not oracle.makespan:
            model, oracle.relaxed = model.relaxed(), True
    return model


@pytest.mark.parametrize("seed", seeds(30, 120))
def test_random_changes_equal_an_independent_program(seed):
    rng = np.random.default_rng(seed)
    objective, level = VARIANTS[seed % 4]
    instance = random_cluster(rng)
    oracle = Oracle(instance, objective, level)
    model = changed(LoadPartition(instance, objective=objective, level=level), oracle, rng)
    wanted, solution = oracle.solve(), model.solve()
    if wanted is None:
        assert str(solution.status) == "infeasible" and solution.certificate.claim == "infeasible"
        return
    if model.changes:
        assert float(solution.stages["moved"]) == pytest.approx(wanted[1], rel=1e-9, abs=1e-6)
        assert solution.stages.get("makespan") == wanted[0]
    certificate = verify(json.loads(json.dumps(solution.to_dict())), instance)
    assert certificate.ok and certificate.claim == "optimal"
    assert solution.after.sum() == solution.before.sum() or oracle.relaxed


@pytest.mark.parametrize("seed", range(16))
def test_the_unchanged_statement_has_the_optimum_of_the_network(seed):
    instance = random_cluster(np.random.default_rng(seed))
    for objective, level in VARIANTS:
        model = LoadPartition(instance, objective=objective, level=level)
        run = model.problem.solve()
        solution = model.solve("network")
        value, bound = run.stages["moved"].exact
        assert value == bound == solution.exact_objective_s
        assert "makespan" not in run.stages or run.stages["makespan"].value == 0


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


FAULTS = {
    "value": lambda d: d["values"]["x"].update({"b0,n0,n0": 9}),
    "moved value": lambda d: d["values"]["x"].update({"b0,n0,n0": 3, "b0,n0,n1": 5, "b0,n0,n2": 1}),
    "lost value": lambda d: d["values"].pop("late"),
    "rule lost": lambda d: d["changes"].update(changes=[]),
    "side": lambda d: d["changes"]["changes"][0].update(rhs=0),
    "label": lambda d: d["changes"]["changes"][0]["terms"][0]["where"].update(node="n1"),
    "cost lost": lambda d: d["changes"]["changes"].pop(),
    "objective": lambda d: d.update(objective=4, bound=4),
    "stage": lambda d: d["stages"].update(makespan=0),
    "stage lost": lambda d: d["stages"].pop("makespan"),
    "leaves lost": lambda d: d["proof"]["stages"].update(makespan=[]),
    "multiplier": lambda d: d["proof"]["stages"]["moved"][0]["rows"].update(finish={"at": {"n0": -3}}),
    "wrong sign": lambda d: d["proof"]["stages"]["makespan"][0]["rows"].update(finish={"at": {"n0": 1}}),
    "objective of another kind": lambda d: d["options"].update(objective="targets"),
    "level": lambda d: d["options"].update(level="item", capacity="history"),
}


@cache
def ruled():
    """An answer under a rule and a cost, and its instance."""
    model = LoadPartition(cluster([1, 1, 1], [(9, [0])]), objective="makespan")
    x = model.variables["x"]
    model = model.with_constraint("few", x.sel(node="n2").sum() <= 1).with_cost(0.5 * x.sel(node="n1").sum())
    document = json.loads(json.dumps(model.solve().to_dict()))
    assert verify(document, model.instance).claim == "optimal"
    return document, model.instance


@pytest.mark.parametrize("name", FAULTS)
def test_seeded_faults_are_refused(name):
    assert_not_optimal(FAULTS[name], *ruled())
