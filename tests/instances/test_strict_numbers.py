"""Truth values and texts are no numbers, in any field of any kind; a duplicate key is found in linear time."""

import json
from typing import Any

import pytest

from flowlex import generate, solve, verify
from flowlex.instances.files import read_instance
from flowlex.instances.input_errors import InstanceError
from flowlex.instances.instance_base import Instance
from flowlex.instances.load import LoadPartitionInstance
from flowlex.instances.model_changes import read_changes

GENERATORS = [
    "inference-cluster",
    "flow-random",
    "gpu-random",
    "pods-scale",
    "jit-random",
    "gavel-like",
    "network-random",
]


def places(data: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where the numbers of a document are; one for each field, as the elements of lists are alike."""
    if isinstance(data, dict):
        return [place for key, value in data.items() for place in places(value, (*at, key))]
    if isinstance(data, list):
        return places(data[0], (*at, 0)) if data else []
    return [at] if isinstance(data, int | float) and not isinstance(data, bool) else []


@pytest.mark.parametrize("generator", GENERATORS)
def test_truth_values_and_texts_are_no_numbers(generator: str, tmp_path: Any) -> None:
    document = json.loads(generate(generator).model_dump_json())
    file = tmp_path / "wrong.json"
    for *outer, last in places(document):
        for wrong in (True, "1"):
            changed = json.loads(json.dumps(document))
            part = changed
            for key in outer:
                part = part[key]
            part[last] = wrong
            file.write_text(json.dumps(changed))
            with pytest.raises(InstanceError):
                read_instance(file)


def test_one_duplicate_key_among_many_is_found_at_once() -> None:
    """The look-ups are counted by a key that counts its comparisons: about one a key, not one a pair of keys."""
    from flowlex.instances.files import _unique_keys

    compared = 0

    class Key(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)  # type: ignore[arg-type]

        __hash__ = str.__hash__

    keys = [Key(f"key{k}") for k in range(2000)] + [Key("key1999")]
    with pytest.raises(InstanceError, match="'key1999' is given twice"):
        _unique_keys([(key, 0) for key in keys])
    assert compared < 20 * len(keys)


@pytest.mark.parametrize("seconds", [5e-324, 1e-310, 1e-300, 1.0])
def test_the_file_of_a_load_with_tiny_seconds_is_judged(seconds: float) -> None:
    """By hand: 8 items at a, speeds 1 and 3: two stay, six move."""
    instance: Instance = LoadPartitionInstance.model_validate(
        {
            "name": "tiny",
            "seconds_per_item": seconds,
            "nodes": [{"name": "a", "configuration": 1.0}, {"name": "b", "configuration": 3.0}],
            "blocks": [{"name": "k", "holders": ["a"], "items": 8}],
        }
    )
    solution = solve(instance, "highs")
    assert (solution.status, solution.objective) == ("optimal", pytest.approx(6 * seconds, rel=1e-12))
    document = json.loads(json.dumps(solution.to_dict()))
    assert verify(document, instance).verdict == "proven"
    multipliers = document["proof"]["stages"]["moved"][0]["rows"]["node"]["at"]
    multipliers.update(dict.fromkeys(multipliers, 0))
    assert verify(document, instance).verdict == "refused"


@pytest.mark.parametrize("value", ["yes", 1, 0])
def test_only_true_and_false_are_flags_of_changes(tmp_path, value):
    change = {"change": "variable", "name": "v", "levels": {}, "upper": 1, "integer": value}
    (tmp_path / "rules.json").write_text(json.dumps({"version": 1, "changes": [change]}))
    with pytest.raises(InstanceError, match=r"rules\.json: changes\[0\]\.integer: must be true or false"):
        read_changes(tmp_path / "rules.json")
