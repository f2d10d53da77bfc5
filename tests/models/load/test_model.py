"""Load partition: optima by hand, independent methods, algorithm 1 is never cheaper, refused inputs."""

import itertools
import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowlex.instances.exact_rationals import rational
from flowlex.instances.load import Block, Link, LoadNode, LoadPartitionInstance, RunRecord
from flowlex.models.load.baselines import algorithm1
from flowlex.models.load.model import LoadPartition
from flowlex.models.load.node_speed import capacities, largest_remainder, least_makespan_loads
from flowlex.models.load.partition_network import PartitionNetwork
from flowlex.models.model_base import ModelError
from flowlex.validation.certificates import CertificateError, verify


def cluster(
    powers: list[float], blocks: list[tuple[int, list[int]]], links: dict[tuple[int, int], float] | None = None
) -> LoadPartitionInstance:
    return LoadPartitionInstance(
        nodes=tuple(LoadNode(name=f"n{i}", configuration=power) for i, power in enumerate(powers)),
        blocks=tuple(
            Block(name=f"b{b}", items=items, holders=tuple(f"n{h}" for h in holders))
            for b, (items, holders) in enumerate(blocks)
        ),
        links=tuple(Link(source=f"n{a}", target=f"n{b}", seconds_per_item=c) for (a, b), c in (links or {}).items()),
        seconds_per_item=1.0,
    )


def test_a_hand_solved_partition() -> None:
    # 8 items on n0 and on n1, equal capacity: 4 each. n0 sends 4 to n2 (1 s), so n1 sends 4 to n3 (2 s).
    links = {(0, 2): 1.0, (0, 3): 3.0, (1, 2): 2.0, (1, 3): 2.0}
    instance = cluster([1, 1, 1, 1], [(8, [0]), (8, [1])], links)
    solution = LoadPartition(instance).solve()
    assert solution.targets == {"n0": 4, "n1": 4, "n2": 4, "n3": 4}
    assert solution.objective == pytest.approx(4 * 1.0 + 4 * 2.0)
    assert solution.moves.tolist() == [[0, 0, 4, 0], [0, 0, 0, 4], [0] * 4, [0] * 4]
    assert solution.certificate is not None and solution.certificate.exact
    algorithm = algorithm1(instance, capacities(instance.nodes, "configuration"))
    assert algorithm.moved_items == solution.moved_items


def test_makespan_first_then_moved_cost() -> None:
    # 10 items on n0 (speed 3), n1 (speed 1): 7/3 and 3/1 s, or 8/3 and 2/1 s: the latter ends first.
    instance = cluster([3, 1], [(10, [0])])
    solution = LoadPartition(instance, objective="makespan").solve()
    assert solution.targets == {"n0": 8, "n1": 2}
    assert solution.finish.max() == pytest.approx(8 / 3)
    # If both have capacity, the expensive node gets only the items that do not fit elsewhere before the deadline.
    wide = cluster([1, 1, 1], [(7, [0])], {(0, 1): 5.0, (0, 2): 1.0})
    assert LoadPartition(wide, objective="makespan").solve().targets == {"n0": 3, "n1": 1, "n2": 3}


small = st.builds(
    cluster,
    st.lists(st.integers(0, 5).map(float), min_size=3, max_size=3).filter(any),
    st.lists(
        st.tuples(st.integers(1, 4), st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True)), max_size=4
    ),
    st.dictionaries(
        st.sampled_from([(a, b) for a in range(3) for b in range(3) if a != b]), st.integers(0, 9).map(float)
    ),
)


@settings(max_examples=20, deadline=None)
@given(small)
def test_the_moved_volume_equals_algorithm_1_and_the_cost_is_never_higher(instance: LoadPartitionInstance) -> None:
    solution = LoadPartition(instance).solve("network")
    algorithm = algorithm1(instance, solution.capacity)
    assert (algorithm.after == solution.after).all()
    assert algorithm.moved_items == solution.moved_items
    assert solution.objective is not None and rational(solution.objective) <= algorithm.cost_s


