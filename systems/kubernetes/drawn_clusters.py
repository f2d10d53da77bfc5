"""Draw Kubernetes clusters with more waiting pods than fit: zones, GPU nodes, priorities, affinity and spread.

Deployments share their labels and rules; a third of the nodes has eight cards. Running pods fill about two thirds.
"""

from __future__ import annotations

import random
from typing import Any

Json = dict[str, Any]
_HARD = "requiredDuringSchedulingIgnoredDuringExecution"
_HOST, _ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
_PRIORITIES = (1000, 100, 100, 10, 10, 0, 0, 0)
_SINCE = "2026-11-27T{:02d}:{:02d}:00Z"


def _node(rng: random.Random, k: int) -> Json:
    name = f"node-{k:04d}"
    labels = {_HOST: name, _ZONE: f"zone-{'abc'[k % 3]}", "disk": rng.choice(["ssd", "hdd"])}
    has = {"cpu": rng.choice(["32", "64"]), "memory": rng.choice(["128Gi", "256Gi"]), "pods": "110"}
    spec: Json = {}
    if k % 3 == 0:
        has |= {"cpu": "96", "memory": "768Gi", "nvidia.com/gpu": "8"}
        labels["nvidia.com/gpu.product"] = rng.choice(["A100", "L4"])
        spec["taints"] = [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]
    meta = {"name": name, "labels": labels}
    ready = [{"type": "Ready", "status": "True"}]
    return {"kind": "Node", "metadata": meta, "spec": spec, "status": {"allocatable": has, "conditions": ready}}


def _template(rng: random.Random, k: int, rules: bool) -> Json:
    """The labels, priority and specification of a deployment."""
    app = {"app": f"app-{k:03d}"}
    cards = rng.choice([0, 0, 0, 1, 2, 4, 8])
    asked = {"cpu": str(rng.choice([1, 2, 4, 8, 12])), "memory": f"{rng.choice([2, 4, 8, 16, 32])}Gi"}
    spec: Json = {"priority": rng.choice(_PRIORITIES)}
    if cards:
        asked |= {"nvidia.com/gpu": str(cards), "cpu": str(4 * cards), "memory": f"{32 * cards}Gi"}
        spec["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
        if rng.random() < 0.3:
            spec["nodeSelector"] = {"nvidia.com/gpu.product": rng.choice(["A100", "L4"])}
    elif rng.random() < 0.2:
        spec["nodeSelector"] = {"disk": rng.choice(["ssd", "hdd"])}
    mine = {"matchLabels": app}
    if rules and (draw := rng.random()) < 0.5:
        if draw < 0.15:
            spec["affinity"] = {"podAntiAffinity": {_HARD: [{"topologyKey": _HOST, "labelSelector": mine}]}}
        elif draw < 0.35:
            skew = {"maxSkew": rng.choice([1, 2]), "topologyKey": _ZONE, "whenUnsatisfiable": "DoNotSchedule"}
            spec["topologySpreadConstraints"] = [{**skew, "labelSelector": mine}]
        else:
            other = {"matchLabels": {"app": f"app-{rng.randrange(max(1, k)):03d}"}} if rng.random() < 0.5 else mine
            spec["affinity"] = {"podAffinity": {_HARD: [{"topologyKey": _ZONE, "labelSelector": other}]}}
    spec["containers"] = [{"name": "main", "image": "x", "resources": {"requests": asked}}]
    return {"labels": app, "spec": spec}


def drawn_cluster(nodes: int, waiting: int, *, running: int | None = None, rules: bool = True, seed: int = 0) -> Json:
    """Return a List of the objects; running pods are put where they fit, regardless of rules."""
    rng = random.Random(seed)
    items = [_node(rng, k) for k in range(nodes)]
    free = [
        {what: _amount(much) for what, much in node["status"]["allocatable"].items() if what != "pods"}
        for node in items
    ]
    templates = [_template(rng, k, rules) for k in range(max(4, waiting // 8))]
    pods: list[Json] = []
    for _ in range(4 * nodes if running is None else running):
        made = rng.choice(templates)
        asked = {what: _amount(much) for what, much in made["spec"]["containers"][0]["resources"]["requests"].items()}
        for _ in range(4):
            k = rng.randrange(nodes)
            gpu = "nvidia.com/gpu"
            if (gpu in asked) == (gpu in free[k]) and all(much <= free[k].get(w, 0) for w, much in asked.items()):
                free[k] = {what: much - asked.get(what, 0) for what, much in free[k].items()}
                pods.append(_pod(made, len(pods), rng, items[k]["metadata"]["name"]))
                break
    pods += [_pod(rng.choice(templates), len(pods) + k, rng) for k in range(waiting)]
    return {"apiVersion": "v1", "kind": "List", "items": items + pods}


def _amount(text: str) -> int:
    return int(text.removesuffix("Gi"))


def _pod(made: Json, k: int, rng: random.Random, node: str = "") -> Json:
    since = _SINCE.format(rng.randrange(5), rng.randrange(60))
    meta = {"name": f"{made['labels']['app']}-{k:05d}", "namespace": "team", "labels": made["labels"]}
    meta |= {"creationTimestamp": since, "uid": f"uid-{k}", "resourceVersion": str(k)}
    spec = made["spec"] | ({"nodeName": node} if node else {})
    phase = "Running" if node else "Pending"
    return {"kind": "Pod", "metadata": meta, "spec": spec, "status": {"phase": phase}}
