"""Mutation tests of flowlex's formulations: killed mutants, and reasons why the survivors are no weakness of tests.

The references are certified optima of `Model.solve` and optima by hand, never those of a mutant. `EXPLAINED` is the
table of docs/howto/test-a-formulation.md; a survivor that it does not explain fails the test.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from flowlex import generate, model_for
from flowlex.formulations import FlowNetwork
from flowlex.instances.files import instance_from_document
from flowlex.models.model_base import Model
from flowlex.testing import assert_optimum, assert_violates, formulation, mutate
from flowlex.testing.mutation_tests import Report
from flowlex.testing.program_adapters import program_of

#: Kind: survivors by pattern, and the reason.
EXPLAINED = {
    "gpu-assignment": {
        r"(gpu_out|on_node): swapped columns": "places are exchanged that these instances use alike",
        r"pooled: lost upper bound": "more may be pooled than was offered, and nothing is gained by it",
    },
    "flow-scheduling": {
        r"group: negated terms of blocks": "no optimum of these instances uses an arc from group to group",
        r"short: lost upper bound": "falling short of a share costs so much that no optimum does it",
    },
    "jit-bandwidth": {
        r"size: >= for ==": "sending more than the size loads ports and is never better",
        r"largest: lost upper bound": "the largest load is minimised, and capacities bound it",
        r"lateness_kept: .*": "more lateness lowers no largest load on these instances",
    },
}
CASES: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "allocation": ("gavel-like", [{"jobs": 4, "gpus": 1, "models": 2, "seed": seed} for seed in (1, 2)]),
    "flow-scheduling": ("flow-random", [{"machines": 4, "jobs": 3, "seed": seed} for seed in (1, 2, 3)]),
    "gpu-assignment": ("gpu-random", [{"nodes": 3, "tasks": 6, "seed": seed} for seed in (1, 4)]),
    "jit-bandwidth": (
        "jit-random",
        [{"seed": s, "machines": 2, "jobs": 1, "transfers": 3, "slots": 3, "capacity": 2} for s in (1, 2, 3, 4)],
    ),
    "load-partition": ("inference-cluster", [{"workers": 3, "items": 9, "seed": seed} for seed in (1, 2, 3)]),
    "min-cost-flow": ("network-random", [{"nodes": 5, "arcs": 10, "seed": seed} for seed in (1, 2)]),
}


@formulation
def program(model: Model) -> Any:
    return model.formulation


def assertions_about(cases: list[tuple[Model, float]]) -> list[Callable[[], None]]:
    """Return assertions for every family: the optimum, nonnegative columns, and two ends of each arc of a network."""

    def optimum() -> None:
        for model, objective in cases:
            assert_optimum(program(model), objective)

    def nothing_is_negative() -> None:
        for model, _ in cases:
            made = program(model)
            names = program_of(made).columns
            for first in (names.names[members[0]] for members in names.families.values() if len(members)):
                assert_violates(made, {first: -(10**6)}, first)

    def an_arc_leaves_one_node_and_enters_another() -> None:
        for model, _ in cases:
            matrix = program_of(program(model)).arrays.matrix
            assert set(abs(matrix).sum(axis=0)) <= {0, 2} and not matrix.sum(axis=0).any()

    network = isinstance(cases[0][0].formulation, FlowNetwork)
    return [optimum, nothing_is_negative, *([an_arc_leaves_one_node_and_enters_another] if network else [])]


def each_task_and_each_gpu_once(models: list[Model]) -> None:
    for model in models:
        made = program(model)
        assert_violates(made, {"offer[0]": 2}, "offer[0]")
        names = program_of(made).columns
        gpus = sum(len(node.gpus) for node in model.instance.nodes)
        for family in ("gpu_out", "own_gpu_out"):
            for column in names.families.get(family, ()):
                assert_violates(made, {names.names[column]: gpus + 1}, names.names[column])


def large_tasks_take_large_gpus() -> None:
    for model, seconds in gpus_by_hand():
        assert_optimum(program(model), seconds)


@cache
def gpus_by_hand() -> list[tuple[Model, float]]:
    """A task of 20 GB does not fit the GPU of 16 GB: it reads 1000 MB over racks (100 s) or in its rack (10 s)."""
    made = []
    apart = {"A": ("r1", []), "B": ("r1", [16.0]), "C": ("r2", [24.0]), "D": ("r3", [])}
    near = apart | {"C": ("r1", [24.0])}
    both = apart | {"C": ("r2", [16.0, 24.0])}
    small = {"small": (8.0, "C")}
    for racks, tasks, seconds in (
        (apart, {"large": (20.0, "A")}, 100.0),
        (apart, {"large": (20.0, "D")} | small, 200.0),
        (near, {"large": (20.0, "A")} | small, 20.0),
        (both, {"other": (8.0, "C")} | small, 2.0),  # from the disk, 1 s each
    ):
        nodes = [
            {"name": name, "rack": rack, "gpus": [{"name": f"{name}.{gb}", "memory_gb": gb} for gb in memory]}
            for name, (rack, memory) in racks.items()
        ]
        jobs = []
        for name, (gb, node) in tasks.items():
            shard = {"size_mb": 1000.0, "replicas": [node]}
            jobs.append({"name": name, "tasks": [{"name": name, "memory_gb": gb, "shards": [shard]}]})
        speeds = {"disk_mb_per_s": 1000.0, "rack_mb_per_s": 100.0, "between_racks_mb_per_s": 10.0}
        document = {"kind": "gpu-assignment", "version": 1, "name": "by hand", **speeds, "nodes": nodes, "jobs": jobs}
        made.append((model_for(instance_from_document(document)), seconds))
    return made


def unexplained(report: Report, kind: str) -> list[str]:
    known = EXPLAINED.get(kind, {})
    return [str(each) for each in report.survivors if not any(re.fullmatch(p, str(each.mutant)) for p in known)]


@pytest.mark.rare
@pytest.mark.parametrize("kind", CASES)
def test_survivors_are_explained(kind):
    generator, parameters = CASES[kind]
    models = [model_for(generate(generator, **each)) for each in parameters]
    tests = assertions_about([(model, model.solve("highs").objective) for model in models])
    if kind == "gpu-assignment":
        tests += [lambda: each_task_and_each_gpu_once(models), large_tasks_take_large_gpus]
    (report,) = mutate(*tests)
    assert unexplained(report, kind) == []
    assert not any(result.fate in ("optimum", "crashed") for result in report.results)
    assert sum(result.fate == "killed" for result in report.results) >= 0.6 * len(report.results)


def pods(**sizes: tuple[float, float, float]) -> Model:
    """One node of 4 cores, 4 GB and two cards of 4 GB; pods by cores, memory and memory of a card."""
    node = {"name": "n", "cpu_cores": 4.0, "memory_gb": 4.0, "cards": 2, "card_gb": 4.0}
    names = ("cpu_cores", "memory_gb", "gpu_memory_gb")
    made = [{"name": name, **dict(zip(names, size, strict=True))} for name, size in sizes.items()]
    document = {"kind": "pod-placement", "version": 1, "name": "by hand", "nodes": [node], "pods": made}
    return model_for(instance_from_document(document))


def test_pods_by_hand():
    cores = pods(a=(3, 1, 0), b=(3, 2, 0))
    memory = pods(a=(1, 3, 0), b=(2, 3, 0))
    cards = pods(a=(1, 1, 3), b=(1, 2, 3), c=(2, 1, 3))
    fitting = pods(a=(1, 1, 1), b=(3, 2, 4), c=(0, 1, 3))

    def how_many_fit() -> None:
        for model, admitted in ((cores, 1), (memory, 1), (cards, 2), (fitting, 3)):
            assert_optimum(program(model), admitted)

    def a_pod_has_all_its_cards_or_none() -> None:
        assert_violates(program(cards), {"x[a,n]": 1}, "card_link[a,n]", only=True)
        assert_violates(program(cards), {"y[a,n,0]": 1}, "card_link[a,n]", only=True)

    def placed_once_and_as_a_whole() -> None:
        assert_violates(program(cores), {"x[a,n]": 2}, "pod[a]", "x[a,n]")
        assert_violates(program(cards), {"x[a,n]": 0.5, "y[a,n,0]": 0.5}, "x", "y", only=True)
        for name in ("x[a,n]", "y[a,n,0]"):
            assert_violates(program(cards), {name: -1}, name)

    (report,) = mutate(how_many_fit, a_pod_has_all_its_cards_or_none, placed_once_and_as_a_whole)
    assert unexplained(report, "pod-placement") == []
