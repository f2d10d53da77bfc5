"""Objects that apply a placement: grace periods, budgets, replacements, and changes since it was computed."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from flowlex.systems.kubernetes.bindings import Plan, plan, script
from flowlex.systems.kubernetes.disruption_budgets import Budgets
from flowlex.systems.kubernetes.objects import Cluster, read_cluster
from flowlex.systems.kubernetes.placement_instance import Snapshot
from flowlex.systems.kubernetes.snapshot_diff import changed_since


def node(name: str, **labels: str) -> dict[str, Any]:
    status = {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}}
    return {"kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": {}, "status": status}


def pod(name: str, *, on: str = "", owner: str = "ReplicaSet", version: str = "1", **spec: Any) -> dict[str, Any]:
    meta: dict[str, Any] = {"name": name, "namespace": "s", "uid": f"uid-{name}", "resourceVersion": version}
    meta["labels"] = {"app": name[0]}
    if owner:
        meta["ownerReferences"] = [{"kind": owner, "name": f"own-{name[0]}", "controller": True}]
    body = {"containers": [{"name": "m", "resources": {"requests": {"cpu": "2"}}}], "priority": 0, **spec}
    return {
        "kind": "Pod",
        "metadata": meta,
        "spec": body | ({"nodeName": on} if on else {}),
        "status": {"phase": "Running" if on else "Pending"},
    }


def budget(app: str = "r", name: str = "b", **spec: Any) -> dict[str, Any]:
    status = {"disruptionsAllowed": spec.pop("allowed")} if "allowed" in spec else {}
    selector = {"selector": {"matchLabels": {"app": app}}}
    meta = {"name": name, "namespace": "s"}
    return {"kind": "PodDisruptionBudget", "metadata": meta, "spec": {**selector, **spec}, "status": status}


def cluster_of(folder: Path, items: list[dict[str, Any]], name: str = "c.json") -> Cluster:
    path = folder / name
    path.write_text(json.dumps({"kind": "List", "items": items}), encoding="utf-8")
    return read_cluster(path)


def planned(cluster: Cluster, placement: dict[str, str]) -> Plan:
    return plan(Snapshot.of(cluster, "c.json").instance(preempt_below=5).instance, placement, {}, cluster)


def told(found: Plan) -> list[str]:
    return [f"{item['kind']} {item['metadata']['name']}" for item in found.items]


def away(app: str) -> dict[str, Any]:
    """Anti-affinity over any domain; the label is the first letter of a pod's name."""
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "zone"}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


RUNNING = [node("n1"), node("n2"), pod("r1", on="n1"), pod("r2", on="n1"), pod("w", priority=9)]


def test_an_eviction_has_the_grace_of_its_pod_and_means_this_pod_only(tmp_path: Path) -> None:
    slow = pod("r1", on="n1", terminationGracePeriodSeconds=90)
    found = planned(cluster_of(tmp_path, [node("n1"), slow, pod("w")]), {"s/w": "n1"})
    assert told(found) == ["Eviction r1", "Binding w"]
    assert found.items[0]["deleteOptions"]["gracePeriodSeconds"] == 90
    assert found.items[0]["deleteOptions"]["preconditions"] == {"uid": "uid-r1"}
    assert found.items[1]["metadata"]["uid"] == "uid-w" and found.items[1]["metadata"]["resourceVersion"] == "1"


@pytest.mark.parametrize(
    ("owner", "made", "says"),
    [
        ("ReplicaSet", ["Eviction r1"], "ReplicaSet own-r makes a new pod; place it on n2"),
        ("StatefulSet", ["Eviction r1", "Binding r1"], "StatefulSet own-r makes r1 again; place it on n2"),
        (
            "",
            ["Eviction r1"],
            "nothing makes it anew; create it yourself, with nodeName n2 (`flowlex bindings --manifests`)",
        ),
    ],
)
def test_the_replacement_of_a_moved_pod_is_named(tmp_path: Path, owner: str, made: list[str], says: str) -> None:
    found = planned(cluster_of(tmp_path, [node("n1"), node("n2"), pod("r1", on="n1", owner=owner)]), {"s/r1": "n2"})
    assert told(found) == made
    assert found.items[0]["metadata"]["annotations"] == {"flowlex/replacement": says}
    assert all("uid" not in item["metadata"] for item in found.items)  # the replacement has another


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        ({"allowed": 0}, 0),
        ({"allowed": 1}, 1),
        ({"minAvailable": 1}, 1),
        ({"minAvailable": 2}, 0),
        ({"minAvailable": "40%"}, 1),  # of 2 pods, rounded up
        ({"minAvailable": "51%"}, 0),
        ({"maxUnavailable": 1}, 1),
        ({"maxUnavailable": 0}, 0),
        ({"maxUnavailable": "10%"}, 1),
        ({"maxUnavailable": "100%"}, 2),
    ],
)
def test_a_budget_allows_so_many_evictions(tmp_path: Path, spec: dict[str, Any], allowed: int) -> None:
    cluster = cluster_of(tmp_path, [*RUNNING, budget(**spec)])
    budgets = Budgets(cluster)
    taken = [budgets.take(pod) is None for pod in cluster.running]
    assert sum(taken) == allowed
    # Pods that need a forbidden eviction wait; the others are bound.
    found = planned(cluster, {"s/w": "n1", "s/r2": "n1"} if allowed < 2 else {"s/w": "n1"})
    assert told(found) == ([] if not allowed else ["Eviction r1", *["Eviction r2"] * (allowed - 1), "Binding w"])
    if not allowed:
        assert found.waits == {
            "s/r1": "it goes on where it runs, as PodDisruptionBudget b allows no disruption now",
            "s/w": "it counts on the eviction of s/r1, which a PodDisruptionBudget forbids",
        }


