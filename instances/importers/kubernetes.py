"""Nodes and pods of a Kubernetes cluster (``kubectl get nodes,pods -A -o json``), and bindings back.

Read are allocatable resources, labels, taints and ``unschedulable`` of nodes, and requests, priority, ``nodeSelector``,
required node affinity, tolerations and ``nodeName`` of pods that have not ended. GPUs are whole cards
(``nvidia.com/gpu``), GB of one card (a resource named ``*/gpu-mem``, with ``*/gpu-core.percentage`` for a share of its
compute), or thousandths (annotations
``alibabacloud.com/gpu-milli`` and ``gpu-count``). Pod groups become gangs, required anti-affinity and topology spread
become spreads, and a ResourceQuota the quota of its namespace; what of these cannot be said is counted in a warning
(`flowlex.instances.importers.kubernetes_rules`). Volumes and ports are not read.
"""

from __future__ import annotations

import copy
import json
import re
import warnings
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from flowlex.instances.base import InstanceError
from flowlex.instances.importers.kubernetes_rules import read_rules
from flowlex.instances.pods import Pod, PodInstance, PodNode
from flowlex.instances.storage import read_bytes

__all__ = ["KubernetesWarning", "bindings", "manifests", "quantity", "read_kubernetes"]

_GPU, _MODEL, _MEMORY = "nvidia.com/gpu", "nvidia.com/gpu.product", "nvidia.com/gpu.memory"
_MILLI, _COUNT = "alibabacloud.com/gpu-milli", "alibabacloud.com/gpu-count"
#: Compute of a card in percent, as the paper's device plugin names it.
_COMPUTE = "/gpu-core.percentage"
_POWERS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_QUANTITY = re.compile(
    r"([+-]?\d{1,30}(?:\.\d{0,30})?|[+-]?\.\d{1,30})(?:([KMGTPE])i|([numkMGTPE])|[eE]([+-]?\d{1,2}))?"
)
#: Taints that keep pods away; PreferNoSchedule does not.
_HARD = ("NoSchedule", "NoExecute")


class KubernetesWarning(UserWarning):
    """Objects state rules that no instance can say; they are left out."""


def quantity(text: object) -> Fraction:
    """A Kubernetes quantity, exactly: ``500m`` is one half, ``1Ki`` is 1024.

    Raises
    ------
    ValueError
        It is none.
    """
    found = _QUANTITY.fullmatch(str(text).strip())
    if found is None:
        raise ValueError(f"{str(text)[:40]!r} is no quantity; such as 500m, 2 or 16Gi is expected")
    number, binary, decimal, exponent = found.groups()
    if binary:
        return Fraction(number) * (1 << 10 * ("KMGTPE".index(binary) + 1))
    power = int(exponent) if exponent else _POWERS[decimal or ""]
    return Fraction(f"{number}e{power}")


def read_kubernetes(path: str | Path, *, card_gb: float = 16.0, preempt_below: int | None = None) -> PodInstance:
    """Read the objects of a cluster as a pod-placement instance; pods are named ``namespace/name``.

    Parameters
    ----------
    path
        One JSON document, a List of Node and Pod objects, with ResourceQuota and PodGroup objects or without; gzip
        too.
    card_gb
        Memory of cards of nodes without the label ``nvidia.com/gpu.memory`` (MiB).
    preempt_below
        Running pods of a lower priority may be stopped, at cost 1 each; None: none may.

    Raises
    ------
    InstanceError
        It is no such document, or an object cannot be understood; names the object and the field.
    """
    kinds = _objects(path)
    nodes = [_read(_node, item, place, path, card_gb) for kind, item, place in kinds if kind == "Node"]
    if not nodes:
        raise InstanceError("it has no Node; `kubectl get nodes,pods -A -o json` lists both", path=path)
    taints = sorted({taint for node in nodes for taint in node.taints})
    waits = [(item, place) for kind, item, place in kinds if kind == "Pod" and _read(_lives, item, place, path)]
    pods = [_read(_pod, item, place, path, taints, preempt_below) for item, place in waits]
    live = [item for item, _ in waits]
    try:
        others = [item for kind, item, _ in kinds if kind in ("ResourceQuota", "PodGroup")]
        fields, rules, skipped = read_rules(live, others, quantity)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InstanceError(f"a rule over pods cannot be understood ({error})", path=path) from error
    if told := [f"{many} {what}" for what, many in skipped.items() if many]:
        warnings.warn(f"{path}: not read: {'; '.join(told)}", KubernetesWarning, stacklevel=2)
    pods = [pod.model_copy(update=more) for pod, more in zip(pods, fields, strict=True)]
    try:
        return PodInstance(name=Path(path).name.partition(".")[0], nodes=tuple(nodes), pods=tuple(pods), **rules)
    except ValidationError as error:
        raise InstanceError(error.errors()[0]["msg"].removeprefix("Value error, "), path=path) from error


