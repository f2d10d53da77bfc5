"""Balance by node patterns: the same optimum as by enumeration, and as with classes of single nodes and pods."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowlex.formulations.engines.highs import solve_arrays
from flowlex.formulations.solver_outcome import SolveOptions, Status
from flowlex.instances.generators import generate
from flowlex.instances.pods import Pod, PodInstance, PodNode
from flowlex.models.pods.methods.admission import SearchLimits
from flowlex.models.pods.methods.annealing import Annealing
from flowlex.models.pods.methods.balance import tangents
from flowlex.models.pods.methods.compiled_patterns import enumerate_patterns
from flowlex.models.pods.methods.node_patterns import Pricing
from flowlex.models.pods.methods.placement_policies import EVEN, by_priority, place_by
from flowlex.models.pods.methods.search_state import SearchState
from flowlex.models.pods.model import PodPlacement
from flowlex.models.pods.problem.balance_measures import MEASURES
from flowlex.models.pods.problem.cluster import Cluster, running_cluster
from flowlex.models.pods.problem.node_and_pod_classes import Demand, NodeClasses
from flowlex.validation.restated.pods.instance_data import balance_of
from tests.models.pods.enumeration import all_ways


class PatternsFirst(PodPlacement):
    """Solve small instances like large ones, without the final integer program over pods."""

    limits = SearchLimits(direct=-1, intervals=60, proven=-1)


def cluster_of(pods: list[tuple[int, int, int]], nodes: int = 3, large: bool = False) -> PodInstance:
    """Equal nodes with one card of 8 GB, and one larger node without."""
    kinds = [PodNode(name=f"n{k}", cpu_cores=8, memory_gb=16, cards=1, card_gb=8) for k in range(nodes)]
    kinds += [PodNode(name="big", cpu_cores=16, memory_gb=24)] if large else []
    return PodInstance(
        nodes=tuple(kinds),
        pods=tuple(
            Pod(name=f"p{k}", cpu_cores=c, memory_gb=m, gpu_memory_gb=g, priority=k % 2)
            for k, (c, m, g) in enumerate(pods)
        ),
    )


sizes = st.tuples(st.integers(1, 7), st.integers(1, 12), st.sampled_from([0, 0, 3, 5]))


@pytest.mark.parametrize("measure", list(MEASURES))
def test_patterns_find_the_optimum_of_trying_all(measure: Any) -> None:
    @settings(max_examples=12, deadline=None, derandomize=True)
    @given(st.lists(sizes, max_size=5))
    def check(pods: list[tuple[int, int, int]]) -> None:
        instance = cluster_of(pods, nodes=2, large=True)
        tried = all_ways(instance, {"balance": measure})
        assert tried is not None
        solution = PatternsFirst(instance, balance=measure).solve("highs")
        assert [n for n, _, _ in solution.admitted.values()] == tried[0]
        assert solution.bound <= tried[1] + 1e-6  # the bound holds, whether or not the gap closed
        assert solution.objective >= tried[1] - 1e-6
        if solution.status is Status.OPTIMAL:
            assert solution.objective == pytest.approx(tried[1], abs=2e-6)

    check()


def test_only_equal_nodes_are_one_class() -> None:
    same = {"cpu_cores": 8, "memory_gb": 16}
    nodes = [
        PodNode(name="a", **same),
        PodNode(name="b", **same),
        PodNode(name="label", **same, labels={"zone": "x"}),
        PodNode(name="taint", **same, taints=("t",)),
        PodNode(name="runs", **same),
        PodNode(name="runs too", **same),
        PodNode(name="home", **same),
        PodNode(name="home too", **same),
    ]
    pods = [
        Pod(name="p", cpu_cores=1, node="runs"),
        Pod(name="q", cpu_cores=1, node="runs too"),
        Pod(name="r", cpu_cores=1, node="home", move_cost=1),
        Pod(name="s", cpu_cores=1, node="home too", move_cost=1),
    ]
    instance = PodInstance(nodes=tuple(nodes), pods=tuple(pods))
    assert NodeClasses.of_instance(instance, 1.0).of.tolist() == [0, 0, 1, 2, 3, 3, 4, 5]
    assert NodeClasses.of_instance(instance, 0.5).of.tolist() == [0, 0, 1, 2, 3, 3, 3, 3]  # they cannot move


@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 6), st.sampled_from([0, 3, 4, 5])), min_size=1, max_size=4),
    st.sampled_from(list(MEASURES)),
    st.integers(0, 2**16),
)
def test_a_priced_pattern_is_the_best_of_all(pods: Any, measure: str, seed: int) -> None:
    """Pattern enumeration compared with all counts, with exactly packed cards."""
    instance = PodInstance(
        nodes=(PodNode(name="n", cpu_cores=12, memory_gb=14, cards=2, card_gb=8),),
        pods=tuple(
            Pod(name=f"p{k}{c}", cpu_cores=a, memory_gb=b, gpu_memory_gb=g)
            for k, (a, b, g) in enumerate(pods)
            for c in range(2)
        ),
    )
    view, model = instance.arrays, PodPlacement(instance)
    demand = Demand.of_program(instance, model.placeable, {0: 99})
    rng = np.random.default_rng(seed)
    prices, slope = rng.uniform(-1, 4, len(demand.pod)).round(2), float(rng.uniform(-1, 1))
    made = {"cards": True, "measure": MEASURES[measure], "centre": 0.4, "scale": 0.1}
    pricing = Pricing(view, demand, 0, **made)
    pricing.low, pricing.high = -1.5, 2.0

    def cost(load: float) -> float:
        if measure == "deviation":
            return (load + 1.5) * (load - 2.0)
        return max(0.0, load - 2.0, -1.5 - load) if measure == "mean_absolute" else 0.0

    best = np.inf
    for counts in itertools.product(*(range(int(m) + 1) for m in demand.most)):
        load = (float(demand.load[:, 0] @ np.array(counts)) - 0.4) / 0.1
        pattern = [p for g, n in enumerate(counts) for p in np.flatnonzero(demand.of == g)[:n].tolist()]
        wanted = [float(view.gpu[p, 0]) for p in pattern if view.gpu_cards[p]]
        packs = any(
            sum(w for w, on in zip(wanted, ways, strict=True) if on) <= 8
            and sum(w for w, on in zip(wanted, ways, strict=True) if not on) <= 8
            for ways in itertools.product((0, 1), repeat=len(wanted))
        )
        if view.cpu[pattern].sum() <= 12 and view.memory[pattern].sum() <= 14 and packs:
            if measure == "max_load" and load > 2.0 + 1e-9:
                continue
            best = min(best, cost(load) + (slope * load if measure != "max_load" else 0) - float(prices @ counts))
    bound, pattern = pricing.best(prices, slope if measure != "max_load" else 0.0, tolerance=1e-6, limit=10**7)
    assert pattern is not None
    assert bound == pytest.approx(best, abs=3e-3) and bound <= best + 1e-5


def test_annealing_keeps_every_limit_and_is_seeded() -> None:
    instance: Any = generate("pods-scale", nodes=10, pods=90, seed=2, running=0.3)
    running = running_cluster(instance.arrays, cards=True)
    assert running is not None
    start = place_by(EVEN, running, by_priority(instance.arrays))
    one, same = (Annealing(seed=5, steps=50_000).once(start, MEASURES["deviation"]) for _ in range(2))
    assert (one.node == same.node).all()
    assert balance_of(one.loads, "deviation") < balance_of(start.loads, "deviation")
    there = Cluster(instance.arrays).card_free >= 0
    assert one.free.min() >= 0 and one.card_free[there].min() >= 0
    running = instance.arrays.running >= 0
    assert (one.node[running] == instance.arrays.running[running]).all()
    assert ((one.node >= 0) == (start.node >= 0)).all()
    state = SearchState.of(one)
    assert np.allclose(state.cluster(one).loads, one.loads)


@pytest.mark.parametrize("measure", list(MEASURES))
def test_the_relaxation_over_classes_is_that_over_nodes(measure: Any) -> None:
    instance: Any = generate("pods-scale", nodes=12, pods=60, seed=3)
    model = PodPlacement(instance, balance=measure)
    admitted = model.levels.total(model.levels.of >= 0)
    arrays = model.programs.balance(MEASURES[measure], model.levels.stages(admitted), ()).arrays()
    nodes = replace(arrays, integrality=np.zeros(len(arrays.cost), bool))
    coarse = tangents(len(model.bounds.classes.count))
    found = model.bounds.even(MEASURES[measure], admitted, coarse, SolveOptions())
    assert found is not None
    one, other = float(solve_arrays(nodes, SolveOptions()).objective or 0), found[0].bound
    assert other >= one * (1 - 1e-6) - 1e-6  # at least as strong, as its cards are packed in integers
    assert other <= one * 1.2 + 1e-6


def test_the_gap_is_a_share_of_the_balance_and_its_bound_is_proven() -> None:
    instance: Any = generate("pods-scale", nodes=20, pods=100, seed=1)
    solution = PodPlacement(instance).solve("highs", gap=0.02)
    assert solution.gap == pytest.approx((solution.objective - solution.bound) / solution.objective)
    assert solution.gap <= 0.02 and solution.absolute_gap == pytest.approx(solution.objective - solution.bound)
    how = {check.name: check.how for check in solution.certificate.checks}
    assert how["bound of the balance"] == "recomputed" and solution.certificate.claim == "bounded"


def test_without_a_clock_the_same_seed_is_the_same_answer() -> None:
    instance: Any = generate("pods-scale", nodes=12, pods=60, seed=1)
    one, same = (PodPlacement(instance).solve("highs", seed=3, max_steps=2_000) for _ in range(2))
    assert one.to_dict()["answer"] == same.to_dict()["answer"]
    assert (one.objective, one.bound) == (same.objective, same.bound)


def test_the_limit_of_the_enumeration_is_told() -> None:
    shape = np.array([[1.0, 1.0, 0.0, 0.0, 1.0, 8.0]] * 4)
    profit = np.tile(np.arange(10.0), (4, 1))
    law = np.array([0, -1.0, 1.0, 0.0, -5.0, 50.0])
    room, none, no_cards = np.full(4, 30.0), np.zeros(0), np.zeros(0, np.int64)
    order, met = np.arange(4), np.zeros((3, 4), np.int64)
    arguments = (shape, room, none, no_cards, order, 0, 0.0, profit, order, law, 1e-6)
    weak, best = (enumerate_patterns(*arguments, limit, met)[0] for limit in (5, 1_000_000))
    assert best <= weak < np.inf


@pytest.mark.parametrize("measure", list(MEASURES))
def test_the_cheapest_moves_that_keep_the_balance(measure: Any) -> None:
    nodes = [PodNode(name=n, cpu_cores=8, memory_gb=8) for n in "ab"]
    pods = [
        Pod(name="dear", cpu_cores=2, memory_gb=2, node="a", move_cost=5.0),
        Pod(name="cheap", cpu_cores=2, memory_gb=2, node="a", move_cost=1.0),
        Pod(name="there", cpu_cores=2, memory_gb=2, node="b", move_cost=1.0),
        Pod(name="new", cpu_cores=2, memory_gb=2),
        Pod(name="heavy", cpu_cores=4, memory_gb=4, node="a"),
    ]
    instance = PodInstance(nodes=tuple(nodes), pods=tuple(pods))
    free = PodPlacement(instance, balance=measure, move_budget=9.0).solve("highs")
    least = PodPlacement(instance, balance=measure, move_budget=9.0, moves="least").solve("highs")
    assert least.objective == pytest.approx(free.objective, abs=2e-6)
    assert least.moved_cost == 1.0 <= free.moved_cost
    assert least.to_dict()["answer"]["placement"]["cheap"] == "b" and least.metrics()["move_cost"] == 1.0
