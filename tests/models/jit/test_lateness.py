"""Lateness over intervals, compared with independent integer programs over single slots."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowlex.instances.jit import Computation, JitInstance, Job, Machine, Transfer
from flowlex.models.jit.model import JitBandwidth
from flowlex.validation.certificates.verifier_interface import verify
from tests.models.jit.test_unequal_ports import highest, truth
from tests.touched import assert_refused


def overloaded(seed: int, slot_s: float = 1.0, stretch: int = 1, transfers: int = 7) -> JitInstance:
    """Unequal ports of 1 to 3 MB a second; windows and sizes in seconds and MB, ``stretch`` times as long."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 5))
    machines = tuple(
        Machine(name=f"m{k}", out_mbps=8.0 * int(rng.integers(1, 4)), in_mbps=8.0 * int(rng.integers(1, 4)))
        for k in range(count)
    )
    made = []
    for k in range(int(rng.integers(2, transfers + 1))):
        i, j = rng.choice(count, 2, replace=False)
        ready = int(rng.integers(0, 6)) * stretch
        due = ready + int(rng.integers(1, 12)) * stretch
        firm = float(due + 40 * stretch) if rng.random() < 0.1 else None
        made.append(
            Transfer(
                name=f"t{k}",
                size_mb=float(rng.integers(1, 20)) * stretch,
                sender=f"m{i}",
                receiver=f"m{j}",
                feeds="c",
                ready_s=float(ready),
                deadline_s=float(due),
                firm_s=firm,
            )
        )
    job = Job(name="j", computations=(Computation(name="c", seconds=0.0),), transfers=tuple(made))
    return JitInstance(machines=machines, jobs=(job,), slot_s=slot_s, unit_mb=slot_s)


def slot_by_slot(instance: JitInstance, load: str) -> tuple[int, dict[int, int]]:
    """Least lateness, and number of loads of at least every level, by integer programs over slots of 1 s and 1 MB."""
    made = instance.jobs[0].transfers
    numbers = [(int(f.sender[1:]), int(f.receiver[1:]), int(f.size_mb), int(f.ready_s)) for f in made]
    flows = [(*each, int(f.deadline_s or 0)) for each, f in zip(numbers, made, strict=True)]
    ports = [(int(m.out_mbps / 8), int(m.in_mbps / 8)) for m in instance.machines]
    found = truth(ports, flows, load, True, [f.firm_s for f in made])
    assert found is not None
    return found[0], {s: n for s, n in zip(range(highest(ports), 0, -1), found[1], strict=True) if n}


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["pair", "port", "sender", "receiver"]))
def test_least_lateness_and_levels_are_those_of_integer_programs(seed: int, load: Any) -> None:
    instance = overloaded(seed, transfers=5)
    solution = JitBandwidth(instance, share=1.0, load=load, windows="elastic").solve("highs")
    assert (solution.lateness, solution.levels) == slot_by_slot(instance, load)
    assert solution.certificate is not None and solution.certificate.claim == "optimal"


@pytest.mark.parametrize("seed", [1, 9])  # 9: two ports have the same sum of loads
def test_slots_as_short_as_one_likes(seed: int) -> None:
    """An hour and more of slots of 1 ms; in the limit of short slots lateness is that of fluid transfers."""
    late, blocks = [], []
    for slot_s in (10.0, 0.1, 0.001):
        instance = overloaded(seed, slot_s, stretch=100)
        solution = JitBandwidth(instance, share=1.0, load="port", windows="elastic").solve("highs")
        assert solution.certificate is not None and solution.certificate.claim == "optimal"
        late.append(solution.lateness * slot_s**2)  # MB times seconds
        blocks.append(len(solution.blocks.item))
    assert solution.grid.horizon > 10**6 // 2
    assert late[0] > late[1] > late[2] and late[1] - late[2] < 0.02 * (late[0] - late[2])
    assert blocks[2] < 3 * blocks[0]


def leaf(document: dict[str, Any]) -> dict[str, Any]:
    """The multipliers of lateness in the part that has most."""
    parts = [
        part["stages"]["lateness"][0]["rows"] for part in document["proof"]["parts"] if "lateness" in part["stages"]
    ]
    return max(parts, key=lambda rows: sum(len(each["at"]) for each in rows.values()))


def sloped(document: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Multipliers that rise or fall in their runs, and the label of the first."""
    name = next(name for name in leaf(document) if name.endswith(("_early", "_late")))
    return leaf(document)[name]["at"], next(iter(leaf(document)[name]["at"]))


def touched(document: dict[str, Any], change: Callable[[Any], Any]) -> None:
    at, label = sloped(document)
    at[label] = change(Fraction(at[label]))


def renamed(document: dict[str, Any], change: Callable[[int, int], str]) -> None:
    at, label = sloped(document)
    name, _, slots = label.partition(",")
    first, _, last = slots.partition("..")
    at[f"{name},{change(int(first), int(last or first))}"] = at.pop(label)


def moved(document: dict[str, Any], by: int) -> None:
    late = [run for runs in document["answer"]["schedule"].values() for run in runs][-1]
    late[0] += by
    late[1] += by


FAULTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "steeper": lambda d: touched(d, lambda y: int(y) - 10**4),
    "rising instead of falling": lambda d: touched(d, lambda y: str(-y)),
    "no slope": lambda d: touched(d, lambda y: 0),
    "no multipliers of ports": lambda d: [leaf(d).pop(name) for name in list(leaf(d)) if name != "size"],
    "a run longer": lambda d: renamed(d, lambda a, b: f"{a}..{b + 500}"),
    "a run that ends before its begin": lambda d: renamed(d, lambda a, b: f"{b + 1}..{a}"),
    "a run that overlaps": lambda d: sloped(d)[0].update({sloped(d)[1].partition("..")[0]: -1}),
    "numbers beyond 64 bits": lambda d: touched(d, lambda y: -(1 << 62)),
    "no number": lambda d: touched(d, lambda y: "NaN"),
    "a slot that is not there": lambda d: renamed(d, lambda a, b: f"{a}..{1 << 60}"),
    "transfers too dear": lambda d: leaf(d).update(size={"default": 10**4}),
    "sent later": lambda d: moved(d, 10),
    "less late than it is": lambda d: d["answer"].update(lateness_unit_slots=d["answer"]["lateness_unit_slots"] - 1),
    "lateness without a proof": lambda d: [p["stages"].pop("lateness") for p in d["proof"]["parts"]],
}


@pytest.fixture(scope="module")
def stated() -> tuple[JitInstance, dict[str, Any]]:
    instance = overloaded(1, 0.01, stretch=10)
    document = json.loads(json.dumps(JitBandwidth(instance, share=1.0, windows="elastic").solve("highs").to_dict()))
    assert verify(document, instance).claim == "optimal" and sloped(document)
    return instance, document


@pytest.mark.parametrize("fault", FAULTS)
def test_touched_prices_and_schedules_are_refused(stated: tuple[JitInstance, dict[str, Any]], fault: str) -> None:
    instance, document = stated
    assert_refused(FAULTS[fault], document, instance)
