"""Gangs, spreads and affinities in solution files: proven under every goal, refused if false."""

import json
from typing import Any

import numpy as np
import pytest

from flowlex.instances.flow import FlowInstance
from flowlex.models import solve
from flowlex.models.flow.goals import LoadSpread, Priority
from flowlex.validation.certificates import verify
from tests.models.flow.ties import rules_for
from tests.validation.certificates.clusters import GOALS, random_cluster


def tied(seed: int) -> FlowInstance:
    """A random cluster with zones and rules."""
    rng, instance = np.random.default_rng(seed), random_cluster(seed)
    document = instance.model_dump()
    for k, machine in enumerate(document["machines"]):
        machine["labels"] = (*machine["labels"], f"zone={'ab'[k % 2]}")
    racks = sorted({machine.rack for machine in instance.machines})
    rules: dict[str, Any] = {}
    while not any(rules.values()):
        rules = rules_for(rng, [task.name for task in instance.tasks], racks)
    document |= rules
    return FlowInstance.model_validate(document)


@pytest.mark.parametrize("name", GOALS)
@pytest.mark.parametrize("seed", [2, 5])
def test_every_goal_is_proven_from_the_file(name: str, seed: int) -> None:
    options = {key: value for key, value in GOALS[name].items() if value != "weights"}
    instance = tied(seed)
    document = json.loads(json.dumps(solve(instance, "highs", **options).to_dict()))
    certificate = verify(document, instance)
    assert (certificate.ok, certificate.claim, certificate.exact) == (True, "optimal", True)


def test_rules_are_part_of_the_instance() -> None:
    """The proof of an instance without rules is invalid with rules, and vice versa."""
    ruled = tied(5)
    free = ruled.model_copy(update={"gangs": (), "spreads": (), "affinities": ()})
    for one, other in ((ruled, free), (free, ruled)):
        document = solve(one, "highs", goals=(Priority(), LoadSpread(2))).to_dict()
        assert verify(document, one).claim == "optimal"
        assert not verify(document | {"fingerprint": other.fingerprint}, other).ok