def _objects(path: str | Path) -> list[tuple[str, Any, str]]:
    """Kind, object and place of each item of a List."""
    try:
        items = json.loads(read_bytes(path))["items"]
        return [(item["kind"], item, _place(k, item)) for k, item in enumerate(items)]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        reason = "it is no List of objects; `kubectl get nodes,pods -A -o json` makes one"
        raise InstanceError(reason, path=path) from error


def _place(k: int, item: Mapping[str, Any]) -> str:
    """Where an object stands in its list, and what it is called."""
    meta = item.get("metadata")
    name = meta.get("name") if isinstance(meta, dict) else None
    return f"items[{k}] ({item['kind']}{'' if name is None else f' {name}'})"


def _read(make: Any, item: Mapping[str, Any], place: str, path: str | Path, *more: Any) -> Any:
    try:
        return make(item, *more)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(step) for step in first["loc"])
        raise InstanceError(f"{where}: {first['msg'].removeprefix('Value error, ')}", place=place, path=path) from error
    except (KeyError, TypeError, AttributeError) as error:
        raise InstanceError(f"a field is missing or of another type ({error})", place=place, path=path) from error
    except ValueError as error:
        raise InstanceError(str(error), place=place, path=path) from error


def _lives(item: Mapping[str, Any]) -> bool:
    """Whether a pod has not ended and nothing holds it back from scheduling."""
    spec, phase = item.get("spec") or {}, (item.get("status") or {}).get("phase")
    return phase not in ("Succeeded", "Failed") and not spec.get("schedulingGates")


def _taint(taint: Mapping[str, Any]) -> str:
    return f"{taint['key']}={taint.get('value', '')}:{taint['effect']}"


def _node(item: Mapping[str, Any], card_gb: float) -> PodNode:
    has, labels = item["status"]["allocatable"], dict(item["metadata"].get("labels") or {})
    spec = item.get("spec") or {}
    taints = [_taint(taint) for taint in spec.get("taints") or () if taint["effect"] in _HARD]
    if spec.get("unschedulable"):
        taints.append("node.kubernetes.io/unschedulable=:NoSchedule")
    cards = int(quantity(has.get(_GPU, 0)))
    memory = float(Fraction(labels[_MEMORY]) / 1024) if _MEMORY in labels else card_gb
    whole = [quantity(amount) for name, amount in has.items() if name.endswith("/gpu-mem")]
    if whole and whole[0] and not cards:  # cards are told by their memory alone
        cards = int(labels.get("nvidia.com/gpu.count", 1))
        memory = float(whole[0] / cards)
    return PodNode(
        name=item["metadata"]["name"],
        cpu_cores=float(quantity(has["cpu"])),
        memory_gb=float(quantity(has["memory"]) / 1024**3),
        cards=cards,
        card_gb=memory if cards else 0.0,
        card_model=labels.get(_MODEL) if cards else None,
        labels=labels,
        taints=tuple(dict.fromkeys(taints)),
    )


def _pod(item: Mapping[str, Any], taints: Sequence[str], preempt_below: int | None) -> Pod:
    meta, spec = item["metadata"], item["spec"]
    asked, priority, node = _requests(spec), int(spec.get("priority") or 0), spec.get("nodeName")
    cards, notes = int(asked.get(_GPU, 0)), meta.get("annotations") or {}
    memory = next((amount for name, amount in asked.items() if name.endswith("/gpu-mem") and amount), Fraction(0))
    share = Fraction(1 if cards else 0)
    if _MILLI in notes:
        share, cards = Fraction(notes[_MILLI]) / 1000, int(notes.get(_COUNT, 1))
    if memory and share:
        raise ValueError("it asks for cards and for GB of a card; one of them is expected")
    stoppable = node is not None and preempt_below is not None and priority < preempt_below
    return Pod(
        name=f"{meta.get('namespace', 'default')}/{meta['name']}",
        cpu_cores=float(asked.get("cpu", 0)),
        memory_gb=float(asked.get("memory", Fraction(0)) / 1024**3),
        gpu_memory_gb=float(memory),
        gpu_share=float(share),
        gpu_cards=max(1, cards),
        gpu_compute=float(next((amount for name, amount in asked.items() if name.endswith(_COMPUTE)), 0) / 100),
        priority=priority,
        node_labels=_labels(spec),
        tolerations=tuple(t for t in taints if any(_tolerates(each, t) for each in spec.get("tolerations") or ())),
        node=node,
        preempt_cost=1.0 if stoppable else None,
    )


