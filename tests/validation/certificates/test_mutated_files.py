"""A changed solution file is refused, for every kind of problem."""

from __future__ import annotations

import contextlib
import copy
import json
import random
from typing import Any

import pytest

from flowlex import model_for
from flowlex.instances import generate
from flowlex.instances.exact_rationals import rational
from flowlex.validation.certificates import SolutionError, verify
from tests.made_once import MadeOnce, solved
from tests.models.flow.capacity_cases import cluster
from tests.validation.certificates.clusters import GOALS, random_cluster

FILES = {
    "gpu": (generate("gpu-random", seed=5), {"policy": "FSP"}),
    "gpu without preemption": (generate("gpu-random", seed=6), {"policy": "FS"}),
    "gpu without fairness": (generate("gpu-random", seed=7), {"policy": "FSU"}),
    "load": (generate("inference-cluster", seed=1, processors="mixed"), {"capacity": "history", "level": "item"}),
    "load, makespan": (
        generate("inference-cluster", seed=2, processors="mixed"),
        {"capacity": "cpu_load", "objective": "makespan"},
    ),
    "flow": (random_cluster(3, size=20), GOALS["borg"]),
    "flow, shares": (random_cluster(4, size=20), GOALS["shares and decimals"]),
    "flow, strict": (random_cluster(7, size=20), GOALS["all in strict order"]),
}
OTHERS = {
    "network": generate("network-random", nodes=12, arcs=40),
    "jit": generate("jit-figure4"),
    "allocation": generate("gavel-like", seed=1),
    "pods": generate("kubeflow-testbed"),
    "flow, capacities": cluster(101, tasks=14, machines=5),
}
INSTANCES = {name: instance for name, (instance, _) in FILES.items()} | OTHERS


def _true(name: str) -> dict[str, Any]:
    instance, options = FILES.get(name, (INSTANCES[name], {}))
    return solved(instance, "network" if name in FILES else "highs", **options)


TRUE = MadeOnce(INSTANCES, _true)
#: Kinds without duals beside their proofs.
NO_DUALS = (
    "jit",
    "gpu",
    "gpu without preemption",
    "gpu without fairness",
    "pods",
    "flow",
    "flow, shares",
    "flow, strict",
    "flow, capacities",
    "network",
    "load",
    "load, makespan",
    "allocation",
)
#: Parts that are checked. Duals may change and still prove the same, so they have a separate test.
JUDGED = ("status", "objective", "bound", "gap", "fingerprint", "instance", "metrics", "answer", "stages")
#: Texts for people: why a task or pod waits. Weights are the unit of an objective.
WORDS = {"preempted", "waiting", "reason", "weights"}
#: How an answer was found, and figures that need data outside of the file.
UNJUDGED = {
    "allocation": {"programs_solved"},
    "jit": {"route", "linear_programs", "integer_programs", "least_remaining_egress", "median_remaining_egress"},
}