def test_what_does_not_count_on_a_forbidden_eviction_goes(tmp_path: Path) -> None:
    cluster = cluster_of(tmp_path, [*RUNNING, pod("x"), budget(allowed=0)])
    found = planned(cluster, {"s/r2": "n1", "s/w": "n1", "s/x": "n2"})
    assert told(found) == ["Binding x"] and set(found.waits) == {"s/r1", "s/w"}


def test_nobody_is_evicted_where_nothing_is_bound(tmp_path: Path) -> None:
    found = planned(cluster_of(tmp_path, [*RUNNING, budget(allowed=1)]), {"s/w": "n1"})
    assert not found.items and set(found.waits) == {"s/r1", "s/r2", "s/w"}
    assert found.waits["s/r1"] == "it goes on where it runs, as nothing is bound in its place"


def test_two_budgets_of_one_pod_and_damaged_ones_forbid(tmp_path: Path) -> None:
    both = [budget(name="a", allowed=3), budget(name="b", allowed=3)]
    for more, says in (
        (both, "2 PodDisruptionBudgets select it (a, b)"),
        ([budget(minAvailable="x")], "cannot be read"),
    ):
        cluster = cluster_of(tmp_path, [*RUNNING, *more])
        refused = Budgets(cluster).take(cluster.running[0])
        assert refused is not None and says in refused


def test_a_budget_of_unready_pods(tmp_path: Path) -> None:
    sick = pod("r1", on="n1")
    sick["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    for policy, free in (("IfHealthyBudget", False), ("AlwaysAllow", True)):
        cluster = cluster_of(tmp_path, [node("n1"), sick, budget(allowed=0, unhealthyPodEvictionPolicy=policy)])
        assert (Budgets(cluster).take(cluster.running[0]) is None) == free


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (lambda items: None, {}),
        (lambda items: items.pop(), {"s/w": "it is gone"}),
        (lambda items: items.__setitem__(-1, pod("w", version="2")), {"s/w": "resourceVersion uid-w:1 became uid-w:2"}),
        (lambda items: items.__setitem__(-1, pod("w", on="n2")), {"s/w": "(it is on n2 now)"}),
        (lambda items: items.pop(0), {"node n1": "it is gone", "s/r1": "it is gone"}),
        (lambda items: items.__setitem__(0, node("n1", new="label")), {"node n1": "its labels, taints, readiness or"}),
        (lambda items: items.insert(2, pod("other", on="n1")), {"s/other": "it came to node n1"}),
        (lambda items: items.insert(2, pod("other", on="n2")), {}),
        (
            lambda items: items.__setitem__(3, pod("r2", on="n1", overhead={"cpu": "1"})),
            {"s/r2": "what it uses of"},
        ),
        (lambda items: items.insert(2, pod("db", on="n2")), {"s/db": "s/w joins it, avoids it or is spread with it"}),
        (lambda items: items.insert(2, pod("db", on="elsewhere")), {}),
        (lambda items: items.insert(2, pod("other", on="n2", affinity=away("w"))), {"s/other": "and s/w joins it"}),
        (lambda items: items.insert(2, pod("other", on="n2", affinity=away("x"))), {}),
    ],
)
def test_what_changed_since_is_refused_by_name(tmp_path: Path, change: Any, wrong: dict[str, str]) -> None:
    avoiding = pod("w", priority=9, affinity=away("d"))
    before = cluster_of(tmp_path, [*RUNNING[:-1], avoiding])
    found = planned(before, {"s/w": "n1", "s/r2": "n1"})
    newer = [*RUNNING[:-1], avoiding]
    change(newer)
    changed = changed_since(found, before, cluster_of(tmp_path, newer))
    assert changed.keys() == wrong.keys()
    assert all(wrong[name] in changed[name] for name in wrong)


def test_the_script_is_one_that_a_shell_takes(tmp_path: Path) -> None:
    """Run with a `kubectl` that records its arguments."""
    found = planned(cluster_of(tmp_path, RUNNING), {"s/w": "n1", "s/r2": "n1"})
    log, path = tmp_path / "log", tmp_path / "apply.sh"
    path.write_text(script(found), encoding="utf-8")
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(f'#!/bin/sh\necho "$@" >> {log}\ncase "$1" in create) cat >> {log};; esac\n', encoding="utf-8")
    kubectl.chmod(0o755)
    for dry in ("", "1"):
        log.write_text("", encoding="utf-8")
        environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"} | ({"DRY_RUN": dry} if dry else {})
        subprocess.run(["/bin/sh", str(path)], env=environment, check=True)
        lines = log.read_text(encoding="utf-8").splitlines()
        called = [line for line in lines if not line.startswith("{")]
        end = "?dryRun=All" if dry else ""
        assert called[0] == f"create --raw /api/v1/namespaces/s/pods/r1/eviction{end} -f -"
        assert called[-1] == f"create --raw /api/v1/namespaces/s/pods/w/binding{end} -f -"
        assert called[1:-1] == ([] if dry else ["wait --for=delete pod/r1 -n s --timeout=90s"])
        assert [json.loads(line)["kind"] for line in lines if line.startswith("{")] == ["Eviction", "Binding"]
