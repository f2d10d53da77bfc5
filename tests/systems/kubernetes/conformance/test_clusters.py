"""Clusters by rule (`clusters.json`), each with the nodes that Kubernetes allows its waiting pods.

A node has 4 cores, 8Gi and 110 pods unless it says otherwise; a pod asks for 100m and lives in namespace ``s``.
``allows`` are the nodes for each waiting pod while the others wait; ``bound``: how many fit together if not all.

`tables.json` has clusters with one waiting pod. Each row has the value of ``$`` in the pod and the allowed nodes, by
minor version of Kubernetes if versions differ.
"""

import json
import re
import warnings
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from flowlex.models.pods.baselines import place
from flowlex.systems.kubernetes.bindings import plan
from flowlex.systems.kubernetes.objects import read_cluster
from flowlex.systems.kubernetes.placement_instance import KubernetesWarning, Snapshot, read_kubernetes
from tests.systems.kubernetes.conformance import checker

HERE = Path(__file__).parent


def _rows() -> Iterator[dict[str, Any]]:
    """The cases of the tables."""
    names = ("tables.json", "plugin_tables.json")
    for table in chain.from_iterable(json.loads((HERE / name).read_text(encoding="utf-8")) for name in names):
        for name, value, allowed in table["rows"]:
            pod = json.loads(json.dumps(table["pod"]).replace('"$"', json.dumps(value)))
            case = {**table, "pods": {**table.get("pods", {}), "p": pod}}
            for version, nodes in allowed.items() if isinstance(allowed, dict) else (("34", allowed),):
                said = f"{name}, 1.{version}" if isinstance(allowed, dict) else name
                yield {**case, "name": said, "version": version, "allows": {"p": nodes}}


CASES = [*json.loads((HERE / "clusters.json").read_text(encoding="utf-8")), *_rows()]


def _node(name: str, said: dict[str, Any], version: str) -> dict[str, Any]:
    has = {"cpu": "4", "memory": "8Gi", "pods": "110", **said.get("allocatable", {})}
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **said.get("labels", {})}},
        "spec": {key: said[key] for key in ("taints", "unschedulable") if key in said},
        "status": {
            "allocatable": has,
            "conditions": [{"type": "Ready", "status": said.get("ready", "True")}],
            "nodeInfo": {"kubeletVersion": f"v1.{version}.1"},
        },
    }


def _pod(name: str, said: dict[str, Any]) -> dict[str, Any]:
    meta = {"name": name, "namespace": said.get("namespace", "s"), "labels": said.get("labels", {})}
    if "uid" in said:
        meta["uid"] = said["uid"]
    if said.get("deleting"):
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    main = {"name": "main", "resources": {"requests": said.get("requests", {"cpu": "100m"})}}
    spec = {"containers": [main], **said.get("spec", {})}
    if "node" in said:
        spec["nodeName"] = said["node"]
    phase = said.get("phase", "Running" if "node" in said else "Pending")
    return {"kind": "Pod", "metadata": meta, "spec": spec, "status": {"phase": phase, **said.get("status", {})}}


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_pods_go_where_kubernetes_allows(tmp_path: Path, case: dict[str, Any]) -> None:
    items = [_node(*each, case.get("version", "34")) for each in case["nodes"].items()] + [
        _pod(*each) for each in case["pods"].items()
    ]
    items += case.get("objects", [])
    state = checker.Scheduler(items)
    waits = {key[1]: pod for key, pod in state.pods.items() if key[1] in case["allows"]}
    assert {name: state.open_nodes(waits[name]) for name in case["allows"]} == case["allows"]
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"kind": "List", "items": items}), encoding="utf-8")
    snapshot = Snapshot.of(read_cluster(path), path)
    ours, pods = snapshot.first_state(), {pod.name.partition("/")[2]: pod for pod in snapshot.cluster.waiting}
    opened = {name: [ours.names[n] for n in ours.open_nodes(pods[name]).nonzero()[0]] for name in case["allows"]}
    if case["filter"] != "PodGroup":
        assert opened == case["allows"], {name: ours.reason(pods[name]) for name in opened}
    refused = [ours.reason(pods[name]) for name, nodes in opened.items() if not nodes]
    assert all(why and not re.match("[1-9]", why) for why in refused)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KubernetesWarning)
        instance = read_kubernetes(path)
    nodes = [node.name for node in instance.nodes]
    cluster = place(instance, "priority-queue")
    where = {pod.name: nodes[n] for pod, n in zip(instance.pods, cluster.node.tolist(), strict=True) if n >= 0}
    made = plan(instance, where, {}).items
    assert checker.judge(items, made) == []
    assert len(made) == case.get("bound", sum(bool(nodes) for nodes in case["allows"].values()))
    waiting = {pod.name.partition("/")[2] for pod in instance.pods if pod.node is None}
    pending = {name.partition("/")[2] for name in instance.pending}
    assert waiting | pending == set(case["allows"])


def test_the_suite_covers_every_filter() -> None:
    assert len({case["name"].partition(", 1.")[0] for case in CASES}) >= 400 and {
        case["filter"] for case in CASES
    } >= set(checker.Scheduler.FILTERS)
