"""The filters over all nodes at once against the independent filters of the conformance suite."""

import json
from pathlib import Path
from typing import Any

import pytest

from flowlex.systems.kubernetes.gpu_cards import cards_of_nodes
from flowlex.systems.kubernetes.objects import Cluster, read_cluster
from flowlex.systems.kubernetes.one_by_one import SCORES, new_bindings, place_waiting
from flowlex.systems.kubernetes.scheduler_filters import SchedulerState
from tests.systems.kubernetes.conformance import checker
from tests.systems.kubernetes.conformance import random_clusters as clusters


def read(folder: Path, items: list[dict[str, Any]]) -> Cluster:
    path = folder / "c.json"
    path.write_text(json.dumps({"kind": "List", "items": items}), encoding="utf-8")
    return read_cluster(path)


def state_of(cluster: Cluster) -> SchedulerState:
    return SchedulerState(cluster, cards_of_nodes(cluster, 16.0))


def same(ours: SchedulerState, theirs: checker.Scheduler, seed: int) -> int:
    compared = 0
    for pod in ours.cluster.waiting:
        key = tuple(pod.name.split("/"))
        if key in theirs.on or pod.scheduler not in ("default-scheduler", "volcano"):
            continue
        mine = {ours.names[k] for k in ours.open_nodes(pod).nonzero()[0]}
        assert mine == set(theirs.open_nodes(theirs.pods[key])), (seed, pod.name, ours.reason(pod))
        compared += 1
    return compared


@pytest.mark.parametrize("start", [0, 100])
def test_the_same_nodes_are_open_before_and_after_each_binding(tmp_path: Path, start: int) -> None:
    compared = 0
    for seed in range(start, start + 40):
        items = clusters.random_cluster(seed)
        cluster = read(tmp_path, items)
        made, theirs = new_bindings(cluster, lambda cluster=cluster: state_of(cluster)), checker.Scheduler(items)
        compared += same(made.state, theirs, seed)
        place_waiting(made, SCORES[seed % len(SCORES)])
        for pod in made.order:
            key = tuple(pod.name.split("/"))
            node = made.places[pod.name]
            assert not theirs.refusals(theirs.pods[key], node), (seed, pod.name, node)
            theirs.on[key] = node
        compared += same(made.state, theirs, seed)
    assert compared > 200
