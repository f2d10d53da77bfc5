"""Strategies: small valid instances of every kind, within the given sizes."""

import pytest
from hypothesis import find, given, settings, strategies

from flowlex.instances import kinds
from flowlex.instances.files import instance_from_document
from flowlex.testing import instances


@pytest.mark.parametrize("kind", kinds())
def test_every_kind_has_a_strategy_of_valid_instances(kind):
    @settings(max_examples=8)
    @given(instances(kind))
    def check(instance) -> None:
        assert instance.kind == kind
        assert instance_from_document(instance.model_dump(mode="json")) == instance

    check()


@settings(max_examples=10)
@given(instances("gpu-assignment", tasks=4, nodes=(2, 3), jobs=2, running=0.0))
def test_sizes_bound_what_is_drawn(instance):
    assert 1 <= sum(len(job.tasks) for job in instance.jobs) <= 4
    assert 2 <= len(instance.nodes) <= 3 and len(instance.jobs) <= 2
    assert not any(task.running for job in instance.jobs for task in job.tasks)


def test_a_failure_shrinks_to_a_small_instance():
    few = settings(max_examples=25, database=None)
    drawn = instances("load-partition", workers=strategies.integers(1, 9))
    found = find(drawn, lambda instance: len(instance.nodes) >= 2, settings=few)
    assert len(found.nodes) == 2


@pytest.mark.parametrize(
    ("kind", "sizes", "said"),
    [
        ("gpu-asignment", {}, "no strategy for kind 'gpu-asignment'; did you mean 'gpu-assignment'"),
        ("gpu-assignment", {"task": 6}, "no parameter 'task'; did you mean 'tasks'"),
    ],
)
def test_unknown_names_have_the_nearest(kind, sizes, said):
    with pytest.raises(ValueError, match=said):
        instances(kind, **sizes)
