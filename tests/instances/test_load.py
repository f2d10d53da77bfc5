"""The load-partition instance and its generator."""

from typing import Any

import pytest

from flowlex.instances.files import instance_from_document
from flowlex.instances.generators import generate
from flowlex.instances.instance_base import InstanceError

NODES = [{"name": "a", "configuration": 1.0}, {"name": "b", "configuration": 2.0}]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes": []}, "at least 1 item"),
        ({"nodes": [NODES[0], NODES[0]]}, "two nodes are named 'a'"),
        ({"nodes": [{"name": "a", "configuration": -1}]}, "nodes\\[0\\].configuration: .*greater than or equal to 0"),
        ({"nodes": [{"name": "a", "cpu_free": 1.5}]}, "less than or equal to 1"),
        ({"nodes": [{"name": "a", "history": [{"items": 5, "seconds": 0}]}]}, "greater than 0"),
        ({"blocks": [{"name": "x", "holders": []}]}, "at least 1 item"),
        (
            {"blocks": [{"name": "x", "holders": ["c"]}]},
            "block 'x' lies on node 'c', which does not exist; the nodes are: a, b",
        ),
        ({"blocks": [{"name": "x", "holders": ["a", "a"]}]}, "two holders of block 'x' are named 'a'"),
        ({"blocks": [{"name": "x", "items": 0, "holders": ["a"]}]}, "greater than or equal to 1"),
        (
            {"links": [{"source": "a", "target": "c", "seconds_per_item": 1}]},
            "a link names node 'c', which does not exist",
        ),
        ({"links": [{"source": "a", "target": "a", "seconds_per_item": 1}]}, "a link leads from 'a' to itself"),
        ({"links": [{"source": "a", "target": "b", "seconds_per_item": 1}] * 2}, "two links lead from 'a' to 'b'"),
        ({"seconds_per_item": -1}, "greater than or equal to 0"),
    ],
)
def test_bad_instances_name_the_offender(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InstanceError, match=message):
        instance_from_document({"kind": "load-partition", "nodes": NODES, **change})


def test_the_generator_is_the_papers_setup() -> None:
    instance: Any = generate("inference-cluster", seed=7)
    assert (len(instance.nodes), int(instance.arrays.load.sum())) == (4, 400)
    assert all(len(set(block.holders)) == 2 for block in instance.blocks)
    assert len({node.true_items_per_s for node in instance.nodes}) == 4
    blocks: Any = generate("inference-cluster", items=10, block_items=4, workers=1, replicas=3)
    assert [block.items for block in blocks.blocks] == [4, 4, 2]
