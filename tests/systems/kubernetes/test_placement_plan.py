"""Plans for waiting pods: never worse than one by one, nothing left that fits, groups whole, reasons for the rest."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flowlex.cli.app import app
from flowlex.systems.kubernetes.objects import read_cluster
from flowlex.systems.kubernetes.one_by_one import SCORES, better, new_bindings, place_waiting
from flowlex.systems.kubernetes.placement_instance import Snapshot
from flowlex.systems.kubernetes.placement_plan import PlacementPlan, place_pods
from flowlex.systems.kubernetes.ruin_and_recreate import improve
from tests.systems.kubernetes.conformance import checker
from tests.systems.kubernetes.conformance import random_clusters as clusters

Json = dict[str, Any]
ZONE = "topology.kubernetes.io/zone"
OWNER = [{"kind": "Job", "name": "j", "controller": True}]


def node(name: str, cpu: str = "4", labels: Json | None = None, **more: str) -> Json:
    has = {"cpu": cpu, "memory": "16Gi", "pods": "110", **more}
    meta = {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}}
    return {"kind": "Node", "metadata": meta, "spec": {}, "status": {"allocatable": has}}


def pod(name: str, cpu: str = "1", *, on: str = "", meta: Json | None = None, gpu: int = 0, **spec: Any) -> Json:
    asked = {"cpu": cpu} | ({"nvidia.com/gpu": str(gpu)} if gpu else {})
    body = {"containers": [{"name": "m", "image": "i", "resources": {"requests": asked}}], **spec}
    body |= {"nodeName": on} if on else {}
    about = {"name": name, "namespace": "s", "ownerReferences": OWNER, **(meta or {})}
    return {"kind": "Pod", "metadata": about, "spec": body, "status": {"phase": "Running" if on else "Pending"}}


def group(name: str, least: int) -> Json:
    return {"kind": "PodGroup", "metadata": {"name": name, "namespace": "s"}, "spec": {"minMember": least}}


def member(name: str) -> Json:
    return {"labels": {"scheduling.x-k8s.io/pod-group": name}}


def planned(folder: Path, items: list[Json], **options: Any) -> PlacementPlan:
    path = folder / "cluster.json"
    path.write_text(json.dumps({"kind": "List", "items": items}), encoding="utf-8")
    return place_pods(Snapshot.of(read_cluster(path), path), **options)


def bound(plan: PlacementPlan) -> dict[str, str]:
    return {name.partition("/")[2]: where for name, where in plan.made.places.items()}


def reasons(plan: PlacementPlan) -> dict[str, str]:
    return {answer.pod.partition("/")[2]: answer.reason for answer in plan.answers() if answer.node is None}


@pytest.mark.parametrize("seeds", [range(12), pytest.param(range(12, 30), marks=pytest.mark.rare)], ids=str)
def test_plans_of_random_clusters_hold_and_are_never_worse_than_one_by_one(tmp_path: Path, seeds: range) -> None:
    """Every binding passes the independent filters in its turn, no pod is left that they would take, and no pass that
    binds pods one by one has more of a priority, given equal numbers above it.
    """
    claimed = 0
    for seed in seeds:
        items = clusters.random_cluster(seed)
        plan = planned(tmp_path, items, seed=seed)
        made = plan.objects().items
        assert checker.judge(items, made) == [], seed
        state = checker.Scheduler(items)
        state.on |= {checker.key_of(item): item["target"]["name"] for item in made}
        for key, waiting in state.pods.items():
            assert key in state.on or waiting["spec"].get("nodeName") or not state.open_nodes(waiting), (seed, key)
        for score in SCORES:
            single = new_bindings(plan.snapshot.cluster, plan.snapshot.first_state)
            place_waiting(single, score)
            assert better(plan.made.counts(), single.counts()) >= 0, (seed, score)
            for level in plan.levels:  # no bound is refuted by a pass that has the same numbers above it
                same = all(
                    single.counts().get((other.priority, False), 0) == other.bound
                    for other in plan.levels
                    if other.priority > level.priority
                )
                assert not same or level.most is None or single.counts().get((level.priority, False), 0) <= level.most
        claimed += plan.proven
    assert claimed >= len(seeds) // 4


@pytest.mark.parametrize("below", [None, 50], ids=["waiting pods", "running pods too"])
def test_a_search_step_keeps_an_order_that_the_filters_allow(tmp_path: Path, below: int | None) -> None:
    """After every gain, the bindings of random clusters pass the independent filters in their order."""
    gains = 0
    for seed in range(12):
        items = clusters.random_cluster(seed)
        path = tmp_path / "cluster.json"
        path.write_text(json.dumps({"kind": "List", "items": items}), encoding="utf-8")
        snapshot = Snapshot.of(read_cluster(path), path)
        made = new_bindings(snapshot.cluster, snapshot.first_state)
        place_waiting(made, "most-allocated")
        before, steps = made.counts(), iter(range(60))
        improve(made, lambda steps=steps: next(steps, None) is None, preempt_below=below, seed=seed)
        plan = PlacementPlan(snapshot, made, "search", ())
        assert checker.judge(items, plan.objects().items) == [], seed
        assert better(made.counts(), before) >= 0
        gains += better(made.counts(), before)
    assert gains > 0


def near(app_name: str) -> Json:
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": app_name}}}
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def test_a_pod_that_follows_another_is_not_displaced_by_less_important_ones(tmp_path: Path) -> None:
    items = [node("n1", "3", {ZONE: "a"}), pod("api", priority=9, meta={"labels": {"app": "api"}})]
    items += [pod("near", priority=9, affinity=near("api")), pod("low1"), pod("low2")]
    plan = planned(tmp_path, items)
    assert bound(plan).keys() >= {"api", "near"} and plan.bound == 3 and plan.proven
    assert [(level.bound, level.most) for level in plan.levels] == [(2, 2), (1, 1)]


def test_a_spread_of_a_pending_pod_binds_nobody_else(tmp_path: Path) -> None:
    rule = {"maxSkew": 1, "topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "w"}}}
    stated = {"topologySpreadConstraints": [rule | {"whenUnsatisfiable": "DoNotSchedule"}]}
    closed = node("b1", labels={ZONE: "b"}) | {"spec": {"unschedulable": True}}
    app = {"labels": {"app": "w"}}
    items = [node("a1", labels={ZONE: "a"}), closed, pod("run", on="a1", meta=app, **stated)]
    items += [pod("stated", meta=app, **stated), pod("plain", priority=1000, meta=app)]
    plan = planned(tmp_path, items)
    assert bound(plan) == {"plain": "a1"}
    assert "node(s) didn't match pod topology spread constraints" in reasons(plan)["stated"]


def test_a_group_starts_with_as_many_pods_as_fit_from_its_least_on(tmp_path: Path) -> None:
    """Eight pods of one core, at least four at once: six cores take six of them, three cores none."""
    pods = [pod(f"g{k}", meta=member("g")) for k in range(8)]
    assert planned(tmp_path, [node("n1", "6"), *pods, group("g", 4)]).bound == 6
    none = planned(tmp_path, [node("n1", "3"), *pods, group("g", 4)])
    assert none.bound == 0
    assert all("its pod group g needs 4 pods at once" in why for why in reasons(none).values())
    above = planned(tmp_path, [node("n1", "6"), *pods, group("g", 4), pod("top", "3", priority=9)])
    assert bound(above) == {"top": "n1"}  # three cores are left


@pytest.mark.parametrize(
    ("least", "wanted", "stopped"),
    [(3, "1", 3), (2, "1", 1), (2, "2", 3), (1, "2", 2)],
    ids=["whole", "down to its least", "whole, as its least is in the way", "two of three"],
)
def test_a_running_group_stops_as_a_whole_or_keeps_its_least(
    tmp_path: Path, least: int, wanted: str, stopped: int
) -> None:
    """Three pods of a group fill a node of three cores, and a more important pod asks for one or two of them."""
    items = [node("n1", "3"), *(pod(f"g{k}", on="n1", meta=member("g")) for k in range(3)), group("g", least)]
    plan = planned(tmp_path, [*items, pod("top", wanted, priority=9)], preempt_below=5)
    assert bound(plan) == {"top": "n1"} and len(plan.stopped) == stopped


def test_a_group_of_which_a_pod_may_not_stop_goes_on(tmp_path: Path) -> None:
    items = [node("n1", "2"), *(pod(f"g{k}", on="n1", meta=member("g")) for k in range(2)), group("g", 2)]
    items[1]["metadata"]["labels"]["keep"] = "yes"
    budget: Json = {"kind": "PodDisruptionBudget", "metadata": {"name": "b", "namespace": "s"}}
    budget["spec"] = {"minAvailable": 1, "selector": {"matchLabels": {"keep": "yes"}}}
    plan = planned(tmp_path, [*items, budget, pod("top", priority=9)], preempt_below=5)
    assert not plan.made.order and not plan.stopped


def test_a_move_never_takes_a_group_below_its_least(tmp_path: Path) -> None:
    """Two nodes with two cards, one in use on each: a move frees the other card, unless the pod's group needs it."""
    cards = {"nvidia.com/gpu": "2"}
    items = [node("n1", **cards), node("n2", **cards)]
    items += [pod(f"g{k}", on=f"n{k + 1}", gpu=1, meta=member("g")) for k in range(2)]
    items += [pod("w", "1", gpu=2)]
    path = tmp_path / "c.json"
    for least, moves in ((2, 0), (1, 0)):
        path.write_text(json.dumps({"items": [*items, group("g", least)]}), encoding="utf-8")
        told = CliRunner().invoke(app, ["place", str(path), "--defragment", "1"])
        assert f"defragment: {moves} moves free 0 whole cards" in told.output
    shared = {"aliyun.com/gpu-mem": "16", "aliyun.com/gpu-count": "2"}
    items = [node("n1", **shared), node("n2", **shared)]
    items += [pod(f"g{k}", on=f"n{k + 1}", meta=member("g")) for k in range(2)]
    for each in items[2:]:
        each["spec"]["containers"][0]["resources"]["requests"]["aliyun.com/gpu-mem"] = "3"
    for least, freed in ((2, "0 moves free 0 whole cards"), (1, "1 move frees 1 whole card")):
        path.write_text(json.dumps({"items": [*items, group("g", least)]}), encoding="utf-8")
        told = CliRunner().invoke(app, ["place", str(path), "--defragment", "1"])
        assert f"defragment: {freed}" in told.output, told.output