@settings(max_examples=12, deadline=None)
@given(small, st.sampled_from(["targets", "makespan"]), st.sampled_from(["node", "item"]))
def test_the_optimum_is_that_of_trying_all(instance: LoadPartitionInstance, objective: str, level: str) -> None:
    view = instance.arrays
    items = [b for b, block in enumerate(instance.blocks) for _ in range(block.items)][:7]
    if len(items) < int(view.count.sum()):
        return  # too many to try
    model = LoadPartition(instance, objective=objective, level=level)  # type: ignore[arg-type]
    solution = model.solve("network")
    holders = [[view.home[b]] if level == "node" else np.flatnonzero(view.holds[b]).tolist() for b in items]
    best: tuple[Fraction, Fraction] | None = None
    seconds = {(link.source, link.target): Fraction(link.seconds_per_item) for link in instance.links}
    for choice in itertools.product(range(3), repeat=len(items)):
        loads = np.bincount(choice, minlength=3)
        if any(n and not c for n, c in zip(loads, model.capacities, strict=True)):
            continue
        if objective == "targets" and (loads != model.targets).any():
            continue
        finish = max(Fraction(int(n)) / Fraction(c) for n, c in zip(loads, model.capacities, strict=True) if c)
        paid = (
            min(Fraction(0) if h == n else seconds.get((f"n{h}", f"n{n}"), Fraction(1)) for h in holder)
            for holder, n in zip(holders, choice, strict=True)
        )
        cost = sum(paid, Fraction(0))
        key = (finish if objective == "makespan" else Fraction(0), cost)
        best = key if best is None else min(best, key)
    assert best is not None and solution.objective is not None
    # In the paper's problem only overloaded nodes send, so that the least volume moves: the cost is never lower.
    found = solution.objective
    assert found >= best[1] if (objective, level) == ("targets", "node") else found == best[1]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=6).filter(any), st.integers(0, 500))
