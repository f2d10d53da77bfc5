"""Gangs, spreads and affinities of a flow instance: what is refused, and with which words."""

from __future__ import annotations

import pytest

from flowlex.instances.base import InstanceError
from flowlex.instances.files import instance_from_document
from flowlex.instances.flow import FlowInstance
from flowlex.instances.flow_rules import domain_tags, members_of

MACHINES = [
    {"name": "m0", "rack": "r0", "labels": ["zone=a"]},
    {"name": "m1", "rack": "r1", "labels": ["zone=b", "gpu"]},
    {"name": "m2", "rack": "r1"},
]
JOBS = [{"name": "j", "tasks": [{"name": "t0"}, {"name": "t1"}]}, {"name": "k", "tasks": [{"name": "t2"}]}]


def cluster(**rules: object) -> FlowInstance:
    document = {"kind": "flow-scheduling", "name": "c", "machines": MACHINES, "jobs": JOBS, **rules}
    found = instance_from_document(document)
    assert isinstance(found, FlowInstance)
    return found


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"gangs": [{"name": "g", "tasks": ["t9"]}]}, "gang 'g' names task 't9', which does not exist"),
        ({"spreads": [{"name": "s", "jobs": ["x"], "most": 1}]}, "spread 's' names job 'x', which does not exist"),
        ({"gangs": [{"name": "g"}]}, "gang 'g' names no tasks and no jobs; name some, or drop it"),
        (
            {"gangs": [{"name": "g", "jobs": ["j"], "within": "room"}]},
            "gang 'g' is about 'room', but no machine has a label 'room=...'; use 'rack' or a label",
        ),
        (
            {"affinities": [{"name": "a", "jobs": ["j"], "within": "gpu"}]},
            "affinity 'a' is about 'gpu', but no machine has a label 'gpu=...'",
        ),
        ({"spreads": [{"name": "s", "jobs": ["j"], "most": 0}]}, "greater than or equal to 1"),
        ({"spreads": [{"name": "s", "jobs": ["j"], "limits": {"r0": 0}}]}, "greater than or equal to 1"),
        ({"spreads": [{"name": "s", "jobs": ["j"]}]}, "spread 's' gives neither most nor limits; give one of them"),
        (
            {"spreads": [{"name": "s", "jobs": ["j"], "limits": {"r7": 1}}]},
            "spread 's' limits 'rack:r7', but no machine is there",
        ),
        (
            {"gangs": [{"name": "g", "jobs": ["j"]}], "affinities": [{"name": "a", "tasks": ["t1", "t2"]}]},
            "task 't1' is in gang 'g' and affinity 'a'; it may be in one of them only",
        ),
        (
            {"gangs": [{"name": "g", "jobs": ["j"]}, {"name": "g", "jobs": ["k"]}]},
            "two gangs are named 'g'; give each its own name",
        ),
    ],
)
def test_rules_that_make_no_sense_are_refused(rules: dict[str, object], message: str) -> None:
    with pytest.raises(InstanceError) as refused:
        cluster(**rules)
    assert message in str(refused.value)


def test_a_machine_in_two_domains_of_a_key_is_refused() -> None:
    machine = {"name": "m3", "labels": ["zone=a", "zone=b"]}
    document = {"machines": [machine], "jobs": JOBS, "gangs": [{"name": "g", "jobs": ["j"], "within": "zone"}]}
    with pytest.raises(ValueError, match="machine 'm3' has zone=a and zone=b; rules over 'zone' need one of them"):
        FlowInstance.model_validate(document)


def test_domains_and_members() -> None:
    instance = cluster(
        gangs=[{"name": "g", "tasks": ["t2", "t0"], "jobs": ["j"]}],
        spreads=[{"name": "s", "jobs": ["j"], "over": "zone", "most": 2, "limits": {"b": 1}}],
    )
    assert domain_tags(instance.machines, "rack") == {"m0": "rack:r0", "m1": "rack:r1", "m2": "rack:r1"}
    assert domain_tags(instance.machines, "zone") == {"m0": "zone=a", "m1": "zone=b"}
    assert members_of(instance.gangs[0], {"j": ["t0", "t1"]}) == ["t2", "t0", "t1"]
    spread = instance.spreads[0]
    assert (spread.limit("zone=a"), spread.limit("zone=b")) == (2, 1)
    assert instance.summary()["gangs"] == 1 and "affinities" not in instance.summary()