@pytest.mark.parametrize(
    ("notes", "fit"),
    [
        ({"gpu-fraction": "0.5"}, 4),
        ({"gpu-memory": "6144"}, 4),
        ({"gpu-fraction": "0.6"}, 2),
        ({"gpu-fraction": "2"}, 0),
    ],
)
def test_gpu_requests_in_annotations_take_parts_of_cards(tmp_path: Path, notes: Json, fit: int) -> None:
    """Two cards of 16 GB: a half and 6 GB fit twice on each, 0.6 once; two cards are no part of one."""
    items = [node("n1", **{"nvidia.com/gpu": "2"}), *(pod(f"p{k}", "0", meta={"annotations": notes}) for k in range(5))]
    plan = planned(tmp_path, items)
    assert plan.bound == fit
    why = "above 0 and at most 1 is expected" if not fit else "Insufficient GPU memory on a card"
    assert len(reasons(plan)) == 5 - fit and all(why in text for text in reasons(plan).values())


def test_a_quota_is_named_as_the_server_does(tmp_path: Path) -> None:
    quota: Json = {"kind": "ResourceQuota", "metadata": {"name": "team-a", "namespace": "s"}}
    quota["spec"] = {"hard": {"requests.cpu": "3"}}
    plan = planned(tmp_path, [node("n1", "8"), pod("run", "2", on="n1"), pod("a"), pod("b"), quota])
    (why,) = reasons(plan).values()
    said = "exceeded quota: team-a, requested: requests.cpu=1, used: requests.cpu=3, limited: requests.cpu=3"
    assert plan.bound == 1 and plan.proven and why == said


