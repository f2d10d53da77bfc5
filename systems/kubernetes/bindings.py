"""Kubernetes objects that carry out a placement: evictions, then bindings in a feasible order."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Any

from flowlex.instances.group_rules import PodSpread
from flowlex.instances.instance_base import InstanceError
from flowlex.instances.pods import Pod, PodInstance, PodNode, fits_wishes
from flowlex.systems.kubernetes.disruption_budgets import Budgets
from flowlex.systems.kubernetes.documents import objects_of
from flowlex.systems.kubernetes.gpu_cards import card_notes
from flowlex.systems.kubernetes.objects import Cluster, KubePod


@dataclass(frozen=True)
class Plan:
    """Objects in the order in which they must be created, and pods that must wait after all, with the reason."""

    items: list[dict[str, Any]] = field(default_factory=list)
    waits: dict[str, str] = field(default_factory=dict)
    # by pod, claims that get their volume once it has a node, and the listed volume that each takes (None: a new one)
    claims: dict[str, dict[str, str | None]] = field(default_factory=dict)

    @property
    def document(self) -> dict[str, Any]:
        """The objects as a List."""
        return {"apiVersion": "v1", "kind": "List", "items": self.items}


class _Evenness:
    """Counts the pods of a topology spread by domain while pods are bound one by one."""

    def __init__(self, spread: PodSpread, instance: PodInstance, placement: Mapping[str, str]) -> None:
        self.skew, self.over = spread.skew or 0, spread.over
        node = {each.name: each for each in instance.nodes}
        mine = [pod for pod in instance.pods if spread.name in pod.spreads]
        here = [each for each in instance.nodes if any(fits_wishes(pod, each) for pod in mine)]
        self.held = Counter({d: 0 for each in here if (d := self.domain(each)) is not None})
        for pod in mine:
            if pod.node is not None and placement.get(pod.name) == pod.node:
                self.add(node[pod.node])

    def domain(self, node: PodNode) -> str | None:
        return node.name if self.over == "node" else node.labels.get(self.over)

    def takes(self, node: PodNode) -> bool:
        return self.held[self.domain(node) or ""] + 1 - min(self.held.values(), default=0) <= self.skew

    def add(self, node: PodNode) -> None:
        if (domain := self.domain(node)) is not None:
            self.held[domain] += 1


def _ordered(instance: PodInstance, placement: Mapping[str, str]) -> tuple[list[Pod], list[str]]:
    """Order the starting pods so that every binding keeps the topology spread; also return names of pods left over.

    Pods are left over only under several constraints at once; the next placement takes them.
    """
    node = {each.name: each for each in instance.nodes}
    even = {spread.name: _Evenness(spread, instance, placement) for spread in instance.spreads if spread.skew}
    # pods under a spread first: others that its selector matches bind nobody when they come later
    waits = sorted((p for p in instance.pods if p.node is None and p.name in placement), key=lambda p: not p.spreads)
    ordered: list[Pod] = []
    while waits:
        later = []
        for pod in waits:
            mine, at = [even[name] for name in pod.spreads if name in even], node[placement[pod.name]]
            if all(each.takes(at) for each in mine):
                ordered.append(pod)
                for each in mine:
                    each.add(at)
            else:
                later.append(pod)
        if len(later) == len(waits):
            gangs = {pod.gang for pod in later} - {None}  # a gang is bound completely or not at all
            stuck = [pod.name for pod in later] + [pod.name for pod in ordered if pod.gang in gangs]
            return [pod for pod in ordered if pod.gang not in gangs], stuck
        waits = later
    return ordered, []


def plan(
    instance: PodInstance,
    placement: Mapping[str, str],
    cards: Mapping[str, Sequence[int]],
    cluster: Cluster | None = None,
    *,
    now_ns: int = 0,
) -> Plan:
    """Return the objects that carry out a placement: first Evictions, whose pods have to be gone, then Bindings.

    The controller of a pod that stops or moves makes a new one; the annotation ``flowlex/replacement`` names it and its
    node. A pod of a StatefulSet keeps its name, so that its Binding follows.

    ``cluster`` holds the objects that the instance was read from. With it, Evictions have the pod's grace period and
    apply to this pod only (uid); those that a PodDisruptionBudget forbids are left out with all that depends on them.
    Bindings apply to the pod as read (uid, resourceVersion), and cards are reported to the pod's device plugin.
    """
    known = {} if cluster is None else {pod.name: pod for pod in (*cluster.running, *cluster.waiting)}
    budgets = None if cluster is None else Budgets(cluster)
    found, placement = Plan(), dict(placement)
    replaced: list[dict[str, Any]] = []
    staying: list[Pod] = []
    for pod in instance.pods:
        if pod.node is None or placement.get(pod.name) == pod.node:
            continue
        refused = budgets.take(known[pod.name]) if budgets is not None and pod.name in known else None
        if refused is not None:
            found.waits[pod.name] = f"it goes on where it runs, as {refused}"
            staying.append(pod)
            continue
        found.items.append(eviction(pod.name, known.get(pod.name), placement.get(pod.name)))
        if pod.name in placement and _owner(known.get(pod.name))[0] == "StatefulSet":
            replaced.append(binding(pod.name, placement[pod.name], cards.get(pod.name, ()), None, now_ns))
    for pod in staying:
        placement[pod.name] = str(pod.node)
    for pod in instance.pods:
        if pod.node is None and pod.name in placement and (other := _hinders(pod, placement, staying)):
            found.waits[pod.name] = f"it counts on the eviction of {other}, which a PodDisruptionBudget forbids"
    held = {pod.gang for pod in instance.pods if pod.name in found.waits} - {None}
    for pod in instance.pods:
        if pod.gang in held and pod.node is None and pod.name in placement:
            found.waits.setdefault(pod.name, f"a pod of its gang {pod.gang!r} has to wait")
    stay = {pod.name for pod in staying}
    placement = {name: node for name, node in placement.items() if name not in found.waits or name in stay}
    ordered, later = _ordered(instance, placement)
    found.waits.update(
        dict.fromkeys(later, "no order of bindings keeps its topology spread; the next placement takes it")
    )
    if not ordered:  # nothing is bound in place of the stopped pods
        stopped = [item for item in found.items if pod_of(item) not in placement]
        found.waits.update(
            (pod_of(item), "it goes on where it runs, as nothing is bound in its place") for item in stopped
        )
        found.items[:] = [item for item in found.items if item not in stopped]
    found.items.extend(replaced)
    for number, pod in enumerate(ordered):
        found.items.append(
            binding(pod.name, placement[pod.name], cards.get(pod.name, ()), known.get(pod.name), now_ns + number)
        )
    return found


def _hinders(pod: Pod, placement: Mapping[str, str], staying: Sequence[Pod]) -> str | None:
    """Return a pod that stays instead of stopping, and whose resources or rules a starting pod may need."""
    for other in staying:
        rules = {*other.spreads, *other.resources} & {*pod.spreads, *pod.resources}
        if other.node == placement[pod.name] or rules or (other.queue is not None and other.queue == pod.queue):
            return other.name
    return None


def _owner(pod: KubePod | None) -> tuple[str, str]:
    """Kind and name of the controller of a pod."""
    owners = () if pod is None else pod.item["metadata"].get("ownerReferences") or ()
    for owner in owners:
        if owner.get("controller", True):
            return str(owner.get("kind")), str(owner.get("name"))
    return "", ""


def eviction(pod: str, known: KubePod | None, target: str | None = None) -> dict[str, Any]:
    """Return the Eviction of a pod that stops, or moves to the node ``target``."""
    meta, options = _meta(pod), dict[str, Any]()
    if known is not None:
        kind, name = _owner(known)
        if kind and target:
            new = f"{meta['name']} again" if kind == "StatefulSet" else "a new pod"
            meta["annotations"] = {"flowlex/replacement": f"{kind} {name} makes {new}; place it on {target}"}
        elif target:
            own = "nothing makes it anew; create it yourself"
            meta["annotations"] = {
                "flowlex/replacement": f"{own}, with nodeName {target} (`flowlex bindings --manifests`)"
            }
        options["gracePeriodSeconds"] = int(known.spec.get("terminationGracePeriodSeconds") or 30)
        if uid := known.item["metadata"].get("uid"):
            options["preconditions"] = {"uid": uid}
    found = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
    return found | ({"deleteOptions": {"apiVersion": "v1", "kind": "DeleteOptions", **options}} if options else {})


def binding(pod: str, target: str, cards: Sequence[int], known: KubePod | None, now_ns: int = 0) -> dict[str, Any]:
    """Return the Binding of a pod to a node; ``cards`` become annotations for its device plugin."""
    meta = _meta(pod)
    if known is not None:
        meta |= {
            key: known.item["metadata"][key] for key in ("uid", "resourceVersion") if known.item["metadata"].get(key)
        }
    if cards:
        meta["annotations"] = card_notes(known, cards, now_ns)
    to = {"apiVersion": "v1", "kind": "Node", "name": target}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": to}


def _meta(pod: str) -> dict[str, Any]:
    namespace, _, name = pod.rpartition("/")
    return {"name": name, "namespace": namespace or "default"}


_SCRIPT = r"""#!/bin/sh
# Evicts and binds pods in order; DRY_RUN=1 lets the server check and change nothing.
# Goes on after a conflict, and prints at the end what was not evicted or bound (exit code 1).
set -u
failed='' closed=' '
post() { kubectl create --raw "$1${DRY_RUN:+?dryRun=All}" -f - > /dev/null; }
miss() { failed="$failed
  $1"; }
# evict POD NAMESPACE NODE; where a pod does not go, nothing is bound in its place
evict() { post "/api/v1/namespaces/$2/pods/$1/eviction" || { miss "$2/$1 was not evicted"; closed="$closed$3 "; }; }
# gone POD NAMESPACE NODE SECONDS
gone() {
  [ -n "${DRY_RUN:-}" ] && return
  case "$closed" in *" $3 "*) return ;; esac
  kubectl wait --for=delete "pod/$1" -n "$2" --timeout="$4s" || { miss "$2/$1 is still there"; closed="$closed$3 "; }
}
# bind POD NAMESPACE NODE
bind() {
  case "$closed" in *" $3 "*) cat > /dev/null; miss "$2/$1 to $3: a pod there was not evicted"; return ;; esac
  post "/api/v1/namespaces/$2/pods/$1/binding" || miss "$2/$1 to $3"
}
# late NAMESPACE CLAIM NODE [VOLUME]: let a claim get its volume on the node of its pod
late() {
  [ -n "${DRY_RUN:-}" ] && return
  if [ -n "${4:-}" ]; then
    claim="{\"spec\":{\"claimRef\":{\"namespace\":\"$1\",\"name\":\"$2\"}}}"
    kubectl patch pv "$4" -p "$claim" > /dev/null || miss "volume $4"
  fi
  kubectl annotate --overwrite pvc "$2" -n "$1" "volume.kubernetes.io/selected-node=$3" > /dev/null || miss "claim $2"
}
"""


def script(found: Plan, nodes: Mapping[str, str] | None = None) -> str:
    """The plan as a shell script: evict, wait until the pods are gone, bind; it goes on after a conflict.

    ``nodes`` are the nodes of the pods that are evicted. ``kubectl`` creates Evictions only by their path. With
    ``DRY_RUN=1`` the server checks and changes nothing.
    """
    lines = [_SCRIPT.rstrip()]
    gone: list[str] = []
    for item in found.items:
        pod = f"{item['metadata']['namespace']}/{item['metadata']['name']}"
        name, space = quote(item["metadata"]["name"]), quote(item["metadata"]["namespace"])
        if item["kind"] == "Eviction":
            at = quote((nodes or {}).get(pod, "-"))
            limit = int(item.get("deleteOptions", {}).get("gracePeriodSeconds", 30)) + 60
            gone.append(f"gone {name} {space} {at} {limit}")
            lines.append(f"evict {name} {space} {at} <<'EOF'\n{json.dumps(item)}\nEOF")
            continue
        lines += gone
        gone = []
        target = quote(item["target"]["name"])
        for claim, volume in found.claims.get(pod, {}).items():
            lines.append(
                f"late {space} {quote(claim.partition('/')[2])} {target} {quote(volume) if volume else ''}".rstrip()
            )
        lines.append(f"bind {name} {space} {target} <<'EOF'\n{json.dumps(item)}\nEOF")
    lines += gone
    lines += [f"# waits: {name}: {_one_line(why)}" for name, why in found.waits.items()]
    lines.append("""[ -z "$failed" ] || { printf 'not done:%s\\n' "$failed" >&2; exit 1; }""")
    return "\n".join(lines) + "\n"


def _one_line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def manifests(path: str | Path, instance: PodInstance, found: Plan, placement: Mapping[str, str]) -> dict[str, Any]:
    """Return a List of the Pods that start or move, with ``nodeName`` and their cards.

    Fields that a server adds (status, uid, ..) are left out, so that the Pods can be created again. Evictions of pods
    that move or stop come first; pods that a controller recreates have no manifest.
    """
    objects = {
        f"{item['metadata'].get('namespace') or 'default'}/{item['metadata']['name']}": item
        for kind, item, _ in objects_of(path)
        if kind == "Pod" and isinstance(item.get("metadata"), dict) and "name" in item["metadata"]
    }
    evicted = [item for item in found.items if item["kind"] == "Eviction"]
    bound = {pod_of(item): item for item in found.items if item["kind"] == "Binding"}
    gone = {pod_of(item) for item in evicted}
    moved = [pod.name for pod in instance.pods if pod.name in gone and pod.name in placement]
    items = list(evicted)
    for name in dict.fromkeys([*bound, *moved]):
        if name not in objects:
            raise InstanceError(f"it has no Pod {name!r}; give the objects that the instance was read from", path=path)
        item = copy.deepcopy(objects[name])
        meta = item["metadata"]
        if name in gone and meta.get("ownerReferences"):
            continue
        item.pop("status", None)
        for field_name in ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "selfLink"):
            meta.pop(field_name, None)
        if notes := bound.get(name, {}).get("metadata", {}).get("annotations"):
            meta["annotations"] = {**(meta.get("annotations") or {}), **notes}
        item["spec"]["nodeName"] = placement[name]
        items.append({"apiVersion": "v1", "kind": "Pod"} | item)
    return Plan(items).document


def pod_of(item: Mapping[str, Any]) -> str:
    """The pod that an Eviction or a Binding is about."""
    return f"{item['metadata']['namespace']}/{item['metadata']['name']}"
