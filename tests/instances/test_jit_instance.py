"""The just-in-time instance: the message of every invalid input, the arrays, and the loss by rounding to the grid."""

import copy
from typing import Any

import numpy as np
import pytest

from flowlex.instances.files import instance_from_document
from flowlex.instances.instance_base import InstanceError
from flowlex.instances.jit import JitInstance


def document(**changes: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "kind": "jit-bandwidth",
        "machines": [{"name": name, "out_mbps": 100, "in_mbps": 100} for name in ("a", "b")],
        "jobs": [
            {
                "name": "j",
                "computations": [
                    {"name": "c1", "seconds": 1},
                    {"name": "c2", "seconds": 2, "after": ["c1"]},
                    {"name": "c3", "seconds": 1, "after": ["c2"]},
                ],
                "transfers": [
                    {"name": "t1", "size_mb": 2, "sender": "a", "receiver": "b", "feeds": "c1"},
                    {"name": "t2", "size_mb": 3, "sender": "b", "receiver": "a", "feeds": "c3"},
                ],
            }
        ],
        "copies": [{"name": "x", "size_mb": 5, "sender": "a", "receiver": "b"}],
        "slot_s": 0.1,
        "unit_mb": 0.25,
    }
    return made | changes


def broken(path: str, value: Any) -> dict[str, Any]:
    """The document with one place changed; the path is dotted, numbers are positions."""
    made = copy.deepcopy(document())
    *steps, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    place: Any = made
    for step in steps:
        place = place[step]
    place[last] = value
    return made


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("jobs.0.computations.0.after", ["c3"], r"cycle: c1 -> c2 -> c3 -> c1; remove one of these edges"),
        ("jobs.0.computations.1.after", ["c2"], r"cycle: c2 -> c2"),
        ("jobs.0.computations.1.after", ["nowhere"], r"'c2' of job 'j' comes after computation 'nowhere'"),
        ("jobs.0.computations.1.name", "c1", r"two computations of job 'j' are named 'c1'"),
        ("jobs.0.transfers.0.receiver", "a", r"transfer 't1' goes from 'a' to itself"),
        (
            "jobs.0.transfers.0.receiver",
            "z",
            r"transfer 't1' of job 'j' uses machine 'z', which does not exist; the machines are: a, b",
        ),
        (
            "jobs.0.transfers.0.feeds",
            "c9",
            r"transfer 't1' of job 'j' feeds computation 'c9', which does not exist",
        ),
        ("jobs.0.transfers.0.size_mb", 0, r"size_mb: .*greater than 0"),
        ("jobs.0.transfers.0.size_mb", -1, r"size_mb: .*greater than 0"),
        ("jobs.0.transfers.0.size_mb", float("nan"), r"size_mb: "),
        ("jobs.0.transfers.0.deadline_s", 0, r"deadline_s: .*greater than 0"),
        ("jobs.0.transfers.1.name", "t1", r"two transfers of job 'j' are named 't1'"),
        ("jobs.0.transfers.0.speed", 3, r"speed: unknown field"),
        ("jobs.0.computations.0.seconds", -1, r"seconds: .*greater than or equal to 0"),
        (
            "jobs.0.computations.0.machine",
            "z",
            r"computation 'c1' of job 'j' uses machine 'z', which does not exist; the machines are: a, b",
        ),
        ("machines.1.name", "a", r"two machines are named 'a'"),
        ("machines.0.out_mbps", 10, r"machine 'a' sends 0.125 MB a slot out, which is rounded down to no unit"),
        ("copies.0.receiver", "a", r"copy 'x' goes from 'a' to itself"),
        ("copies.0.sender", "z", r"copy 'x' uses machine 'z', which does not exist; the machines are: a, b"),
        ("jobs.0.arrival_s", -1, r"arrival_s: .*greater than or equal to 0"),
    ],
)
def test_bad_input_is_named(path: str, value: Any, message: str) -> None:
    with pytest.raises(InstanceError, match=message):
        instance_from_document(broken(path, value))


def test_what_two_fields_say_together() -> None:
    late = broken("jobs.0.arrival_s", 7.0) | {"horizon_s": 7.0}
    with pytest.raises(InstanceError, match=r"job 'j' arrives at 7 s, not before the horizon of 7 s"):
        instance_from_document(late)
    bad = broken("jobs.0.transfers.0.deadline_s", 1.0)
    bad["jobs"][0]["transfers"][0]["ready_s"] = 2.0
    with pytest.raises(InstanceError, match=r"must arrive by 1 s but is ready only at 2 s"):
        instance_from_document(bad)
    with pytest.raises(InstanceError, match="two jobs are named 'j'"):
        instance_from_document(document(jobs=document()["jobs"] * 2))


def test_arrays_count_from_zero_over_the_whole_instance() -> None:
    instance = JitInstance.model_validate(document())
    arrays = instance.arrays
    assert arrays.out_units.tolist() == [5, 5]  # 100 Mbit/s are 1.25 MB a slot
    assert arrays.size_units.tolist() == [8, 12]
    assert arrays.feeds.tolist() == [0, 2]
    assert np.stack([arrays.tail, arrays.head]).tolist() == [[0, 1], [1, 2]]
    assert instance.transfer_names == ("j/t1", "j/t2")


def test_whole_quotients_are_not_rounded_away() -> None:
    """0.3 / 0.1 is 2.9999999999999996 in floating point, and still three units."""
    instance = JitInstance.model_validate(
        document(unit_mb=0.1) | {"jobs": broken("jobs.0.transfers.0.size_mb", 0.3)["jobs"]}
    )
    assert instance.arrays.size_units[0] == 3
    assert instance.arrays.out_units[0] == 12  # 12.5


def test_rounding_says_how_much() -> None:
    cost = JitInstance.model_validate(document(unit_mb=0.4)).rounding()
    # 1.25 MB are 3 units of 0.4 MB: 0.05 MB a slot are lost on each of four port sides, 4 Mbit/s each.
    assert cost.rate_lost_mbps == pytest.approx(16.0)
    assert cost.rate_lost_share == pytest.approx(0.04)
    assert cost.size_added_mb == pytest.approx(0.2)  # 3 MB are 8 units
    assert "16 Mbit/s lost in all (4.00%), most at 'a'" in str(cost)
