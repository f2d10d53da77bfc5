"""Gangs, spreads and affinities of a flow instance: refused inputs and their messages."""

import pytest

from flowlex.instances.files import instance_from_document
from flowlex.instances.flow import FlowInstance
from flowlex.instances.group_rules import domain_tags, members_of
from flowlex.instances.instance_base import InstanceError
from flowlex.models.flow.model import FlowScheduling

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
        ({"spreads": [{"name": "s", "jobs": ["j"], "most": 0}]}, "greater than or equal to 1"),
        ({"spreads": [{"name": "s", "jobs": ["j"], "limits": {"r0": 0}}]}, "greater than or equal to 1"),
        ({"spreads": [{"name": "s", "jobs": ["j"]}]}, "spread 's' gives neither most nor limits; give one of them"),
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


@pytest.mark.parametrize(
    ("rules", "waits"),
    [
        ({"gangs": [{"name": "g", "jobs": ["j"], "within": "room"}]}, {"t0", "t1"}),
        ({"affinities": [{"name": "a", "jobs": ["j"], "within": "gpu"}]}, {"t0", "t1"}),
        ({"spreads": [{"name": "s", "jobs": ["j"], "over": "room", "most": 1}]}, {"t0", "t1"}),
        ({"spreads": [{"name": "s", "jobs": ["j"], "limits": {"r7": 1}}]}, set()),
    ],
)
def test_tasks_of_rules_over_places_that_are_gone_wait(rules: dict[str, object], waits: set[str]) -> None:
    solution = FlowScheduling(cluster(**rules)).solve("highs")
    assert solution.certificate is not None and solution.certificate.ok
    reasons = solution.to_dict()["answer"]["waiting"]
    assert set(reasons) == waits
    (name,) = [rule["name"] for rule in next(iter(rules.values()))]  # type: ignore[call-overload]
    assert all(repr(name) in reason for reason in reasons.values())


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
