"""Every generator refuses sizes that make no instance, by name and without a traceback."""

from __future__ import annotations

import pytest

from flowlex.instances.base import InstanceError
from flowlex.instances.generators import generate
from flowlex.instances.generators.registry import all_generators

SIZES = [
    (name, key)
    for name, spec in all_generators().items()
    for key, parameter in spec.parameters.items()
    if type(parameter.default) is int and parameter.default > 0
]


@pytest.mark.parametrize(("name", "key"), SIZES)
def test_a_negative_size_is_refused(name, key):
    with pytest.raises(InstanceError) as error:
        generate(name, **{key: -1})
    assert key in str(error.value) or "no valid instance" in str(error.value)


@pytest.mark.parametrize(
    ("name", "key"), [("pods-scale", "nodes"), ("flow-scale", "machines"), ("flow-random", "racks")]
)
def test_nothing_to_place_on_is_refused(name, key):
    with pytest.raises(InstanceError, match=f"{name}.*{key}=0: .*greater than or equal to 1"):
        generate(name, **{key: 0})
