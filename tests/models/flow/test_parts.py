"""Schedules by parts: they fit the whole, no schedule is better than their bounds, and faults in these are found."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowlex import FlowScheduling
from flowlex.formulations import Status
from flowlex.instances import FlowInstance, generate
from flowlex.models import ModelError
from flowlex.models.flow.goals import FairShares, Priority
from flowlex.validation.certificates import verify


def test_two_halves_by_hand() -> None:
    """Two machines, each dear for one task: by halves each task goes to the machine where it is cheap."""
    machines = [{"name": m, "slots": 1} for m in ("a", "b")]
    tasks = [{"name": "x", "costs": {"a": 1, "b": 5}}, {"name": "y", "costs": {"a": 7, "b": 2}}]
    instance = FlowInstance.model_validate({"machines": machines, "jobs": [{"name": "j", "tasks": tasks}]})
    parted = FlowScheduling(instance, preset="none", parts=2).solve("network")
    assert parted.machine_of == {"x": "a", "y": "b"}
    assert parted.status is Status.OPTIMAL and (parted.objective, parted.bound) == (3, 3)
    assert parted.certificate is not None and parted.certificate.claim == "optimal"


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["quincy", "borg", "load_spread", "random"]), st.integers(2, 4))
def test_no_schedule_is_better_than_the_bounds(seed: int, preset: Any, parts: int) -> None:
    instance = generate("flow-random", seed=seed, machines=8, jobs=5)
    assert isinstance(instance, FlowInstance)
    if sum(machine.slots > 0 for machine in instance.machines) < parts:
        return
    parted = FlowScheduling(instance, preset=preset, parts=parts, seed=seed).solve("network")
    assert parted.certificate is not None and parted.certificate.ok
    assert parted.certificate.claim in ("optimal", "bounded")
    whole = FlowScheduling(instance, preset=preset, method="phases").solve("network")
    best, here = (list(solution.stages.values()) for solution in (whole, parted))
    assert list(whole.stages) == list(parted.stages) and best <= here  # in strict order
    if best[:-1] == here[:-1]:
        assert parted.bounds["cost"] <= best[-1]
    waiting = [name for name, value in parted.stages.items() if value and name != "cost"]
    if waiting:
        assert parted.bounds[waiting[0]] <= whole.stages[waiting[0]]
    assert (parted.status is Status.OPTIMAL) <= (best == here)


def test_other_engines_and_seeds() -> None:
    instance = generate("flow-scale", machines=30, tasks=110, seed=4)
    assert isinstance(instance, FlowInstance)
    by = [FlowScheduling(instance, parts=3, seed=1).solve(engine) for engine in ("network", "highs", "pulp")]  # type: ignore[arg-type]
    assert len({str(solution.stages) for solution in by}) == 1
    assert all(solution.certificate is not None and solution.certificate.ok for solution in by)
    again = FlowScheduling(instance, parts=3, seed=1).solve("network")
    assert again.machine_of == by[0].machine_of and again.to_dict()["proof"] == by[0].to_dict()["proof"]
    other = FlowScheduling(instance, parts=3, seed=2).solve("network")
    assert other.machine_of != again.machine_of


def test_a_bound_that_prices_do_not_prove_is_refused() -> None:
    instance = generate("flow-scale", machines=20, tasks=50, blocks=2, seed=1)
    assert isinstance(instance, FlowInstance)
    solution = FlowScheduling(instance, preset="quincy", parts=4).solve("network")
    document = solution.to_dict()
    assert solution.status is Status.FEASIBLE and verify(document, instance).ok
    wrong = copy.deepcopy(document)
    wrong["proof"]["stages"]["cost"]["at_least"] += 1
    wrong["bound"] += 1
    assert not verify(wrong, instance).ok
    wrong = copy.deepcopy(document)
    prices = wrong["proof"]["stages"]["cost"]["machine_price"]
    prices[instance.machines[0].name] = 10**12
    assert not verify(wrong, instance).ok


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"parts": 0}, "parts must be at least 1 and seed at least 0, got 0 and 0"),
        ({"parts": 2, "seed": -1}, "got 2 and -1"),
        ({"parts": 4}, "parts=4 for 3 machines with slots; ask for at most 3 parts"),
        ({"parts": 2, "goals": (FairShares(),)}, "parts cannot keep shares of jobs"),
        ({"parts": 2, "lexicographic": True, "goals": (Priority(),)}, r"parts cannot keep goals in strict order"),
        ({"parts": 2, "method": "phases"}, r"parts cannot keep goals in strict order"),
    ],
)
def test_options_that_parts_cannot_keep_are_refused(options: dict[str, Any], says: str) -> None:
    machines = [{"name": f"m{k}", "slots": min(k, 1)} for k in range(4)]
    jobs = [{"name": "j", "tasks": [{"name": "t"}]}]
    instance = FlowInstance.model_validate({"machines": machines, "jobs": jobs})
    with pytest.raises(ModelError, match=says):
        FlowScheduling(instance, **options)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"gangs": [{"name": "g", "tasks": ["t", "u"]}]}, "gangs, spreads or affinities"),
        ({"machines": [{"name": "m", "slots": 2, "capacity": {"cpu": 4}}, {"name": "n"}]}, "capacities of machines"),
        (
            {"jobs": [{"name": "j", "tasks": [{"name": "t"}, {"name": "u"}], "preemptions_per_hour": 0}]},
            "the limit on preemptions of job 'j'",
        ),
    ],
)
def test_instances_that_parts_cannot_keep_are_refused(more: dict[str, Any], says: str) -> None:
    document: dict[str, Any] = {
        "machines": [{"name": "m"}, {"name": "n"}],
        "jobs": [{"name": "j", "tasks": [{"name": "t"}, {"name": "u"}]}],
    }
    instance = FlowInstance.model_validate(document | more)
    with pytest.raises(ModelError, match=f"parts cannot keep {says}, which concern the whole; leave parts at 1"):
        FlowScheduling(instance, parts=2)
