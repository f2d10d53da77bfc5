"""The paper's setting: draws, readings of its incomplete formula, queue, native Kubernetes, genetic algorithm."""

import itertools
from typing import Any

import numpy as np
import pytest

from flowlex.formulations.solver_outcome import Status
from flowlex.instances import generate
from flowlex.instances.pods import Pod, PodInstance, PodNode
from flowlex.models.model_base import ModelError
from flowlex.models.pods.baselines import BASELINES, compare, place
from flowlex.models.pods.genetic_algorithm import GeneticSettings, _crossed, genetic
from flowlex.models.pods.model import PodPlacement
from flowlex.models.pods.problem.cluster import Cluster, deviation
from flowlex.validation.restated.pods.instance_data import rates_of


def test_single_digits_make_gpu_memory_the_bottleneck() -> None:
    scarcest = []
    for seed in range(6):
        instance: Any = generate("kubeflow-testbed", seed=seed, draws="digits")
        sizes = [(p.cpu_cores, p.memory_gb, p.gpu_memory_gb) for p in instance.pods]
        assert all(size == int(size) <= 9 for row in sizes for size in row)
        asked = np.array(sizes).sum(axis=0)[[2, 0, 1]]
        scarcest.append(int(np.argmax(asked / instance.arrays.capacity.sum(axis=0))))
        wants = [p for p in instance.pods if p.wants_gpu]
        for p in wants:  # a GPU pod on the CPU node fails, a CPU pod may go anywhere
            assert instance.arrays.allowed[instance.pods.index(p)].tolist() == [True, True, False]
        others = [k for k, p in enumerate(instance.pods) if not p.wants_gpu]
        assert instance.arrays.allowed[np.array(others)].all()
    assert scarcest == [0] * 6


def test_readings_of_the_load_by_hand() -> None:
    nodes = (
        PodNode(name="a", cpu_cores=8, memory_gb=32, cards=2, card_gb=16),
        PodNode(name="b", cpu_cores=24, memory_gb=32),
    )
    pod = Pod(name="p", cpu_cores=4, memory_gb=16, gpu_memory_gb=8)
    share = np.array([1.0, 0.25, 0.5])  # of GPU memory, cores, memory: what node a has of the cluster
    used, of_all = np.array([8 / 32, 4 / 8, 16 / 32]), np.array([8 / 32, 4 / 32, 16 / 64])
    for reading, load in {
        "normalised": share @ used / 1.75,
        "raw": share @ used / 3,
        "equal": used.mean(),
        "cluster": share @ of_all / 1.75,
    }.items():
        instance = PodInstance(nodes=nodes, pods=(pod,), load_reading=reading)
        assert instance.arrays.load[0, 0] == pytest.approx(load)
        assert rates_of(instance)[0] @ [8, 4, 16] == pytest.approx(load)  # the certificate's own
        solution = PodPlacement(instance).solve("highs")
        assert solution.status is Status.OPTIMAL and solution.loads.max() == pytest.approx(load)


def test_no_placement_of_the_same_pods_is_more_even_in_a_reading_than_its_optimum() -> None:
    instance: Any = generate("kubeflow-testbed", seed=3, pods=9)
    found = {}
    for reading in ("normalised", "raw", "equal", "cluster"):
        found[reading] = PodPlacement(instance.model_copy(update={"load_reading": reading})).solve("highs")
        assert found[reading].status is Status.OPTIMAL
    first = found["normalised"]
    for other in found.values():
        if ((other.node < 0) == (first.node < 0)).all():
            assert deviation(Cluster.of(instance.arrays, other.node, {}, cards=False).loads) >= first.objective - 2e-6


def test_the_queue_backfills_and_native_kubernetes_takes_whole_cards() -> None:
    nodes = (PodNode(name="a", cpu_cores=8, memory_gb=32, cards=2, card_gb=16),)
    large, small = Pod(name="large", cpu_cores=9, priority=2), Pod(name="small", cpu_cores=2, priority=1)
    queue = place(PodInstance(nodes=nodes, pods=(large, small)), "priority-queue")
    assert queue.node.tolist() == [-1, 0]  # a pod that does not fit waits, the next one that fits is placed
    parts = [Pod(name=f"p{k}", cpu_cores=1, gpu_memory_gb=4, priority=k, created_s=9 - k) for k in range(3)]
    instance = PodInstance(nodes=nodes, pods=tuple(parts))
    assert (place(instance, "priority-queue").node >= 0).all()  # they share cards
    native = place(instance, "whole-cards")
    assert native.node.tolist() == [-1, 0, 0]  # as submitted, a card each; the first stays pending
    assert {cards.tolist()[0] for cards in native.used_cards.values()} == {0, 1}
    with pytest.raises(ModelError, match=r"there is no policy 'best'; there are: first-fit, .*, whole-cards"):
        place(instance, "best")


def test_balances_are_compared_at_equal_admission() -> None:
    instance: Any = generate("kubeflow-testbed", seed=2, draws="digits")
    table = compare(instance)
    assert list(table.index)[1:] == ["genetic algorithm", *BASELINES] and table.index[0].startswith("optimum (")
    both = table[["sigma", "sigma, same pods"]].dropna()
    assert len(both) >= len(BASELINES) and (both["sigma"] >= both["sigma, same pods"] - 2e-6).all()
    first = table.index[0]
    assert table.loc[first, "sigma"] == pytest.approx(table.loc[first, "sigma, same pods"], abs=2e-6)


def test_children_change_parents_at_points() -> None:
    rng = np.random.default_rng(0)
    a, b = np.zeros(12, np.int64), np.ones(12, np.int64)
    for points in (0, 1, 2, 5, 40):
        for _ in range(20):
            child = _crossed(a, b, points, rng)
            assert sum(x != y for x, y in itertools.pairwise(child.tolist())) == min(points, 11) and child[0] == 0


def test_evolution_moves_running_pods_within_the_budget() -> None:
    nodes = tuple(PodNode(name=name, cpu_cores=8, memory_gb=8) for name in "ab")
    runs = [Pod(name=f"r{k}", cpu_cores=2, memory_gb=2, node="a", move_cost=1.0) for k in range(3)]
    instance = PodInstance(nodes=nodes, pods=(*runs, Pod(name="x", cpu_cores=2, memory_gb=2)))
    quick = GeneticSettings(population=12, generations=10)
    everyone = np.ones(4, bool)
    stays = genetic(instance, everyone, settings=quick)
    assert stays.cluster is not None and stays.cluster.node.tolist() == [0, 0, 0, 1]
    moves = genetic(instance, everyone, settings=quick, move_budget=1.0)
    assert moves.cluster is not None and moves.deviation == 0.0
    for budget, found in ((0.0, stays), (1.0, moves)):
        best = PodPlacement(instance, move_budget=budget).solve("highs")
        assert best.objective == pytest.approx(found.deviation, abs=1e-6)
        assert deviation(best.loads) <= found.deviation + 1e-6
