"""Instances as frames and back."""

import pandas as pd
import pytest

from flowlex.instances import GpuInstance, InstanceError, PodInstance, generate
from tests.instances.test_generators import OWN, SMALL


@pytest.mark.parametrize("name", OWN)
def test_frames_and_back_are_the_same_instance(name):
    instance = generate(name, seed=2, **SMALL.get(name, {}))
    assert type(instance).from_frames(**instance.to_frames()) == instance


def test_frames_of_a_user_with_numpy_types_and_missing_values():
    pods = pd.DataFrame(
        {"name": ["p", "q"], "cpu_cores": [1, 2], "priority": [1.0, None], "node_labels": [None, "a=b"]}
    )
    nodes = pd.DataFrame({"name": ["n"], "cpu_cores": [4.0], "memory_gb": [8], "labels": [{"a": "b"}]})
    instance = PodInstance.from_frames(pods=pods, nodes=nodes, name="mine")
    assert instance.name == "mine" and instance.pods[0].priority == 1 and instance.pods[1].node_labels == {"a": "b"}


def test_frames_name_the_row():
    frames = generate("gpu-figure4").to_frames()
    frames["tasks"].loc[2, "memory_gb"] = "much"
    with pytest.raises(InstanceError, match="tasks, row 3, column memory_gb: 'much' is no number"):
        GpuInstance.from_frames(**frames)
