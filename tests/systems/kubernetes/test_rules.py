"""Rules of Kubernetes objects as rules of an instance."""

import json
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flowlex.cli.app import app
from flowlex.instances.instance_base import InstanceError
from flowlex.models.pods.baselines import place
from flowlex.models.pods.model import PodPlacement
from flowlex.systems.kubernetes.bindings import manifests, plan
from flowlex.systems.kubernetes.placement_instance import KubernetesWarning, read_kubernetes
from tests.systems.kubernetes.test_placement_instance import OBJECTS, node, pod, write


def labelled(**labels: str) -> dict[str, Any]:
    return {"meta": {"labels": labels}}


def apart(key: str = "kubernetes.io/hostname", **selector: Any) -> dict[str, Any]:
    terms = [{"labelSelector": selector, "topologyKey": key}]
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


def spread(when: str = "DoNotSchedule") -> dict[str, Any]:
    selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "site"]}]}
    rule = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": when, "labelSelector": selector}
    return {"topologySpreadConstraints": [rule]}


RULES = {
    "items": [
        node("n1", zone="a"),
        node("n2", zone="b"),
        *(pod(f"db-{k}", {"cpu": "1"}, **labelled(app="db"), **apart(matchLabels={"app": "db"})) for k in range(2)),
        *(pod(f"web-{k}", {"cpu": "1"}, **labelled(app="web"), **spread()) for k in range(3)),
        pod("soft", {"cpu": "1"}, **labelled(app="soft"), **spread("ScheduleAnyway")),
        pod("loner", {"cpu": "1"}, **labelled(app="x"), **apart(matchLabels={"app": "gone"})),
        pod("liked", {"cpu": "1"}, affinity={"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{}]}}),
        *(pod(f"mpi-{k}", {"cpu": "8"}, **labelled(**{"scheduling.x-k8s.io/pod-group": "mpi"})) for k in range(2)),
        pod("late", {"cpu": "1"}, annotations={"scheduling.k8s.io/group-name": "half"}),
        pod("ran", {"cpu": "1"}, nodeName="n1", phase="Running", annotations={"scheduling.k8s.io/group-name": "half"}),
        {
            "kind": "ResourceQuota",
            "metadata": {"name": "q", "namespace": "team-a"},
            "spec": {"hard": {"requests.cpu": "28500m", "requests.memory": "1Gi", "pods": "20"}},
        },
        {"kind": "PodGroup", "metadata": {"name": "mpi", "namespace": "team-a"}, "spec": {"minMember": 1}},
    ]
}


def test_rules_over_pods_are_read_or_counted(tmp_path: Path) -> None:
    with pytest.warns(KubernetesWarning) as caught:
        instance = read_kubernetes(write(tmp_path, RULES))
    told = str(caught[0].message)
    for what in (
        "1 pod with a spread where possible",
        "1 pod with preferences",
        "1 pod group running in part",
    ):
        assert what in told
    assert not instance.gangs  # a group that one pod can start needs nobody else
    rules = [(rule.over, rule.most, rule.skew) for rule in instance.spreads]
    assert rules == [("node", 1, None), ("zone", None, 1)]
    (queue,) = instance.queues
    assert (queue.name, queue.cpu_cores, queue.memory_gb, queue.pods, queue.gpus) == ("team-a", 28.5, 1.0, 20, None)
    of = {each.name.removeprefix("team-a/"): each for each in instance.pods}
    assert of["db-1"].spreads == (instance.spreads[0].name,) and of["web-2"].spreads == (instance.spreads[1].name,)
    assert of["mpi-0"].gang is None and of["late"].gang is None and of["soft"].spreads == ()
    assert {each.queue for each in instance.pods} == {"team-a"}


def test_a_selector_that_is_none_is_named(tmp_path: Path) -> None:
    strange = apart(matchExpressions=[{"key": "app", "operator": "Near"}])
    instance = read_kubernetes(write(tmp_path, {"items": [node("n"), pod("x", {"cpu": "1"}, **strange)]}))
    told = "label selector with operator 'Near'; In, NotIn, Exists, DoesNotExist are known"
    assert told in instance.pending["team-a/x"]


def test_patched_manifests_can_be_created_anew(tmp_path: Path) -> None:
    path = write(tmp_path)
    instance = read_kubernetes(path, preempt_below=1)
    found = plan(instance, {"team-a/train": "gpu-1"}, {"team-a/train": [1]})
    made = manifests(path, instance, found, {"team-a/train": "gpu-1"})["items"]
    assert [(item["kind"], item["metadata"]["name"]) for item in made] == [("Eviction", "web"), ("Pod", "train")]
    train = made[1]
    assert train["spec"]["nodeName"] == "gpu-1" and "status" not in train and train["apiVersion"] == "v1"
    assert train["metadata"]["annotations"] == {"flowlex/cards": "1"}
    items: Any = OBJECTS["items"]
    original = next(item for item in items if item["metadata"]["name"] == "train")
    assert train["spec"]["containers"] == original["spec"]["containers"] and "nodeName" not in original["spec"]
    # Importing the patched objects gives the placement: the pod runs there.
    nodes = [item for item in items if item["kind"] == "Node"]
    again = read_kubernetes(write(tmp_path, {"items": [*nodes, train]}))
    assert [(each.name, each.node) for each in again.pods] == [("team-a/train", "gpu-1")]
    with pytest.raises(InstanceError, match="it has no Pod 'team-a/train'"):
        manifests(write(tmp_path, {"items": nodes}), instance, found, {"team-a/train": "gpu-1"})


def test_from_objects_to_bindings_by_commands(tmp_path: Path) -> None:
    run, source, out, objects = CliRunner(), tmp_path / "c.json", tmp_path / "out", write(tmp_path, RULES)
    imported = run.invoke(app, ["import", "kubernetes", str(objects), "-o", str(source)])
    assert imported.exit_code == 0 and "not read" in imported.output
    solved = run.invoke(app, ["solve", str(source), "-o", str(out), "--gap", "0.5"])
    assert solved.exit_code == 0, solved.output
    (answer,) = out.glob("*.solution.json")
    command = ["bindings", str(answer), str(source)]
    printed = run.invoke(app, [*command, "--manifests", str(objects)])
    assert printed.exit_code == 0
    placed = {item["metadata"]["name"]: item["spec"]["nodeName"] for item in json.loads(printed.stdout)["items"]}
    assert placed["db-0"] != placed["db-1"] and {"mpi-0", "mpi-1"} <= placed.keys()
    bound = json.loads(run.invoke(app, command).stdout)["items"]
    assert {item["metadata"]["name"]: item["target"]["name"] for item in bound} == placed
    newer = tmp_path / "newer.json"
    newer.write_text(objects.read_text().replace('"name": "db-0"', '"name": "db-0", "resourceVersion": "9"'))
    assert run.invoke(app, [*command, "--objects", str(objects), "--against", str(objects)]).exit_code == 0
    changed = run.invoke(app, [*command, "--objects", str(objects), "--against", str(newer)])
    assert changed.exit_code == 1 and "team-a/db-0: resourceVersion" in changed.output
    assert run.invoke(app, [*command, "--against", str(newer)]).exit_code == 2
    document = json.loads(answer.read_text(encoding="utf-8"))
    document["answer"]["placement"]["team-a/db-0"] = document["answer"]["placement"]["team-a/db-1"]
    answer.write_text(json.dumps(document), encoding="utf-8")
    wrong = run.invoke(app, command)
    assert wrong.exit_code == 1 and "refused" in wrong.output


def quota(hard: dict[str, str], **spec: Any) -> dict[str, Any]:
    return {"kind": "ResourceQuota", "metadata": {"name": "q", "namespace": "team-a"}, "spec": {"hard": hard, **spec}}


@pytest.mark.parametrize(
    ("spec", "members"),
    [
        ({"scopes": ["Terminating"]}, {"ends"}),
        ({"scopes": ["NotTerminating"]}, {"urgent", "late", "none", "crossing"}),
        ({"scopes": ["BestEffort"]}, {"none"}),
        ({"scopes": ["NotBestEffort", "Terminating"]}, {"ends"}),
        ({"scopes": ["CrossNamespacePodAffinity"]}, {"crossing"}),
        ({"scopeSelector": [("In", ["high"])]}, {"urgent"}),
        ({"scopeSelector": [("NotIn", ["high"])]}, {"late", "ends", "none", "crossing"}),
        ({"scopeSelector": [("Exists", [])]}, {"urgent", "late"}),
        ({"scopeSelector": [("DoesNotExist", [])]}, {"ends", "none", "crossing"}),
    ],
)
def test_a_quota_with_scopes_limits_the_pods_in_scope(tmp_path: Path, spec: Any, members: set[str]) -> None:
    if "scopeSelector" in spec:
        rules = [{"scopeName": "PriorityClass", "operator": o, "values": v} for o, v in spec["scopeSelector"]]
        spec = {"scopeSelector": {"matchExpressions": rules}}
    soft = [{"weight": 1, "podAffinityTerm": {"namespaces": ["x"], "topologyKey": "zone", "labelSelector": {}}}]
    items = [
        node("n"),
        pod("urgent", {"cpu": "1"}, priorityClassName="high"),
        pod("late", {"cpu": "1"}, priorityClassName="low"),
        pod("ends", {"cpu": "1"}, activeDeadlineSeconds=9),
        pod("none", {}),
        pod(
            "crossing",
            {"cpu": "1"},
            affinity={"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": soft}},
        ),
        pod("elsewhere", {"cpu": "1"}, meta={"namespace": "team-b"}, priorityClassName="high"),
        quota({"pods": "0", "requests.cpu": "500m"}, **spec),
    ]
    with pytest.warns(KubernetesWarning):
        instance = read_kubernetes(write(tmp_path, {"items": items}))
    pods = {each.name: each for each in instance.pods}
    counted = {name for name, each in pods.items() if each.resources.get("pods of quota q in team-a")}
    assert counted == {f"team-a/{name}" for name in members}
    assert {r.amount for r in instance.resources if r.name.startswith("pods of")} == {0}
    cluster = place(instance, "priority-queue")
    waits = {each.name for each, n in zip(instance.pods, cluster.node.tolist(), strict=True) if n < 0}
    assert waits == counted


@pytest.mark.parametrize(
    ("hard", "asked"),
    [
        ({"requests.x.io/fpga": "1"}, {"x.io/fpga": "1"}),
        ({"ephemeral-storage": "1Gi"}, {"ephemeral-storage": "1Gi"}),
        ({"hugepages-2Mi": "2Mi"}, {"hugepages-2Mi": "2Mi"}),
        ({"requests.memory": "500M"}, {"memory": "500M"}),
        ({"count/pods": "1"}, {}),
    ],
)
def test_a_quota_of_any_resource_lets_one_of_two_pods_run(tmp_path: Path, hard: Any, asked: dict[str, str]) -> None:
    one = node("n")
    one["status"]["allocatable"] |= {"x.io/fpga": "4", "ephemeral-storage": "8Gi", "hugepages-2Mi": "8Mi"}
    ignored = {"count/services": "0", "limits.x.io/fpga": "0"}
    items = [one, quota({**hard, **ignored}), *(pod(name, asked) for name in "ab")]
    with pytest.warns(KubernetesWarning, match=r"1 quota of limits\.x\.io/fpga, which Kubernetes does not count"):
        instance = read_kubernetes(write(tmp_path, {"items": items}))
    assert (place(instance, "priority-queue").node >= 0).sum() == 1


def container(cpu: str = "", memory: str = "", *, sidecar: bool = False) -> dict[str, Any]:
    said = {key: value for key, value in (("cpu", cpu), ("memory", memory)) if value}
    always = {"restartPolicy": "Always"} if sidecar else {}
    return {"name": "c", "resources": {"requests": {"cpu": "10m"}, "limits": said}, **always}


ONE, TWO, FOUR = [container("1")], container("2", sidecar=True), container("4")


@pytest.mark.parametrize(
    ("spec", "resized", "cores", "mebibytes"),
    [
        ({"containers": [container("1500m", "1Gi"), container("1"), container("", "1Mi")]}, "", 2.5, 1025),
        ({"containers": [container()], "overhead": {"cpu": "1", "memory": "1Mi"}}, "", 0, 0),
        ({"containers": ONE, "overhead": {"cpu": "250m", "memory": "1Mi"}}, "", 1.25, 0),
        ({"containers": ONE, "initContainers": [container("3"), container("2", "1Mi")]}, "", 3, 1),
        ({"containers": ONE, "initContainers": [TWO]}, "", 3, 0),
        ({"containers": ONE, "initContainers": [TWO, FOUR]}, "", 6, 0),
        ({"containers": ONE, "initContainers": [FOUR, TWO]}, "", 4, 0),
        ({"containers": [container("1", "9Mi")], "resources": {"limits": {"cpu": "5"}}}, "", 5, 9),
        ({"containers": ONE}, "Deferred", 4, 0),  # it has 4 cores and shall have 1
        ({"containers": [container("5")]}, "Infeasible", 4, 0),
    ],
)
def test_limits_are_added_up_as_quotas_count_them(
    tmp_path: Path, spec: Any, resized: str, cores: float, mebibytes: int
) -> None:
    """A quota equal to the pod's limits admits it; a quota smaller by 1/1000 core or one KiB does not."""
    one, asks = node("n"), pod("p", {}, **spec)
    if resized:
        asks["status"]["containerStatuses"] = [{"name": "c", "resources": {"limits": {"cpu": "4"}}}]
        asks["status"]["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": resized}]
    for cpu, memory in ((0, 0), (1, 0), (0, 1)):
        hard = {
            "limits.cpu": f"{max(0, round(1000 * cores) - cpu)}m",
            "limits.memory": f"{max(0, 1024 * mebibytes - memory)}Ki",
        }
        instance = read_kubernetes(write(tmp_path, {"items": [one, quota(hard), asks]}))
        refused = (cpu and cores) or (memory and mebibytes)
        assert (place(instance, "priority-queue").node < 0).tolist() == [bool(refused)]