def leaves(part: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(part, (dict, list)):
        items = part.items() if isinstance(part, dict) else enumerate(part)
        return [leaf for key, value in items for leaf in leaves(value, (*path, key))]
    return [path]


def at(document: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        document = document[key]
    return document


def judged(name: str) -> list[tuple[Any, ...]]:
    words = [leaf for leaf in leaves(TRUE[name]) if leaf[0] in JUDGED and leaf[-1] not in UNJUDGED.get(name, ())]
    words = [leaf for leaf in words if leaf[0] != "answer" or not WORDS & set(map(str, leaf)) or leaf[-1] in NUMBERS]
    free = {"jit": ("answer", "schedule"), "pods": ("answer", "cards")}  # another slot, or card with room, is as true
    return [leaf for leaf in words if leaf[:2] != free.get(name)]


#: Columns of tables of jobs that share their name with a table of reasons.
NUMBERS = {"preempted", "waiting"}


@pytest.mark.parametrize("name", FILES)
def test_the_files_are_true(name: str) -> None:
    certificate = verify(TRUE[name], FILES[name][0])
    assert (certificate.ok, certificate.claim) == (True, "optimal")


def changed(value: Any, rng: random.Random) -> Any:
    """Return another value of about the same type."""
    if value is None or isinstance(value, (bool, dict, list)):
        return "other"
    return f"{value}x" if isinstance(value, str) else value + rng.choice([-7, -1, 1, 1000])


SMALL = {"pods": generate("kubeflow-testbed", pods=4), "load": generate("inference-cluster", workers=3, items=30)}


@pytest.mark.parametrize("name", ["gpu", "load", "flow", "network", "jit", "allocation", "pods"])
def test_the_answer_of_a_changed_model_has_the_same_parts_and_is_judged(name: str) -> None:
    instance, options = FILES.get(name, (INSTANCES[name], {}))
    instance = SMALL.get(name, instance)
    model = model_for(instance, **options)
    variables = model.variables[next(iter(model.variables))]
    document = json.loads(json.dumps(model.with_constraint("loose", variables.sum() <= 10**6).solve().to_dict()))
    assert document["values"] and verify(document, instance).claim == "optimal"
    parts = ("answer", "metrics")
    assert [document[part].keys() for part in parts] == [TRUE[name][part].keys() for part in parts]
    rng, words = random.Random(name), {*WORDS, *UNJUDGED.get(name, ()), "programs_solved"}
    places = [leaf for part in parts for leaf in leaves(document[part], (part,)) if not words & set(map(str, leaf))]
    passed = []
    for leaf in {leaf[:2]: leaf for leaf in places}.values():  # one in each table, and each metric
        forged = copy.deepcopy(document)
        at(forged, leaf[:-1])[leaf[-1]] = changed(at(forged, leaf), rng)
        with contextlib.suppress(SolutionError):
            if verify(forged, instance).ok:
                passed.append(leaf)
    assert not passed


@pytest.mark.parametrize("name", TRUE)
def test_a_changed_file_is_refused(name: str) -> None:
    rng = random.Random(name)
    places = judged(name)
    passed = []
    for leaf in places if len(places) <= 40 else rng.sample(places, 40):
        document = copy.deepcopy(TRUE[name])
        at(document, leaf[:-1])[leaf[-1]] = changed(at(document, leaf), rng)
        with contextlib.suppress(SolutionError):
            if verify(document, INSTANCES[name]).ok:
                passed.append(leaf)
    assert not passed


@pytest.mark.parametrize("name", TRUE)
def test_names_that_do_not_exist_are_refused(name: str) -> None:
    for part in ("options", "metrics", "stages", "answer", "duals", "proof", "certificate"):
        document = copy.deepcopy(TRUE[name])
        document[part]["ghost"] = {"x": 1} if part == "duals" else 1
        with contextlib.suppress(SolutionError):
            assert not verify(document, INSTANCES[name]).ok, part


@pytest.mark.parametrize("name", TRUE)
def test_options_that_do_not_exist_are_refused(name: str) -> None:
    for option, value in TRUE[name]["options"].items():
        if option not in ("capacity", "stage"):  # `capacity` is the name of a function, and names of stages are free
            document = copy.deepcopy(TRUE[name])
            document["options"][option] = "ghost" if value is not None else ["ghost"]
            with contextlib.suppress(SolutionError):
                verdict = verify(document, INSTANCES[name]).verdict
                # An unknown goal may be the user's, whose costs are not in the file.
                assert verdict == ("quoted" if option == "goals" else "refused"), option


@pytest.mark.parametrize("name", TRUE)
def test_duals_that_are_none_are_refused(name: str) -> None:
    """Change the duals of one equation: all by the same amount, an unknown label, or no numbers."""
    assert bool(TRUE[name]["duals"]) == (name not in NO_DUALS)
    for equation, stated in TRUE[name]["duals"].items():
        less = {label: str(rational(value) - 10**6) for label, value in stated.items()}
        for values in (less, {**stated, "ghost": 1}, dict.fromkeys(stated, "x")):
            if values == stated or (
                equation == "share" and values.keys() == stated.keys() and "x" not in values.values()
            ):
                continue  # duals of shares are unique only up to a constant
            document = copy.deepcopy(TRUE[name])
            document["duals"][equation] = values
            with contextlib.suppress(SolutionError):
                assert not verify(document, INSTANCES[name]).ok, (equation, values)


HOSTILE = (
    float("nan"),
    float("inf"),
    -1,
    0,
    2**53 + 1,
    10**9,
    10**30,
    "1/0",
    "1e999",
    "9" * 5000,
    None,
    True,
    [],
    {},
    "x",
)


@pytest.mark.parametrize("name", TRUE)
def test_whatever_stands_in_a_file_it_is_judged_or_called_unreadable(name: str) -> None:
    true, instance = TRUE[name], INSTANCES[name]
    places = [leaf for leaf in leaves(true) if leaf[0] in ("answer", "proof", "options", "duals")]
    rng = random.Random(name)
    for _ in range(50):
        document, place, value = copy.deepcopy(true), rng.choice(places), rng.choice(HOSTILE)
        cut = place[: rng.randint(1, len(place))]
        at(document, cut[:-1])[cut[-1]] = value
        with contextlib.suppress(SolutionError):
            verify(document, instance)


def test_multipliers_of_slots_far_behind_the_last_are_refused_before_they_take_the_memory() -> None:
    true = copy.deepcopy(TRUE["jit"])
    rows = next(leaf["rows"] for leaves in true["proof"]["parts"][0]["stages"].values() for leaf in leaves)
    name = next(iter(rows["largest_link"]["at"])).split(",")[0]
    rows["largest_link"]["at"][f"{name},0..{10**12}"] = -1
    failed = [check.detail for check in verify(true, INSTANCES["jit"]).checks if not check.ok]
    assert "where nothing can be sent" in failed[0]


@pytest.mark.parametrize("card", [-1, 2])
def test_a_card_that_its_node_does_not_have_is_refused(card: int) -> None:
    document = copy.deepcopy(TRUE["pods"])
    document["answer"]["cards"]["pod-9"] = [card]
    assert not verify(document, INSTANCES["pods"]).ok
