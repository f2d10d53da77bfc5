"""Pod instances and their generators."""

from typing import Any

import pytest

from flowlex.instances.files import instance_from_document
from flowlex.instances.generators import generate
from flowlex.instances.instance_base import InstanceError

NODE = {"name": "a", "cpu_cores": 4, "memory_gb": 8}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes": []}, "at least 1 item"),
        ({"nodes": [{**NODE, "cpu_cores": 0}]}, "nodes\\[0\\].cpu_cores: .*greater than 0"),
        ({"nodes": [NODE, NODE]}, "two nodes are named 'a'"),
        ({"nodes": [{**NODE, "cards": 2}]}, "node 'a' needs both cards and card_gb, or neither"),
        ({"pods": [{"name": "p", "cpu_cores": -1}]}, "greater than or equal to 0"),
        ({"pods": [{"name": "p"}, {"name": "p"}]}, "two pods are named 'p'"),
        ({"pods": [{"name": "p", "node": "z"}]}, "pod 'p' runs on node 'z', which does not exist; the nodes are: a"),
        ({"pods": [{"name": "p", "gpu_memory_gb": 1, "gpu_share": 0.5}]}, "give one of them"),
        ({"pods": [{"name": "p", "gpu_cards": 2}]}, "pod 'p' names cards but wants no GPU memory"),
        ({"pods": [{"name": "p", "move_cost": 2}]}, "has a move_cost but runs nowhere"),
        ({"pods": [{"name": "p", "gpu_share": 1.5}]}, "less than or equal to 1"),
    ],
)
def test_bad_instances_name_the_offender(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InstanceError, match=message):
        instance_from_document({"kind": "pod-placement", "nodes": [NODE], **change})


def test_the_testbed_overflows() -> None:
    for seed in range(5):
        instance: Any = generate("kubeflow-testbed", seed=seed)
        assert (len(instance.nodes), len(instance.pods)) == (3, 12)
        view = instance.arrays
        assert view.cpu.sum() > view.capacity[:, 1].sum() or len({n.card_gb for n in instance.nodes}) == 3


def test_running_pods_of_a_generated_cluster_fit() -> None:
    instance: Any = generate("pods-scale", nodes=10, pods=80, running=0.5, seed=3)
    running = [pod for pod in instance.pods if pod.node]
    assert 20 < len(running) <= 40 and {pod.move_cost for pod in running} == {None, 1.0}
    view = instance.arrays
    for n in range(10):
        here = view.running == n
        assert view.cpu[here].sum() <= view.capacity[n, 1] and view.memory[here].sum() <= view.capacity[n, 2]