def _requests(spec: Mapping[str, Any]) -> dict[str, Fraction]:
    """What the pod's containers request together, or one init container where that is more, and its overhead."""
    total: dict[str, Fraction] = {}
    for container in spec["containers"]:
        for name, amount in _of(container).items():
            total[name] = total.get(name, Fraction(0)) + amount
    for container in spec.get("initContainers") or ():
        for name, amount in _of(container).items():
            total[name] = max(total.get(name, Fraction(0)), amount)
    for name, amount in (spec.get("overhead") or {}).items():
        total[name] = total.get(name, Fraction(0)) + quantity(amount)
    return total


def _of(container: Mapping[str, Any]) -> dict[str, Fraction]:
    """Requests of a container; where there is none, its limit is the request."""
    resources = container.get("resources") or {}
    return {k: quantity(v) for k, v in {**(resources.get("limits") or {}), **(resources.get("requests") or {})}.items()}


def _labels(spec: Mapping[str, Any]) -> dict[str, str]:
    """Labels that the node must have."""
    wanted = dict(spec.get("nodeSelector") or {})
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    terms = (affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms") or []
    for rule in (terms[0].get("matchExpressions") or []) if len(terms) == 1 else []:
        if rule["operator"] != "In" or len(rule["values"]) != 1:
            raise ValueError(f"node affinity {rule['operator']} {rule.get('values')} cannot be said; In one value can")
        wanted[rule["key"]] = rule["values"][0]
    if len(terms) > 1:
        raise ValueError(f"node affinity with {len(terms)} alternative terms cannot be said; one term can")
    return wanted


def _tolerates(toleration: Mapping[str, Any], taint: str) -> bool:
    head, _, effect = taint.rpartition(":")
    key, _, value = head.partition("=")
    same_key = toleration.get("key") in (None, "", key)
    same_value = toleration.get("operator") == "Exists" or (toleration.get("value") or "") == value
    if toleration.get("key") in (None, "") and toleration.get("operator") != "Exists":
        return False
    return same_key and same_value and toleration.get("effect") in (None, "", effect)


def bindings(instance: PodInstance, placement: Mapping[str, str], cards: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """The List of objects that brings a placement about.

    A Binding for each pod that starts, its cards as an annotation; an Eviction for each that stops or moves, whose
    controller then makes a new pod for the next placement.

    Parameters
    ----------
    placement, cards
        Pod to node, and pod to its cards, as in a solution file.
    """
    items: list[dict[str, Any]] = []
    for pod in instance.pods:
        namespace, _, name = pod.name.rpartition("/")
        meta: dict[str, Any] = {"name": name, "namespace": namespace or "default"}
        node = placement.get(pod.name)
        if pod.node is not None and node != pod.node:
            items.append({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta})
        elif pod.node is None and node is not None:
            if cards.get(pod.name):
                meta["annotations"] = {"flowlex/cards": ",".join(map(str, cards[pod.name]))}
            target = {"apiVersion": "v1", "kind": "Node", "name": node}
            items.append({"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target})
    return {"apiVersion": "v1", "kind": "List", "items": items}


def manifests(
    path: str | Path, instance: PodInstance, placement: Mapping[str, str], cards: Mapping[str, Sequence[int]]
) -> dict[str, Any]:
    """The objects of a cluster, patched: a List of the Pods that start or move, with ``nodeName`` and their cards.

    What a server adds (status, uid, ..) is left out, so that they can be created anew. Pods that move or stop come as
    Evictions first; a controller makes those that it owns again by itself, so no manifest is given for them.

    Parameters
    ----------
    path
        The objects that the instance was read from.
    placement, cards
        As for `bindings`.

    Raises
    ------
    InstanceError
        A pod of the placement is not among the objects.
    """
    found = {
        f"{item['metadata'].get('namespace', 'default')}/{item['metadata']['name']}": item
        for kind, item, _ in _objects(path)
        if kind == "Pod"
    }
    items = [item for item in bindings(instance, placement, cards)["items"] if item["kind"] == "Eviction"]
    for pod in instance.pods:
        node = placement.get(pod.name)
        if node is None or node == pod.node:
            continue
        if pod.name not in found:
            raise InstanceError(
                f"it has no Pod {pod.name!r}; give the objects that the instance was read from", path=path
            )
        item = copy.deepcopy(found[pod.name])
        meta = item["metadata"]
        if pod.node is not None and meta.get("ownerReferences"):
            continue
        item.pop("status", None)
        for field in ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "selfLink"):
            meta.pop(field, None)
        if cards.get(pod.name):
            meta["annotations"] = {
                **(meta.get("annotations") or {}),
                "flowlex/cards": ",".join(map(str, cards[pod.name])),
            }
        item["spec"]["nodeName"] = node
        items.append({"apiVersion": "v1", "kind": "Pod"} | item)
    return {"apiVersion": "v1", "kind": "List", "items": items}