def test_targets_and_least_makespan(values: list[float], total: int) -> None:
    capacity = np.array(values)
    targets = largest_remainder(capacity, total)
    assert targets.sum() == total and (targets[capacity == 0] == 0).all()
    finish, most = least_makespan_loads(capacity, total)
    assert most.sum() >= total
    before = sum(max(0, -(-(Fraction(repr(c)) * finish) // 1) - 1) for c in values)  # items ended strictly earlier
    assert total == 0 or before < total


def test_a_function_may_evaluate() -> None:
    instance = cluster([1, 1], [(4, [0])])
    solution = LoadPartition(instance, capacity=lambda node: 3.0 if node.name == "n1" else 1.0).solve()
    assert solution.targets == {"n0": 1, "n1": 3}


def test_evaluations() -> None:
    node = LoadNode(name="n", configuration=8, cpu_free=0.2, history=(RunRecord(items=90, seconds=3),))
    assert [capacities([node], e)[0] for e in ("configuration", "cpu_load", "history")] == [8, Fraction(2, 5), 30]
    assert capacities([LoadNode(name="n", cpu_free=0.9)], "cpu_load")[0] == 1.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"capacity": "history"}, "node 'n0' has no run history"),
        ({"capacity": "cpu_load"}, "node 'n0' has no cpu_free"),
        ({"capacity": "speed"}, "capacity='speed'\\): must be 'configuration', .* or 'performance'"),
        ({"capacity": lambda node: -1.0}, "capacity of node 'n0' is -1.0; it must be a number of at least 0"),
        ({"capacity": lambda node: float("nan")}, "capacity of node 'n0' is nan"),
        ({"capacity": lambda node: "fast"}, "capacity of node 'n0' is 'fast'; it must be a number of at least 0"),
        ({"capacity": lambda node: 0.0}, "all capacities are zero"),
        ({"objective": "cost"}, "objective='cost'\\): must be 'targets' or 'makespan'"),
        ({"level": "rack"}, "level='rack'\\): must be 'node' or 'item'"),
    ],
)
def test_what_a_model_refuses(options: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        LoadPartition(cluster([1, 1], [(4, [0])]), **options)  # type: ignore[arg-type]


def test_a_wrong_answer_fails_its_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    model = LoadPartition(cluster([1, 1], [(4, [0])]))
    broken = PartitionNetwork.parts
    twice = lambda *given: (*broken(*given)[:2], broken(*given)[2] * 2)  # noqa: E731
    monkeypatch.setattr(PartitionNetwork, "parts", twice)
    with pytest.raises(CertificateError, match=r"group\[b0\]"):
        model.solve()


def test_capacities_are_the_numbers_that_are_written() -> None:
    # Each of these is optimal without moves; read as binary floats, one item moved.
    even = cluster([4.0, 3.2, 3.5], [(10, [0]), (7, [1]), (8, [2])])
    assert LoadPartition(even, objective="makespan").solve("network").moved_items == 0
    run = [RunRecord(items=1, seconds=10), RunRecord(items=3, seconds=10)]
    nodes = tuple(LoadNode(name=f"n{i}", history=(r,)) for i, r in enumerate(run))
    blocks = (Block(name="a", items=1, holders=("n0",)), Block(name="b", items=3, holders=("n1",)))
    history = LoadPartitionInstance(nodes=nodes, blocks=blocks)
    for objective in ("targets", "makespan"):
        model = LoadPartition(history, capacity="history", objective=objective)  # type: ignore[arg-type]
        assert model.solve("network").moved_items == 0
    written = cluster([2.3, 4.0, 3.8, 1.9], [(24, [0])])
    assert list(LoadPartition(written).solve("network").targets.values()) == [5, 8, 7, 4]


def test_costs_are_exact_however_small_or_large() -> None:
    # 5 of 10 items move at 0.1 microseconds each; at 10**6 seconds 10**12 items pay 5 * 10**17.
    tiny = cluster([1, 1], [(10, [0])], {(0, 1): 1e-7})
    assert LoadPartition(tiny).solve("network").objective == 5e-7
    huge = cluster([1, 1], [(10**12, [0])], {(0, 1): 1e6})
    for engine in ("network", "highs", "pulp"):
        solution = LoadPartition(huge).solve(engine)  # type: ignore[arg-type]
        assert solution.objective == 5 * 10**17
        assert solution.certificate is not None and solution.certificate.claim == "optimal"
    both = cluster([1, 1, 1], [(10**12, [0]), (10**12, [0]), (10**12, [0])], {(0, 1): 1e6, (0, 2): 1e-7})
    assert LoadPartition(both).solve("network").objective == 10**18 + 10**5
    assert algorithm1(both, [1.0] * 3).cost_s == 10**18 + 10**5


def test_costs_without_a_common_unit_give_a_bound_not_a_false_optimum() -> None:
    # Rounded to multiples of 1e6 / 2**53 s, links of 1e-12 and 2e-12 s cost the same.
    found = []
    for straight, across in ((1e-12, 2e-12), (2e-12, 1e-12)):
        links = {(0, 2): straight, (1, 3): straight, (0, 3): across, (1, 2): across, (2, 0): 1e6}
        instance = cluster([1.0] * 4, [(4, [0]), (4, [1])], links)
        solution = LoadPartition(instance).solve("network")
        certificate = verify(json.loads(json.dumps(solution.to_dict())), instance)
        assert certificate.ok
        if solution.objective == 4e-12:
            assert certificate.claim == "optimal"
            continue
        found.append(solution)
        assert (str(solution.status), certificate.claim, solution.objective) == ("feasible", "bounded", 8e-12)
        assert solution.bound is not None and solution.bound <= 4e-12
        assert "Move costs have no common unit that 64 bits hold" in solution.message
    assert len(found) == 1  # the engine cannot tell one from the other


def drawn(seed: int) -> LoadPartitionInstance:
    """Nodes of one to five, with sizes from 1e-9 to 1e15, decimals of any length, and often no blocks."""
    rng = np.random.default_rng(seed)

    def number(most: float = 1e6) -> float:
        kinds = (0.0, 1.0, 1 / 3, 0.1, round(float(rng.uniform(0.01, 50)), 2), float(10 ** rng.uniform(-9, 6)), most)
        return kinds[int(rng.integers(len(kinds)))]

    names = [f"{'wé节'[int(rng.integers(3))]}{i}" for i in range(int(rng.integers(1, 6)))]
    nodes = [
        LoadNode(
            name=name,
            configuration=number(1e15) if i else 1.0,
            performance=1 / 3 if i else number() + 1e-9,
            cpu_free=round(float(rng.uniform(0.01, 1)), 3),
            cpu_required=float(rng.uniform(0.01, 1)),
            history=(RunRecord(items=float(10 ** rng.uniform(-3, 9)), seconds=float(10 ** rng.uniform(-6, 9))),),
            true_items_per_s=float(10 ** rng.uniform(-9, 9)),
        )
        for i, name in enumerate(names)
    ]
    sizes = [int(10 ** rng.uniform(0, 12 if rng.random() < 0.2 else 2)) for _ in range(int(rng.integers(0, 5)))]
    blocks = [
        Block(name=f"b{k}", items=n, holders=tuple(rng.permutation(names)[: rng.integers(1, 1 + len(names))].tolist()))
        for k, n in enumerate(sizes)
    ]
    pairs = [(a, b) for a in names for b in names if a != b and rng.random() < 0.4]
    links = tuple(Link(source=a, target=b, seconds_per_item=number()) for a, b in pairs)
    facts = {"nodes": tuple(nodes), "blocks": tuple(blocks), "links": links, "seconds_per_item": number()}
    return LoadPartitionInstance(**facts)  # type: ignore[arg-type]


@pytest.mark.parametrize("engine", ["network", "highs", "pulp"])
@pytest.mark.parametrize("part", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_what_is_solved_verifies_from_its_file(engine: str, part: int) -> None:
    for seed in range(40 + 2000 * part):
        instance, count = drawn(seed), itertools.count(seed)
        capacity = ("configuration", "cpu_load", "history", "performance")[next(count) % 4]
        options = {"objective": ("targets", "makespan")[seed // 4 % 2], "level": ("node", "item")[seed // 8 % 2]}
        solution = LoadPartition(instance, capacity=capacity, **options).solve(engine)  # type: ignore[arg-type]
        certificate = verify(json.loads(json.dumps(solution.to_dict(), allow_nan=False)), instance)
        assert certificate.ok, f"seed {seed}: {certificate}"
        assert certificate.claim == solution.status, f"seed {seed}"


@pytest.mark.parametrize("engine", ["network", "highs", "pulp"])
def test_costs_far_apart_are_proven_and_written_exactly(engine: str) -> None:
    nodes = (LoadNode(name="w0", configuration=1), LoadNode(name="w1", configuration=1))
    block, link = Block(name="b", items=2, holders=("w1",)), Link(source="w1", target="w0", seconds_per_item=1e6)
    usual = 0.3333333333333333
    instance = LoadPartitionInstance(nodes=nodes, blocks=(block,), links=(link,), seconds_per_item=usual)
    solution = LoadPartition(instance).solve(engine)  # type: ignore[arg-type]
    assert (solution.objective, str(solution.status)) == (10**6, "optimal")
    assert verify(json.loads(json.dumps(solution.to_dict())), instance).claim == "optimal"
    # 3 items of 0.3333333333333333 s take what a float writes; no float writes 10.1111111111111101 s.
    for items, each, says in (
        (3, 0.3333333333333333, 0.9999999999999999),
        (13, 0.7777777777777777, "101111111111111101/10000000000000000"),
    ):
        one = cluster([1, 0], [(items, [1])], {(1, 0): each})
        document = LoadPartition(one).solve(engine).to_dict()  # type: ignore[arg-type]
        assert document["objective"] == document["bound"] == document["answer"]["moves"][0]["seconds"] == says


def test_links_dearer_than_usual_are_not_undercut() -> None:
    # The default cost is 1 s. Node 0 pays 5 s to node 1, so it may not use the shared arc; node 2 may.
    instance = cluster([1, 2, 0], [(3, [0]), (3, [2])], {(0, 1): 5.0})
    solution = LoadPartition(instance).solve("network")
    assert (solution.targets, solution.objective) == ({"n0": 2, "n1": 4, "n2": 0}, 8)
    assert solution.move_frame().to_dict("records") == [
        {"source": "n0", "target": "n1", "items": 1, "seconds": 5.0},
        {"source": "n2", "target": "n1", "items": 3, "seconds": 3.0},
    ]
