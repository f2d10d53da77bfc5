"""Weighted admission and preemption by hand."""

import pytest

from flowlex.formulations.solver_outcome import SolveOptions
from flowlex.instances.pods import Pod, PodInstance, PodNode
from flowlex.models.model_base import ModelError
from flowlex.models.pods.model import PodPlacement
from tests.models.pods.oracles import BySearch, solved


def test_only_more_important_pods_displace_what_runs() -> None:
    node = PodNode(name="a", cpu_cores=4, memory_gb=4)
    runs = Pod(name="runs", cpu_cores=3, priority=1, node="a", preempt_cost=5.0)
    for top, stays in ((0, True), (1, True), (2, False)):
        wants = (Pod(name="x", cpu_cores=2, priority=top), Pod(name="y", cpu_cores=2, priority=top))
        solution = solved(PodInstance(nodes=(node,), pods=(runs, *wants)))
        assert (solution.node[0] >= 0) == stays


def test_the_cheaper_of_two_is_stopped() -> None:
    node = PodNode(name="a", cpu_cores=4, memory_gb=4)
    runs = [Pod(name=f"r{c}", cpu_cores=2, node="a", preempt_cost=c) for c in (1.5, 1.0)]
    pods = (*runs, Pod(name="x", cpu_cores=2, priority=1))
    assert solved(PodInstance(nodes=(node,), pods=pods)).node.tolist() == [0, -1, 0]


def test_a_large_cluster_preempts_by_search_alone() -> None:
    nodes = tuple(PodNode(name=f"n{k}", cpu_cores=8, memory_gb=8) for k in range(6))
    runs = [Pod(name=f"r{k}", cpu_cores=3, priority=k % 3, node=f"n{k // 2}", preempt_cost=1.0) for k in range(12)]
    fresh = [Pod(name=f"p{k}", cpu_cores=4, priority=1) for k in range(8)]
    found = BySearch(PodInstance(nodes=nodes, pods=(*runs, *fresh)))._admit("highs", SolveOptions())
    assert found.cluster is not None and all(a <= b for a, b in zip(found.admitted, found.most, strict=True))
    for p, pod in enumerate(runs):  # only less important ones are stopped
        if found.cluster.node[p] < 0:
            assert pod.priority == 0


def test_worth_without_an_end_as_a_decimal_is_certified() -> None:
    """Files have the nearest float to 7/12: the certificate reads it as the exact multiple of the unit."""
    node = PodNode(name="a", cpu_cores=8, memory_gb=8, cards=2, card_gb=24)
    pods = tuple(Pod(name=f"p{g}", cpu_cores=3, gpu_memory_gb=g) for g in (4, 10, 7.5))
    solution = PodPlacement(PodInstance(nodes=(node,), pods=pods), admission="weighted", worth="gpu").solve("highs")
    assert solution.admitted["worth"][0] == pytest.approx(17.5 / 24)
    assert solution.certificate is not None and str(solution.certificate.claim) == "optimal"


def test_worth_of_too_many_digits_is_refused() -> None:
    node = PodNode(name="a", cpu_cores=8, memory_gb=8, cards=2, card_gb=24)
    pods = (Pod(name="fine", gpu_memory_gb=7.568485734341158), Pod(name="whole", gpu_memory_gb=4))
    with pytest.raises(ModelError, match="such as 'fine', has too many digits for exact sums; round value"):
        PodPlacement(PodInstance(nodes=(node,), pods=pods), admission="weighted", worth="gpu").solve()
