"""Gangs, spreads and affinities in solution files: proven under every goal, refused if false."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
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


MACHINES = [{"name": f"m{k}", "slots": 2, "rack": f"r{k // 2}"} for k in range(4)]
JOBS = [{"name": f"j{j}", "priority": j % 2, "tasks": [{"name": f"t{j}{k}"} for k in range(4)]} for j in range(3)]
RULES: dict[str, Any] = {
    "gangs": [{"name": "g", "jobs": ["j2"], "within": "rack"}],
    "spreads": [{"name": "s", "jobs": ["j0"], "most": 1}],
    "affinities": [{"name": "a", "tasks": ["t10", "t11"]}],
}
INSTANCE = FlowInstance.model_validate({"name": "tied", "machines": MACHINES, "jobs": JOBS, **RULES})


@pytest.fixture(scope="module")
def true() -> dict[str, Any]:
    """Return a correct document."""
    found: dict[str, Any] = solve(INSTANCE, "highs", goals=(Priority(), LoadSpread(2))).to_dict()
    return found


def _swap(document: dict[str, Any], one: str, other: str) -> None:
    """Replace a running task by a waiting one."""
    placed, waits = document["answer"]["placements"], document["answer"]["waiting"]
    placed[one], waits[other] = placed.pop(other), waits.pop(one)


def _split(document: dict[str, Any]) -> None:
    _swap(document, next(iter(document["answer"]["waiting"])), "t20")


def _parted(document: dict[str, Any]) -> None:
    placed = document["answer"]["placements"]
    one = next(t for t in placed if t[1] == "2")
    other = next(t for t, m in placed.items() if t[1] != "2" and int(m[1]) // 2 != int(placed[one][1]) // 2)
    placed[one], placed[other] = placed[other], placed[one]


def _crowded(document: dict[str, Any]) -> None:
    placed = document["answer"]["placements"]
    for task in [t for t in placed if t[1] == "1"][:2]:
        _swap(document, next(t for t in document["answer"]["waiting"] if t[1] == "0"), task)


def _leaves(document: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = document["proof"]["stages"]["cost"]
    return found


def _branched(document: dict[str, Any], label: str) -> None:
    """Let the first leaf hold where a task does not wait."""
    _leaves(document)[0]["branches"] = [{"row": [["waits", label, 1]], "relation": "<=", "side": 0}]


def _rows(document: dict[str, Any], change: Callable[[dict[str, Any]], object]) -> None:
    for leaves in document["proof"]["stages"].values():
        for leaf in leaves:
            change(leaf["rows"])


#: Changes of a document, and the check that must fail.
_JUDGED = "can be judged"
_LIMITS = "every row holds"
REFUSED: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "a gang in part": (_split, "every row holds"),
    "a gang in two racks": (_parted, "every row holds"),
    "a spread beyond its limit": (_crowded, _LIMITS),
    "a stage without leaves": (lambda d: d["proof"]["stages"].pop("cost"), "status"),
    "a branch on nobody": (lambda d: _branched(d, "x"), _JUDGED),
    "a branch without its other side": (lambda d: _branched(d, "t00"), "status"),
    "machines out of the air": (lambda d: _rows(d, lambda rows: rows.update(machine={"default": -9})), "status"),
    "a multiplier of no machine": (lambda d: _rows(d, lambda rows: rows.update(machine={"at": {"x": -1}})), _JUDGED),
    "a multiplier of the wrong sign": (
        lambda d: _rows(d, lambda r: r.update(spread={"at": {"s,rack:r0": 1}})),
        "status",
    ),
    "a multiplier of no domain": (lambda d: _rows(d, lambda r: r.update(spread={"at": {"s,x": -1}})), _JUDGED),
    "a weight of a later stage": (
        lambda d: d["proof"]["stages"]["waiting_1001"][0].update(earlier={"cost": -1}),
        _JUDGED,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_untrue_is_refused(name: str, true: dict[str, Any]) -> None:
    change, check = REFUSED[name]
    document = copy.deepcopy(true)
    assert verify(document, INSTANCE).ok
    change(document)
    certificate = verify(document, INSTANCE)
    assert check in [each.name for each in certificate.checks if not each.ok]


def test_rules_are_part_of_the_instance(true: dict[str, Any]) -> None:
    """The proof of an instance without rules is invalid with rules, and vice versa."""
    free = INSTANCE.model_copy(update={"gangs": (), "spreads": (), "affinities": ()})
    assert not verify(true | {"fingerprint": free.fingerprint}, free).ok
    plain = solve(free, "network", goals=(Priority(), LoadSpread(2))).to_dict()
    assert verify(plain, free).ok
    assert not verify(plain | {"fingerprint": INSTANCE.fingerprint}, INSTANCE).ok


def test_a_worse_schedule_is_bounded_at_most(true: dict[str, Any]) -> None:
    """With one running task less, the schedule is not proven optimal."""
    document = copy.deepcopy(true)
    task = next(t for t in document["answer"]["placements"] if t[1] == "1")
    document["answer"]["waiting"][task] = "stopped by hand"
    del document["answer"]["placements"][task]
    names = [check.name for check in verify(document, INSTANCE).checks if not check.ok]
    assert "status" in names and "objective" in names
