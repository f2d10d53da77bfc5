"""A changed solution file is refused, for every kind of problem."""

import contextlib
import copy
import json
import random
from typing import Any

import pytest

from flowlex import model_for
from flowlex.instances import generate
from flowlex.instances.instance_base import Instance
from flowlex.validation.certificates import SolutionError, verify
from tests.made_once import MadeOnce, solved
from tests.models.allocation.cases import random_instance
from tests.models.flow.capacity_cases import cluster
from tests.models.flow.ties import GOALS as TIED
from tests.models.flow.ties import tied_cluster
from tests.models.pods.test_running_cards import tiny
from tests.validation.certificates.clusters import GOALS, random_cluster

_JIT = {"seed": 22, "machines": 3, "jobs": 3, "transfers": 3, "slots": 5}
#: Instance and options; the engine is "highs" from the network on.
FILES: dict[str, tuple[Instance, dict[str, Any]]] = {
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
    "network": (generate("network-random", nodes=12, arcs=40), {}),
    "flow, capacities": (cluster(101, tasks=14, machines=5), {}),
    "flow, rules": (tied_cluster(3), {"goals": TIED}),
    "pods": (generate("kubeflow-testbed"), {}),
    "pods, running": (tiny(3), {}),
    "jit": (generate("jit-figure4"), {}),
    "jit, ports": (generate("jit-random", capacity=3, **_JIT), {"windows": "strict", "load": "port"}),
    "jit, staged": (generate("jit-random", capacity=3, **_JIT), {"windows": "strict", "presolve": False}),
    "jit, late": (generate("jit-random", capacity=1, deadlines=False, **_JIT), {"lat": "critical"}),
    "jit, fractional": (generate("jit-random", capacity=3, **_JIT), {"windows": "strict", "integrality": "lp"}),
    **{
        f"allocation, {policy}": (random_instance(2, tight=0.5), {"policy": policy})
        for policy in ("max_min", "water_filling", "hierarchical", "makespan", "finish_time", "max_throughput")
    },
}
INSTANCES = {name: instance for name, (instance, _) in FILES.items()}


def _true(name: str) -> dict[str, Any]:
    instance, options = FILES[name]
    return solved(
        instance, "highs" if list(FILES).index(name) >= list(FILES).index("network") else "network", **options
    )


TRUE = MadeOnce(FILES, _true)
#: Parts that are checked.
JUDGED = ("status", "objective", "bound", "gap", "fingerprint", "instance", "metrics", "answer", "stages")
#: Texts for people: why a task or pod waits. Weights are the unit of an objective.
WORDS = {"preempted", "waiting", "reason", "weights"}
#: How an answer was found, and figures that need data outside of the file; parts that may be others and as true.
UNJUDGED = {
    *("programs_solved", "route", "linear_programs", "integer_programs"),
    *("least_remaining_egress", "median_remaining_egress"),
}
FREE = (("answer", "schedule"), ("answer", "cards"))


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
    words = [leaf for leaf in leaves(TRUE[name]) if leaf[0] in JUDGED and leaf[-1] not in UNJUDGED]
    words = [leaf for leaf in words if leaf[0] != "answer" or not WORDS & set(map(str, leaf)) or leaf[-1] in NUMBERS]
    return [leaf for leaf in words if leaf[:2] not in FREE]  # another slot, or card with room, is as true


#: Columns of tables of jobs that share their name with a table of reasons.
NUMBERS = {"preempted", "waiting"}


def changed(value: Any, rng: random.Random) -> Any:
    """Return another value of about the same type."""
    if value is None or isinstance(value, (bool, dict, list)):
        return "other"
    return f"{value}x" if isinstance(value, str) else value + rng.choice([-7, -1, 1, 1000])


SMALL = {"pods": generate("kubeflow-testbed", pods=4), "load": generate("inference-cluster", workers=3, items=30)}


@pytest.mark.parametrize("name", ["gpu", "load", "flow", "network", "jit", "allocation, max_min", "pods"])
def test_the_answer_of_a_changed_model_has_the_same_parts_and_is_judged(name: str) -> None:
    instance, options = FILES.get(name, (INSTANCES[name], {}))
    instance = SMALL.get(name, instance)
    model = model_for(instance, **options)
    variables = model.variables[next(iter(model.variables))]
    document = json.loads(json.dumps(model.with_constraint("loose", variables.sum() <= 10**6).solve().to_dict()))
    assert document["values"] and verify(document, instance).claim == "optimal"
    parts = ("answer", "metrics")
    assert [document[part].keys() for part in parts] == [TRUE[name][part].keys() for part in parts]
    rng, words = random.Random(name), WORDS | UNJUDGED
    places = [leaf for part in parts for leaf in leaves(document[part], (part,)) if not words & set(map(str, leaf))]
    passed = []
    for leaf in {leaf[:2]: leaf for leaf in places}.values():  # one in each table, and each metric
        forged = copy.deepcopy(document)
        at(forged, leaf[:-1])[leaf[-1]] = changed(at(forged, leaf), rng)
        with contextlib.suppress(SolutionError):
            if verify(forged, instance).ok:
                passed.append(leaf)
    assert not passed


def is_nothing(part: Any) -> bool:
    """Whether a part that is left out counts as the same: a value of 0, or a share of it."""
    return abs(part.get("fraction", 1)) < 1e-9 if isinstance(part, dict) else part == 0


def with_few(name: str) -> bool:
    """Whether large files of a kind are judged over few columns."""
    return name.startswith(("gpu", "flow", "allocation"))


@pytest.mark.parametrize(("name", "few"), [(n, few) for n in TRUE for few in (False, True) if few <= with_few(n)])
def test_a_changed_file_is_refused(name: str, few: bool, request: pytest.FixtureRequest) -> None:
    """Entries with another value, and parts of the answer that are left out."""
    if few:
        request.getfixturevalue("few_columns")
    assert verify(TRUE[name], INSTANCES[name]).claim == "optimal"
    rng, places = random.Random(name), judged(name)
    parts = [leaf[: rng.randint(2, len(leaf))] for leaf in places if leaf[0] in ("answer", "stages")]
    parts = [part for part in parts if not is_nothing(at(TRUE[name], part))]
    passed = []
    for left_out, some in ((False, places), (True, parts)):
        for place in some if len(some) <= 40 else rng.sample(some, 40):
            document = copy.deepcopy(TRUE[name])
            where = at(document, place[:-1])
            if left_out:
                del where[place[-1]]
            else:
                where[place[-1]] = changed(where[place[-1]], rng)
            with contextlib.suppress(SolutionError):
                if verify(document, INSTANCES[name]).ok:
                    passed.append(place)
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