def test_limits_of_pods_compete_for_a_quota(tmp_path: Path) -> None:
    """Of two pods with limits of 3 cores and 1 GiB one may run, with those without limits; none if one runs."""
    large = [pod(name, {}, containers=[container("3", "1Gi")]) for name in "ab"]
    none = [pod(name, {}, containers=[container()]) for name in "cd"]
    for hard in ({"limits.cpu": "5"}, {"limits.memory": "1500Mi"}):
        instance = read_kubernetes(write(tmp_path, {"items": [node("n"), quota(hard), *large, *none]}))
        assert (place(instance, "priority-queue").node >= 0).sum() == 3
    runs = pod("r", {}, containers=[container("3")], phase="Running", nodeName="n")
    instance = read_kubernetes(write(tmp_path, {"items": [node("n"), quota({"limits.cpu": "5"}), runs, *large]}))
    assert (place(instance, "priority-queue").node >= 0).tolist() == [True, False, False]


def test_pods_of_other_schedulers_are_placed_where_they_are_named(tmp_path: Path) -> None:
    """Without names: pods of the default scheduler and of schedulers whose pod groups are read, with their counts."""
    names = {"a": "volcano", "b": "volcano", "c": "default-scheduler", "d": "", "e": "yunikorn"}
    pods = [pod(name, {"cpu": "1"}, schedulerName=scheduler) for name, scheduler in names.items()]
    pods[1]["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": "g"}
    pods.append(pod("runs", {"cpu": "1"}, schedulerName="yunikorn", phase="Running", nodeName="n"))
    group = {"kind": "PodGroup", "metadata": {"name": "g", "namespace": "team-a"}, "spec": {"minMember": 2}}
    path = write(tmp_path, {"items": [node("n"), *pods, group]})

    def placed(*scheduler: str) -> str:
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            found = read_kubernetes(path, scheduler=list(scheduler) or None)
        assert "team-a/b" in found.pending
        return "".join(each.name[-1] for each in found.pods if each.node is None)

    with pytest.warns(KubernetesWarning, match="2 pods of the scheduler volcano, placed as by the default"):
        assert "fewer pods than its minMember" in read_kubernetes(path).pending["team-a/b"]
    with pytest.warns(KubernetesWarning, match="1 scheduler that no pod waits for: yunicorn"):
        read_kubernetes(path, scheduler=["default-scheduler", "yunicorn"])
    assert [placed(), placed("volcano"), placed("yunikorn", "default-scheduler")] == ["acd", "a", "cde"]
    assert placed("any") == "acde"
    shown = CliRunner().invoke(app, ["place", str(path)]).output
    assert re.search(r"team-a/e .* it waits for another scheduler, yunikorn \(--scheduler yunikorn places it\)", shown)
    shown = CliRunner().invoke(app, ["place", str(path), "--scheduler", "yunikorn", "--scheduler", "volcano"]).output
    assert "bound: 2 of 5 waiting pods" in shown
    command = ["import", "kubernetes", str(path), "--scheduler", "volcano", "-o", str(tmp_path / "i.json")]
    written = CliRunner().invoke(app, command).output
    assert "2 pods left pending, as it waits for another scheduler, default-scheduler" in written


