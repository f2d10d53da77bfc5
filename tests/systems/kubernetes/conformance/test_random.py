"""Bindings of random clusters, verified by the checker of the default scheduler's filters; none may be refused."""

import json
import random
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from flowlex.instances.pods import PodInstance
from flowlex.models.pods.baselines import place
from flowlex.models.pods.model import PodPlacement
from flowlex.systems.kubernetes.bindings import plan
from flowlex.systems.kubernetes.placement_instance import KubernetesWarning, read_kubernetes
from tests.systems.kubernetes.conformance import checker
from tests.systems.kubernetes.conformance import random_clusters as clusters

POLICIES = ("first-fit", "priority-queue", "random")


def read(folder: Path, items: Any, **options: Any) -> PodInstance:
    path = folder / "cluster.json"
    path.write_text(json.dumps({"kind": "List", "items": items}), encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KubernetesWarning)
        return read_kubernetes(path, **options)


def refused(folder: Path, seeds: Iterable[int]) -> tuple[int, list[str]]:
    """How many bindings were made, and those that the scheduler refuses."""
    made, wrong = 0, list[str]()
    for seed in seeds:
        items = clusters.random_cluster(seed)
        instance = read(folder, items, preempt_below=10 if seed % 4 == 3 else None)
        cluster = place(instance, POLICIES[seed % 3], seed=seed)
        where = {
            pod.name: instance.nodes[n].name
            for pod, n in zip(instance.pods, cluster.node.tolist(), strict=True)
            if n >= 0
        }
        items_made = plan(instance, where, {}).items
        made += len(items_made)
        wrong += [f"seed {seed}: {text}" for text in checker.judge(items, items_made)]
    return made, wrong


def test_no_binding_is_refused(tmp_path: Path) -> None:
    made, wrong = refused(tmp_path, range(120))
    assert not wrong and made > 240


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1000, 101_000, 20_000))
def test_no_binding_of_many_clusters_is_refused(tmp_path: Path, start: int) -> None:
    made, wrong = refused(tmp_path, range(start, start + 20_000))
    assert not wrong and made > 40_000


def test_no_binding_of_the_model_is_refused(tmp_path: Path) -> None:
    for seed in range(4):
        items = clusters.random_cluster(seed)
        instance = read(tmp_path, items)
        solution = PodPlacement(instance).solve("highs")
        assert solution.certificate is not None and solution.certificate.ok
        answer = solution.to_dict()["answer"]
        assert checker.judge(items, plan(instance, answer["placement"], answer["cards"]).items) == []


def test_most_pods_that_could_go_are_bound(tmp_path: Path) -> None:
    """The importer may leave a pod pending that the scheduler would bind, but seldom."""
    could, bound = 0, 0
    for seed in range(50):
        items = clusters.random_cluster(seed)
        instance = read(tmp_path, items)
        cluster, state = place(instance, "priority-queue"), checker.Scheduler(items)
        for pod, n in zip(instance.pods, cluster.node.tolist(), strict=True):
            if n >= 0 and pod.node is None:
                space, _, name = pod.name.partition("/")
                state.on[space, name] = instance.nodes[n].name
                bound += 1
        waits = [pod for key, pod in state.pods.items() if key not in state.on and not pod["spec"].get("nodeName")]
        could += sum(bool(state.open_nodes(pod)) for pod in waits)
    assert could < bound / 8


def test_the_checker_refuses_bindings_at_random() -> None:
    """Each filter refuses some of the bindings chosen at random."""
    seen: set[str] = set()
    for seed in range(150):
        items, rng = clusters.random_cluster(seed), random.Random(seed)
        state = checker.Scheduler(items)
        for key, pod in state.pods.items():
            if key not in state.on and not pod["spec"].get("nodeName"):
                node = rng.choice(sorted(state.nodes))
                seen.update(state.refusals(pod, node))
                state.on[key] = node
    assert seen == {*checker.Scheduler.FILTERS, "SchedulingGates"}
