"""Arrivals and departures of pods: cases by hand, recounts, and the published comparison on the real trace."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flowlex.instances.generators import generate
from flowlex.instances.pods import Pod, PodGang, PodInstance, PodNode, PodSpread
from flowlex.models.model_base import ModelError
from flowlex.models.pods.baselines import POLICIES
from flowlex.models.pods.online_arrivals import Arrivals, gpus_of, live_through, submit_all
from flowlex.validation.restated.pods.instance_data import PodData
from flowlex.validation.restated.pods.verifier import check_placement

TRACE = Path(__file__).parents[3].parent / "shared" / "data" / "openb"


def gpu_pods(*shares: float, **fields: Any) -> tuple[Pod, ...]:
    return tuple(Pod(name=f"p{k}", gpu_share=share, **fields) for k, share in enumerate(shares))


def test_an_arrival_moves_another_pod_where_that_makes_room() -> None:
    """Two half-full cards of 10 GB on two nodes: moving one pod frees a complete card."""
    nodes = tuple(PodNode(name=n, cpu_cores=8, memory_gb=8, cards=1, card_gb=10) for n in "ab")
    pods = (*gpu_pods(0.5, 0.5, 1.0)[:2], Pod(name="whole", gpu_share=1.0))
    instance = PodInstance(nodes=nodes, pods=pods)
    for moves in (0, 1):
        live = Arrivals(instance, "random", moves=moves, seed=3)
        while live.arrive([0, 1]).tolist() not in ([0, 1], [1, 0]):
            live.depart([0, 1])
        assert (live.arrive([2])[0] >= 0) == (moves == 1)
        assert live.moved == moves and live.cluster().card_free.min() >= 0


def test_departed_pods_leave_their_room() -> None:
    node = PodNode(name="a", cpu_cores=8, memory_gb=8, cards=2, card_gb=10)
    live = Arrivals(PodInstance(nodes=(node,), pods=gpu_pods(1.0, 1.0, 1.0)), "fgd")
    assert live.arrive([0, 1, 2]).tolist() == [0, 0, -1]
    live.depart([1, 2])
    assert live.arrive([2]).tolist() == [0] and live.arrive([1]).tolist() == [-1]
    assert live.cluster().node.tolist() == [0, -1, 0]


def test_who_waits_starts_when_another_ends_the_more_important_first() -> None:
    node = PodNode(name="a", cpu_cores=1, memory_gb=8)
    times = [(0.0, 10.0, 0), (1.0, 3.0, 0), (2.0, 5.0, 1), (2.0, None, 0)]
    pods = tuple(
        Pod(name=f"p{k}", cpu_cores=1, created_s=a, deleted_s=b, priority=top) for k, (a, b, top) in enumerate(times)
    )
    life = live_through(PodInstance(nodes=(node,), pods=pods), "first-fit")
    assert life.started_s.tolist() == [0.0, 13.0, 10.0, 15.0]
    assert life.waited_s.tolist() == [0.0, 12.0, 8.0, 13.0]
    assert life.ended_s[:3].tolist() == [10.0, 15.0, 13.0] and np.isnan(life.ended_s[3])


def test_where_all_come_at_one_moment_the_mean_allocation_is_what_stays() -> None:
    node = PodNode(name="n", cpu_cores=8, memory_gb=8, cards=2, card_gb=10)
    pods = gpu_pods(1.0, 1.0, 1.0, created_s=5)
    found = live_through(PodInstance(nodes=(node,), pods=pods[:1]), "first-fit").summary()
    assert found["mean GPU allocation"] == found["peak GPU allocation"] == 0.5
    found = live_through(PodInstance(nodes=(node,), pods=pods), "first-fit").summary()
    assert (found["placed"], found["mean GPU allocation"]) == (2, 1.0)


def test_a_gang_starts_when_all_have_come_and_fit_together() -> None:
    """Two nodes with one card; the gang arrives at 0 and 2, a node is occupied until 5; a single pod runs between."""
    nodes = tuple(PodNode(name=n, cpu_cores=8, memory_gb=8, cards=1, card_gb=10, labels={"rack": "r"}) for n in "ab")
    pods = (
        Pod(name="g0", gpu_share=1.0, gang="g", created_s=0.0, deleted_s=10.0),
        Pod(name="before", gpu_share=1.0, created_s=1.0, deleted_s=5.0),
        Pod(name="g1", gpu_share=1.0, gang="g", created_s=2.0, deleted_s=6.0),
        Pod(name="small", cpu_cores=1, created_s=3.0),
    )
    instance = PodInstance(nodes=nodes, pods=pods, gangs=(PodGang(name="g", within="rack"),))
    for moves in (0, 1):
        life = live_through(instance, "fgd", moves=moves)
        assert life.started_s.tolist() == [5.0, 1.0, 5.0, 3.0]
        assert life.ended_s[:3].tolist() == [15.0, 5.0, 9.0]
    live = Arrivals(instance, "first-fit")
    assert live.arrive([0]).tolist() == [-1] and live.arrive([0, 2]).tolist() != [-1, -1]


def test_a_skew_follows_its_emptiest_rack_as_pods_come_and_go() -> None:
    """A skew of 1: the second pod waits until the other rack has capacity."""
    nodes = tuple(PodNode(name=n, cpu_cores=c, memory_gb=8, labels={"rack": n}) for n, c in (("a", 8), ("b", 1)))
    spread = PodSpread(name="even", over="rack", skew=1)
    pods = tuple(Pod(name=f"p{k}", cpu_cores=1, spreads=("even",), created_s=0.0) for k in range(3))
    block = Pod(name="block", cpu_cores=1, node_labels={"rack": "b"}, created_s=0.0, deleted_s=4.0, priority=5)
    life = live_through(PodInstance(nodes=nodes, pods=(block, *pods), spreads=(spread,)), "first-fit")
    assert sorted(life.started_s.tolist()) == [0.0, 0.0, 4.0, 4.0]


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_what_is_placed_holds_in_the_documents(policy: str) -> None:
    instance: Any = generate("pods-scale", nodes=8, pods=90, seed=4, running=0.1)
    curve = submit_all(instance, policy, moves=1, seed=5)
    cluster, view = curve.cluster, instance.arrays
    assert view.running[view.running >= 0].tolist() == cluster.node[view.running >= 0].tolist()
    on = {p: list(map(int, cards)) for p, cards in cluster.used_cards.items()}
    checks = check_placement(
        PodData(instance, {}), {p: (n, on.get(p, ())) for p, n in enumerate(cluster.node.tolist()) if n >= 0}
    )
    assert all(check.ok for check in checks), [check for check in checks if not check.ok]
    gpus = gpus_of(view)
    assert curve.allocated[-1] == pytest.approx(gpus[cluster.node >= 0].sum() / view.cards.sum())
    again = submit_all(instance, policy, moves=1, seed=5)
    assert again.cluster.node.tolist() == cluster.node.tolist()


def test_wrong_options_are_refused() -> None:
    instance: Any = generate("kubeflow-testbed")
    with pytest.raises(ModelError, match="no policy 'fdg'"):
        Arrivals(instance, "fdg")
    with pytest.raises(ModelError, match="moves must be at least 0, got -1"):
        Arrivals(instance, moves=-1)


@pytest.mark.skipif(not TRACE.is_dir(), reason="the openb trace is not here")
def test_the_published_order_of_policies_on_the_trace() -> None:
    """At 100 % of submitted load the published means are 95.3 (FGD), 92.9 (best fit), 90.6 (dot product), 85.4."""
    files = {"nodes": TRACE / "openb_node_list_gpu_node.csv.gz", "pods": TRACE / "openb_pod_list_default.csv.gz"}
    instance: Any = generate("openb-arrivals", seed=42, **files)
    at = {policy: 100 * submit_all(instance, policy, seed=42).at(1.0) for policy in POLICIES}
    for policy, published in {"fgd": 95.3, "best-fit": 92.9, "dot-product": 90.6, "random": 85.4}.items():
        assert at[policy] == pytest.approx(published, abs=1.5), (policy, at[policy])
    assert max(at, key=lambda policy: at[policy]) == "fgd"