def claims(*names: str, **spec: Any) -> dict[str, Any]:
    return {"volumes": [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names], **spec}


def test_a_claim_of_one_pod_goes_to_the_more_important_one(tmp_path: Path) -> None:
    pods = [pod(name, {}, **claims("c", priority=rank)) for name, rank in (("low", 1), ("high", 9))]
    meta, spec = {"name": "c", "namespace": "team-a"}, {"accessModes": ["ReadWriteOncePod"], "volumeName": "v"}
    volumes = [
        {"kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec},
        {"kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": {}},
    ]
    instance = read_kubernetes(write(tmp_path, {"items": [node("n"), node("m"), *pods, *volumes]}))
    solution = PodPlacement(instance).solve("highs")
    assert solution.queue == ("team-a/low",)


def test_a_further_node_attaches_as_many_volumes(tmp_path: Path) -> None:
    """Nodes attach two volumes of a driver; five pods with one volume each wait, one of them of another driver."""
    pods = [pod(f"p{k}", {}, **claims(f"c{k}")) for k in range(6)]
    volumes: list[dict[str, Any]] = [
        {
            "kind": "CSINode",
            "metadata": {"name": "n"},
            "spec": {"drivers": [{"name": "x", "allocatable": {"count": 2}}]},
        }
    ]
    for k in range(6):
        meta = {"name": f"c{k}", "namespace": "team-a"}
        volumes += [
            {"kind": "PersistentVolumeClaim", "metadata": meta, "spec": {"volumeName": f"v{k}"}},
            {"kind": "PersistentVolume", "metadata": {"name": f"v{k}"}, "spec": {"csi": {"driver": "xy"[k == 5]}}},
        ]
    path = write(tmp_path, {"items": [node("n"), *pods, *volumes]})
    shown = CliRunner().invoke(app, ["place", str(path), "--what-if", "1 nodes of n"]).output
    assert "bound: 3 of 6 waiting pods, proven" in shown
    assert "what if 1 nodes of n: 2 more pods are bound (proven)" in shown


@pytest.mark.parametrize("stated", ["pod", "class"])
def test_a_pod_that_must_not_preempt_stops_nobody(tmp_path: Path, stated: str) -> None:
    policy = {"preemptionPolicy": "Never"} if stated == "pod" else {"priorityClassName": "modest"}
    kind = {"kind": "PriorityClass", "metadata": {"name": "modest"}, "value": 9, "preemptionPolicy": "Never"}
    run = pod("old", {"cpu": "10"}, phase="Running", nodeName="n", priority=0)
    for more, stops in ((policy, False), ({}, True)):
        items = [node("n"), run, kind, pod("new", {"cpu": "8"}, priority=9, **more)]
        instance = read_kubernetes(write(tmp_path, {"items": items}), preempt_below=5)
        solution = PodPlacement(instance).solve("highs")
        assert ("team-a/new" in solution.to_dict()["answer"]["placement"]) == stops


def test_a_budget_whose_status_is_old_lets_nobody_go(tmp_path: Path) -> None:
    run = pod("old", {"cpu": "10"}, phase="Running", nodeName="n", priority=0)
    for generation, cost in ((1, 1.0), (2, None)):
        meta = {"name": "b", "namespace": "team-a", "generation": generation}
        status = {"disruptionsAllowed": 1, "observedGeneration": 1}
        budget = {"kind": "PodDisruptionBudget", "metadata": meta, "spec": {"selector": {}}, "status": status}
        instance = read_kubernetes(write(tmp_path, {"items": [node("n"), run, budget]}), preempt_below=5)
        assert instance.pods[0].preempt_cost == cost


@pytest.mark.parametrize(
    "more",
    [
        {"annotations": {"kubernetes.io/config.mirror": "x"}},
        {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "1", "controller": True}]},
    ],
)
def test_a_static_pod_is_never_stopped(tmp_path: Path, more: dict[str, Any]) -> None:
    run = pod("old", {"cpu": "10"}, phase="Running", nodeName="n", priority=0)
    for meta, cost in (({}, 1.0), (more, None)):
        items = [node("n"), {**run, "metadata": {**run["metadata"], **meta}}]
        instance = read_kubernetes(write(tmp_path, {"items": items}), preempt_below=5)
        assert instance.pods[0].preempt_cost == cost