CLASS = {"kind": "StorageClass", "provisioner": "kubernetes.io/aws-ebs", "volumeBindingMode": "WaitForFirstConsumer"}


def claim(name: str, volume: str = "", **spec: Any) -> Json:
    body = {"storageClassName": "gp2", "accessModes": ["ReadWriteOnce"], **({"volumeName": volume} if volume else {})}
    return {"kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "s"}, "spec": body | spec}


def using(name: str, claimed: str, *, on: str = "") -> Json:
    return pod(name, on=on, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": claimed}}])


def test_claims_are_known_or_their_pods_wait(tmp_path: Path) -> None:
    items = [node("n1"), using("a", "data")]
    assert 'persistentvolumeclaim "data" is not listed' in reasons(planned(tmp_path, items))["a"]
    assert "kubectl get nodes,pods,pvc,pv,storageclass,csinode" in reasons(planned(tmp_path, items))["a"]
    other = [*items, claim("other", "v")]
    assert reasons(planned(tmp_path, other))["a"] == 'persistentvolumeclaim "data" not found'
    known = [*items, claim("data", "v")]
    assert 'persistentvolume "v" is not listed' in reasons(planned(tmp_path, known))["a"]
    volume: Json = {"kind": "PersistentVolume", "metadata": {"name": "w"}, "spec": {}}
    assert "bound to non-existent pv(s)" in reasons(planned(tmp_path, [*known, volume]))["a"]
    assert bound(planned(tmp_path, [*known, volume | {"metadata": {"name": "v"}}])) == {"a": "n1"}


def test_in_tree_volumes_count_under_their_driver_where_it_is_migrated(tmp_path: Path) -> None:
    drivers = {"drivers": [{"name": "ebs.csi.aws.com", "nodeID": "n", "allocatable": {"count": 1}}]}
    note = {"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/aws-ebs,kubernetes.io/gce-pd"}
    items = [node("n1"), CLASS | {"metadata": {"name": "gp2"}}, using("r", "c0", on="n1"), using("w", "c1")]
    for k in range(2):
        spec = {"awsElasticBlockStore": {"volumeID": f"vol-{k}"}}
        items += [claim(f"c{k}", f"v{k}"), {"kind": "PersistentVolume", "metadata": {"name": f"v{k}"}, "spec": spec}]
    limit: Json = {"kind": "CSINode", "metadata": {"name": "n1", "annotations": note}, "spec": drivers}
    why = "0/1 nodes are available: 1 node(s) exceed max volume count."
    assert reasons(planned(tmp_path, [*items, limit])) == {"w": why}
    plain = {**limit, "metadata": {"name": "n1"}}
    assert bound(planned(tmp_path, [*items, plain])) == {"w": "n1"}
    shared = [*items[:3], using("w", "c0"), *items[4:], limit]  # the same volume counts once
    assert bound(planned(tmp_path, shared)) == {"w": "n1"}
    unbound = [each for each in items if each["metadata"]["name"] != "c1"] + [claim("c1"), limit]
    assert reasons(planned(tmp_path, unbound)) == {"w": why}
    held: Json = {"kind": "VolumeAttachment", "metadata": {"name": "x"}}
    held["spec"] = {"attacher": "ebs.csi.aws.com", "nodeName": "n1", "source": {"persistentVolumeName": "v0"}}
    gone = [each for each in items if each["metadata"]["name"] != "r"] + [limit, held]
    assert reasons(planned(tmp_path, gone)) == {"w": why}


def test_a_late_claim_takes_a_listed_volume_where_there_is_one(tmp_path: Path) -> None:
    """Two local volumes, on n1 and n2: two of three pods are bound, each beside a volume that is large enough."""
    local = {**CLASS, "provisioner": "kubernetes.io/no-provisioner", "metadata": {"name": "gp2"}}
    items = [node("n1"), node("n2"), node("n3"), local]
    for k, size in ((1, "5Gi"), (2, "9Gi"), (3, "1Gi")):
        here = [{"key": "kubernetes.io/hostname", "operator": "In", "values": [f"n{k}"]}]
        spec: Json = {"storageClassName": "gp2", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": size}}
        spec |= {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": here}]}}}
        items.append({"kind": "PersistentVolume", "metadata": {"name": f"v{k}"}, "spec": spec})
        asked = {"resources": {"requests": {"storage": "4Gi"}}}
        items += [claim(f"c{k}", **asked), using(f"p{k}", f"c{k}")]
    plan = planned(tmp_path, items)
    assert sorted(bound(plan).values()) == ["n1", "n2"]
    (why,) = reasons(plan).values()
    assert "node(s) didn't find available persistent volumes to bind" in why
    late = plan.objects().claims
    taken = {volume for claims in late.values() for volume in claims.values()}
    assert taken == {"v1", "v2"}


def test_one_byte_on_a_full_node_waits(tmp_path: Path) -> None:
    items = [node("n1"), pod("r", on="n1"), pod("w", "0")]
    items[0]["status"]["allocatable"]["memory"] = "30000000"
    for each, memory in ((items[1], "30000000"), (items[2], "1")):
        each["spec"]["containers"][0]["resources"]["requests"]["memory"] = memory
    plan = planned(tmp_path, items)
    assert plan.proven and reasons(plan) == {"w": "0/1 nodes are available: 1 Insufficient memory."}


def test_an_unknown_toleration_counts_in_any_order(tmp_path: Path) -> None:
    both: list[Json] = [{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Near"}]
    tainted = node("n1") | {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}
    told = [reasons(planned(tmp_path, [tainted, pod("w", tolerations=each)])) for each in (both, both[::-1])]
    assert told[0] == told[1] and "operator 'Near'" in told[0]["w"]
    taints = [{"key": key, "effect": "NoSchedule"} for key in "ab"]
    tolerated: list[Json] = [{"key": "b", "operator": "Exists"}, {"key": "a", "operator": "Exists"}]
    for each in (tolerated, tolerated[::-1]):
        plan = planned(tmp_path, [node("n1") | {"spec": {"taints": taints}}, pod("w", tolerations=each)])
        assert bound(plan) == {"w": "n1"}


def test_rbd_disks_are_the_same_if_they_share_a_monitor(tmp_path: Path) -> None:
    def disk(*monitors: str) -> Json:
        return {"volumes": [{"name": "d", "rbd": {"monitors": list(monitors), "image": "i"}}]}

    items = [node("n1"), pod("r", on="n1", **disk("a", "b")), pod("same", **disk("b", "c")), pod("other", **disk("c"))]
    plan = planned(tmp_path, items)
    assert len(plan.made.order) == 1  # "other" shares a monitor with "same", which never fits beside "r"
    assert reasons(plan) == {"same": "0/1 nodes are available: 1 node(s) had no available disk."}
