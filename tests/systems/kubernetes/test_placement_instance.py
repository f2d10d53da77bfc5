"""Objects as `kubectl get nodes,pods -A -o json` prints them (shortened by hand), and bindings back."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from flowlex.instances.instance_base import InstanceError
from flowlex.models.pods.baselines import place
from flowlex.systems.kubernetes.placement_instance import KubernetesWarning, read_kubernetes
from flowlex.systems.kubernetes.resources import quantity


def node(name: str, *, gpus: int = 0, taints: Any = None, **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": "5b0c0bd6-0d5e-4e5c-9d5e-6d2f2c1f9a11",
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", **labels},
        },
        "spec": {"podCIDR": "10.244.0.0/24", **({"taints": taints} if taints else {})},
        "status": {
            "capacity": {"cpu": "16", "memory": "65843004Ki", "pods": "110"},
            "allocatable": {
                "cpu": "15890m",
                "ephemeral-storage": "93492209510",
                "hugepages-2Mi": "0",
                "memory": "64Gi",
                "pods": "110",
                **({"nvidia.com/gpu": str(gpus)} if gpus else {}),
            },
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(name: str, requests: Any, *, phase: str = "Pending", **more: Any) -> dict[str, Any]:
    annotations = more.pop("annotations", None)
    meta: dict[str, Any] = {"name": name, "namespace": "team-a", **more.pop("meta", {})}
    if annotations:
        meta["annotations"] = annotations
    spec = {"containers": [{"name": "main", "image": "x", "resources": {"requests": requests, "limits": requests}}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {**spec, **more}, "status": {"phase": phase}}


GPU_TAINT = [
    {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
    {"key": "soft", "effect": "PreferNoSchedule"},
]
MODEL = {"nvidia.com/gpu.product": "NVIDIA-A10", "nvidia.com/gpu.memory": "24576"}
OBJECTS = {
    "apiVersion": "v1",
    "kind": "List",
    "items": [
        node("cpu-1"),
        node("gpu-1", gpus=2, taints=GPU_TAINT, **MODEL),
        pod("web", {"cpu": "500m", "memory": "512Mi"}, phase="Running", nodeName="cpu-1", priority=0),
        pod(
            "train",
            {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1"},
            priority=1000,
            tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
            nodeSelector={"kubernetes.io/os": "linux"},
        ),
        pod(
            "share",
            {"cpu": "1"},
            annotations={"alibabacloud.com/gpu-milli": "250", "alibabacloud.com/gpu-count": "1"},
            tolerations=[{"operator": "Exists"}],
        ),
        pod("intolerant", {"cpu": "1", "nvidia.com/gpu": "1"}),
        pod("done", {"cpu": "1"}, phase="Succeeded", nodeName="cpu-1"),
        pod("gated", {"cpu": "1"}, schedulingGates=[{"name": "quota"}]),
    ],
}


def write(folder: Path, objects: Any = OBJECTS) -> Path:
    path = folder / "cluster.json"
    path.write_text(json.dumps(objects), encoding="utf-8")
    return path


def test_objects_become_an_instance(tmp_path: Path) -> None:
    instance = read_kubernetes(write(tmp_path))
    cpu, gpu = instance.nodes
    assert (cpu.cpu_cores, cpu.memory_gb, cpu.cards, cpu.taints) == (15.89, 64.0, 0, ())
    assert (gpu.cards, gpu.card_gb, gpu.card_model) == (2, 24.0, "NVIDIA-A10")
    assert gpu.taints == ("nvidia.com/gpu=present:NoSchedule",)
    web, train, share = instance.pods
    assert (web.name, web.node, web.cpu_cores, web.memory_gb) == ("team-a/web", "cpu-1", 0.5, 0.5)
    assert (train.gpu_share, train.gpu_cards, train.priority) == (1.0, 1, 1000)
    assert train.tolerations == share.tolerations == gpu.taints
    assert instance.pending == {
        "team-a/intolerant": "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, "
        "1 node(s) had untolerated taint {nvidia.com/gpu: present}.",
        "team-a/gated": "scheduling gates hold it: quota",
    }
    assert instance.summary()["left pending"] == 2
    assert share.gpu_share == 0.25 and train.node_labels == {"kubernetes.io/os": "linux"}
    assert read_kubernetes(write(tmp_path), preempt_below=1).pods[0].preempt_cost == 1.0


def test_gb_of_a_card_and_a_share_of_its_compute(tmp_path: Path) -> None:
    asking = pod("x", {"cpu": "1", "ucloud/gpu-mem": "3", "ucloud/gpu-core.percentage": "30"})
    shared = node("n")
    shared["status"]["allocatable"] |= {"ucloud/gpu-mem": "16", "ucloud/gpu-core.percentage": "100"}
    with pytest.warns(KubernetesWarning, match="1 node with GPU memory taken as one card"):
        (read,) = read_kubernetes(write(tmp_path, {"items": [shared, asking]})).pods
    assert (read.gpu_memory_gb, read.gpu_compute, read.gpu_cards) == (3.0, 0.3, 1)


def test_a_resource_counts_the_cards_that_pods_share(tmp_path: Path) -> None:
    """Two cards of 16 GB: a pod of 17 GB waits, though the node has 32."""
    shared, asking = node("n"), pod("x", {"aliyun.com/gpu-mem": "17"})
    shared["status"]["allocatable"] |= {"aliyun.com/gpu-mem": "32", "aliyun.com/gpu-count": "2"}
    instance = read_kubernetes(write(tmp_path, {"items": [shared, asking]}))
    assert (instance.nodes[0].cards, instance.nodes[0].card_gb) == (2, 16.0)
    assert (place(instance, "priority-queue").node < 0).all()


@pytest.mark.parametrize(
    ("text", "value"),
    [("500m", Fraction(1, 2)), ("1Ki", 1024), ("1.5Gi", 3 * 2**29), ("2", 2), ("1e3", 1000), ("12E", 12 * 10**18),
     ("100u", Fraction(1, 10_000)), (".5", Fraction(1, 2))],
)  # fmt: skip
def test_quantities_are_exact(text: str, value: Any) -> None:
    assert quantity(text) == value


@pytest.mark.parametrize("text", ["", "1 Gi", "ten", "1KiB", "0x10", "1e", None])
def test_what_is_no_quantity_is_refused(text: Any) -> None:
    with pytest.raises(ValueError, match="is no quantity; such as 500m, 2 or 16Gi is expected"):
        quantity(text)


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        ({}, "it is no List of objects"),
        ([], "it has no Node"),
        ([1, "x", None], "it has no Node"),
        ({"items": [pod("x", {})]}, "it has no Node"),
        ({"items": [{"kind": "Node", "metadata": {"name": "n"}}]}, "items[0] (Node n): a field is missing"),
    ],
)
def test_a_file_without_a_cluster_is_refused(tmp_path: Path, objects: Any, message: str) -> None:
    with pytest.raises(InstanceError) as error:
        read_kubernetes(write(tmp_path, objects))
    assert message in str(error.value) and "cluster.json" in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("apiVersion: v1\nkind: List\n", "it is no List of objects"),
        ("kind: Node\n- 3\n", "line 2 column 1: neither JSON nor YAML: did not find expected key"),
        ("kind: Node\nmetadata: \x00\n", "neither JSON nor YAML"),
        ("&a [*a]", "its YAML has aliases (*name) of lists"),
        ("\n \n", "it is empty"),
        ('{"items": [1, 2}', "line 1 column 16: damaged JSON: Expecting ',' or ']'"),
        ('{"items": [\n{"kind": "Node",, "x": 1}]}', "line 2 column 17: damaged JSON"),
        ('{"items": [{"kind": "Node", "metadata": {"na', "line 1 column 42: damaged JSON (cut off?)"),
        ('{"items": [', "damaged JSON (cut off?)"),
        ("[" * 100_000, "it is no List of objects"),
    ],
)
def test_text_that_is_no_json_is_named_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "cluster.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InstanceError) as error:
        read_kubernetes(path)
    assert message in str(error.value) and "cluster.json" in str(error.value)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"metadata": {"name": "x"}}, "1 object without a kind, the first at items[1] (no kind x)"),
        ({"kind": "Pod", "metadata": {"name": "y"}}, "items[1] (Pod y): a field is missing"),
        ({"kind": "Pod", "spec": 3}, "items[1] (Pod): a field is missing"),
        ({"kind": "Node"}, "items[1] (Node): a field is missing"),
        (pod("x", {}, phase="Running", nodeName="gone"), "1 pod running on a node that is not listed"),
        (pod("x", {"cpu": "-1"}, phase="Running", nodeName="n"), "cpu is -1; a quantity must be at least 0"),
        (node("n"), "1 node listed twice, such as 'n'"),
    ],
)
def test_one_object_ends_no_import(tmp_path: Path, item: Any, message: str) -> None:
    objects = {"items": [node("n"), item, node("n2"), pod("fine", {"cpu": "1"})]}
    with pytest.warns(KubernetesWarning) as caught:
        instance = read_kubernetes(write(tmp_path, objects))
    assert message in str(caught[0].message) and [each.name for each in instance.pods][-1] == "team-a/fine"


@pytest.mark.parametrize(
    ("waiting", "reason"),
    [
        (pod("x", {"cpu": "much"}), "'much' is no quantity; such as 500m, 2 or 16Gi is expected"),
        (pod("x", {"cpu": "-1"}), "cpu is -1; a quantity must be at least 0"),
        (
            pod("x", {"memory": "1e99"}),
            "1 Insufficient memory",
        ),
        (pod("x", {}, resourceClaims=[{"name": "gpu"}]), "it claims devices by ResourceClaims, which are not read"),
        (pod("x", {}, affinity=[1]), "its rules cannot be read: 'list' object has no attribute 'values'"),
        (
            pod("x", {}, tolerations=[{"operator": "Near"}]),
            "toleration with operator 'Near'; Equal and Exists are known",
        ),
    ],
)
def test_a_pod_that_cannot_be_stated_stays_pending(tmp_path: Path, waiting: Any, reason: str) -> None:
    tainted = node("n", taints=[{"key": "a", "effect": "NoSchedule"}])
    instance = read_kubernetes(write(tmp_path, {"items": [tainted, waiting, node("n2"), pod("fine", {})]}))
    assert [each.name for each in instance.pods] == ["team-a/fine"]
    assert reason in instance.pending["team-a/x"]


def test_several_documents_and_lists_of_lists_are_read(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    inner = {"kind": "List", "items": [pod("a", {})]}
    path.write_text(json.dumps({"kind": "NodeList", "items": [node("n")]}) + "\n" + json.dumps([inner, [pod("b", {})]]))
    assert [each.name for each in read_kubernetes(path).pods] == ["team-a/a", "team-a/b"]


def test_of_two_pods_of_a_name_the_running_one_counts(tmp_path: Path) -> None:
    two = [pod("x", {"cpu": "1"}), pod("x", {"cpu": "2"}, phase="Running", nodeName="n")]
    with pytest.warns(KubernetesWarning, match=r"1 pod of a name that is taken, such as items\[1\] \(Pod x\)"):
        (only,) = read_kubernetes(write(tmp_path, {"items": [node("n"), *two]})).pods
    assert (only.node, only.cpu_cores) == ("n", 2.0)


def test_kubernetes_annotations_name_the_cards(tmp_path: Any) -> None:
    cards = {"kind": "Node", "metadata": {"name": "n", "labels": {"nvidia.com/gpu.count": "2"}}}
    cards["status"] = {"allocatable": {"cpu": "8", "memory": "8Gi", "aliyun.com/gpu-mem": "32"}}

    def noted(name: str, notes: dict[str, str]) -> dict[str, Any]:
        request = {"resources": {"limits": {"aliyun.com/gpu-mem": "8"}}}
        return {
            "kind": "Pod",
            "metadata": {"name": name, "annotations": notes},
            "spec": {"nodeName": "n", "containers": [request]},
        }

    notes = ({"ALIYUN_COM_GPU_MEM_IDX": "1"}, {"flowlex/cards": "0"}, {"ALIYUN_COM_GPU_MEM_IDX": "-1"}, {})
    items = [cards, *(noted(f"p{k}", each) for k, each in enumerate(notes))]
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"kind": "List", "items": items}))
    assert [each.node_cards for each in read_kubernetes(path).pods] == [(1,), (0,), None, None]