@pytest.mark.parametrize(
    ("labels", "notes", "objects"),
    [
        ({"scheduling.x-k8s.io/pod-group": "g"}, {}, [{"minMember": 3}]),
        ({}, {"scheduling.k8s.io/group-name": "g"}, [{"minMember": 3}]),
        (
            {"pod-group.scheduling.sigs.k8s.io": "g", "pod-group.scheduling.sigs.k8s.io/min-available": "3"},
            {},
            [],
        ),
        ({"kueue.x-k8s.io/pod-group-name": "g"}, {"kueue.x-k8s.io/pod-group-total-count": "3"}, []),
        ({}, {"kueue.x-k8s.io/workload": "g"}, [{"podSets": [{"count": 1}, {"count": 4, "minCount": 2}]}]),
    ],
)
def test_groups_of_three_schedulers_are_gangs(tmp_path: Path, labels: Any, notes: Any, objects: Any) -> None:
    meta = {"name": "g", "namespace": "team-a"}
    groups = [{"kind": "Workload" if "podSets" in o else "PodGroup", "metadata": meta, "spec": o} for o in objects]
    for many in (2, 3):
        pods = [pod(f"p{k}", {"cpu": "1"}, meta={"labels": labels}, annotations=notes) for k in range(many)]
        instance = read_kubernetes(write(tmp_path, {"items": [node("n"), *groups, *pods]}))
        if many == 3:
            assert {each.gang for each in instance.pods} == {"team-a/g"} and len(instance.pods) == 3
        else:
            assert set(instance.pending.values()) == {"its pod group has fewer pods than its minMember"}
