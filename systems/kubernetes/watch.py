"""Example of an adapter that reads a Kubernetes watch stream and writes bindings.

    kubectl get nodes,pods --watch --output-watch-events -o json | python -m flowlex.systems.kubernetes.watch URL

Each line is a watch event (``ADDED``, ``MODIFIED``, ``DELETED`` of a Node or Pod), live or recorded. Events may come
twice. After ``ERROR`` 410 (Gone) the watcher lists again: objects that are not among the ``ADDED`` events up to the
``BOOKMARK`` with the annotation ``k8s.io/initial-events-end`` were deleted meanwhile. Other bookmarks are ignored.
Nodes become machines with their allocatable amounts, pods of the scheduler ``flowlex`` jobs of one task. Both are read
by the code that reads whole clusters for ``flowlex place``. Node selectors, node affinity by values and taints become
constraints of the task; a pod that needs more (affinity to pods, spread, volumes, ports, a pod group) is left pending
and the reason is written to standard error. A node that is cordoned or not ready is removed, with what runs there.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from flowlex.client import Refused, Scheduler
from flowlex.instances.flow import Constraint, FlowJob, FlowTask, Machine
from flowlex.systems.kubernetes.objects import (
    ANY_ERROR,
    ENDED,
    KubeNode,
    KubePod,
    read_node,
    read_pod,
    relevant_fields,
)
from flowlex.systems.kubernetes.pod_groups import group_of
from flowlex.systems.kubernetes.selectors import tolerates

Item = Mapping[str, Any]
#: Pod priorities from this on are the most important; their jobs have priority 0.
_TOP, _LOWEST = 1000, 1000
#: Annotation of the bookmark that ends a repeated list.
_LISTED = "k8s.io/initial-events-end"
#: Label of machines that names the taints of their node.
_TAINTS = "taints:"
_HARD = "requiredDuringSchedulingIgnoredDuringExecution"


class PodPlacer:
    """Sends a scheduler the changes in a watch stream, each once; it may know pods of an earlier run.

    ``scheduler``: the scheduler, used for this cluster only. ``name``: the ``schedulerName`` of the pods to place.
    """

    def __init__(self, scheduler: Scheduler, name: str = "flowlex") -> None:
        self.scheduler, self.name = scheduler, name
        self.nodes: dict[str, Machine] = {}
        self.pods: dict[str, str] = {}  # uid by name
        self.waits: dict[str, str] = {}  # why pods are left pending, by name
        self._left: dict[str, Item] = {}
        self._read: dict[str, KubeNode] = {}
        self._unlisted: set[str] | None = None  # objects that a repeated list has not named yet
        self._number = scheduler.placements().number

    def take(self, event: Item) -> None:
        """Process one watch event.

        Raises `ValueError`: the watch ended with another error than 410.
        """
        item, kind = event["object"], event["type"]
        if kind == "ERROR":
            if item.get("code") != 410:
                raise ValueError(f"the watch ended: {item.get('message') or item}")
            self._unlisted = {*self.nodes, *self.pods, *self.waits}
        elif kind == "BOOKMARK":
            if (item["metadata"].get("annotations") or {}).get(_LISTED) == "true":
                self._drop_unlisted()
        elif item["kind"] == "Node":
            self._node(item, kind == "DELETED")
        elif item["kind"] == "Pod" and item["spec"].get("schedulerName") == self.name:
            self._pod(item, kind == "DELETED" or (item.get("status") or {}).get("phase") in ENDED)

    def _drop_unlisted(self) -> None:
        for name in sorted(self._unlisted or ()):
            if name in self.pods:
                self._cancel(name)
            elif name in self.waits:
                del self.waits[name], self._left[name]
            else:
                self.scheduler.remove_machine(name)
                del self.nodes[name]
        self._unlisted = None

    def _named(self, name: str) -> None:
        if self._unlisted is not None:
            self._unlisted.discard(name)

    def _node(self, item: Item, gone: bool) -> None:
        name = item["metadata"]["name"]
        node = None if gone else read_node(item)
        closed = node is None or node.closed or item["spec"].get("unschedulable")
        machine = None if closed or node is None else _machine(node)
        self._named(name)
        if machine == self.nodes.get(name):
            return
        if name in self.nodes:
            self.scheduler.remove_machine(name)
            del self.nodes[name], self._read[name]
        if machine is not None and node is not None:
            self.scheduler.add_machine(machine)
            self.nodes[name], self._read[name] = machine, node
            for left in list(self._left.values()):
                self._pod(left, ended=False)

    def _pod(self, item: Item, ended: bool) -> None:
        name, uid = f"{item['metadata']['namespace']}/{item['metadata']['name']}", item["metadata"].get("uid", "")
        self._named(name)
        if name in self.pods and (ended or self.pods[name] != uid):  # another pod has the name now
            self._cancel(name)
        self._left.pop(name, None)
        before = self.waits.pop(name, None)
        if ended or name in self.pods:
            return
        try:
            job = self._job(item)
        except ANY_ERROR as error:
            self.waits[name], self._left[name] = str(error), item
            if before != str(error):
                sys.stderr.write(f"{name} waits: {error}\n")
            return
        try:
            self.scheduler.submit(job)
        except Refused:
            self.scheduler.task(name)  # known from an earlier run of this adapter; otherwise this raises too
        self.pods[name] = uid

    def _job(self, item: Item) -> FlowJob:
        """Return a pod as a job; raises `ValueError` where it needs more than a task can state."""
        pod = read_pod(relevant_fields(item))
        asked = {what: amount for what, amount in pod.requests.items() if amount and what != "pods"}
        offered = {what for machine in self.nodes.values() for what in machine.capacity}
        lacking = (f"no node offers {what}" for what in asked if what not in offered)
        if (why := next(chain(_beyond(pod), lacking), None)) is not None:
            raise ValueError(why)
        taints = {(): "", **{node.taints: _taints(node) for node in self._read.values()}}
        listed = pod.spec.get("tolerations") or ()
        borne = [text for some, text in taints.items() if all(tolerates(listed, taint) for taint in some)]
        needs = [Constraint(kind="required", resources=tuple(dict.fromkeys(f"{_TAINTS}{text}" for text in borne)))]
        needs += [Constraint(kind="required", resources=labels) for labels in _chosen(pod)]
        importance = max(0, min(_LOWEST, _TOP - pod.priority))
        task = FlowTask(name=pod.name, demands=asked, constraints=tuple(needs))
        return FlowJob(name=pod.name, priority=importance, tasks=(task,))

    def _cancel(self, name: str) -> None:
        self.scheduler.cancel(task=name)
        del self.pods[name]

    def bindings(self, wait_s: float = 0.0) -> Iterator[dict[str, Any]]:
        """Yield bindings, and evictions of preempted pods, decided since the last call."""
        for decision in self.scheduler.decisions(self._number, wait_s):
            self._number = decision.number
            for pod, *_ in (*decision.stopped, *decision.moved):
                yield {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": _metadata(pod)}
            for pod, node in decision.placed:
                target = {"apiVersion": "v1", "kind": "Node", "name": node}
                yield {"apiVersion": "v1", "kind": "Binding", "metadata": _metadata(pod), "target": target}


def _machine(node: KubeNode) -> Machine:
    labels = (f"{key}={value}" for key, value in sorted(node.labels.items()))
    return Machine(
        name=node.name,
        slots=node.allocatable.get("pods", 110),
        labels=(*labels, f"{_TAINTS}{_taints(node)}"),
        capacity={what: amount for what, amount in node.allocatable.items() if what != "pods"},
    )


def _taints(node: KubeNode) -> str:
    return ",".join(sorted(taint.text for taint in node.taints))


def _beyond(pod: KubePod) -> Iterator[str]:
    """Yield what a pod needs that a task cannot state."""
    spec = pod.spec
    if pod.ending:
        yield "it is being deleted"
    for gate in spec.get("schedulingGates") or ():
        yield f"scheduling gate {gate['name']} holds it"
    for kind in ("podAffinity", "podAntiAffinity"):
        if pod.rules(kind):
            yield f"it has a required {kind}, which this adapter does not read"
    spreads = spec.get("topologySpreadConstraints") or ()
    if any(rule.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule" for rule in spreads):
        yield "it has a topologySpreadConstraint, which this adapter does not read"
    for what in ("volumes", "resourceClaims"):
        if spec.get(what):
            yield f"it has {what} that only some nodes may reach, which this adapter does not read"
    if pod.ports:
        yield "it takes ports of its node, which this adapter does not read"
    if group := group_of(pod):
        yield f"it belongs to the pod group {group}, which this adapter does not read"


def _chosen(pod: KubePod) -> Iterator[tuple[str, ...]]:
    """Yield labels of which a node must have one, from the node selector and the required node affinity."""
    for key, value in sorted((pod.spec.get("nodeSelector") or {}).items()):
        yield (f"{key}={value}",)
    affinity = (pod.spec.get("affinity") or {}).get("nodeAffinity") or {}
    terms = (affinity.get(_HARD) or {}).get("nodeSelectorTerms") or ()
    for term in terms:
        rules = term.get("matchExpressions") or ()
        if len(terms) > 1 or not rules or term.get("matchFields") or any(rule["operator"] != "In" for rule in rules):
            raise ValueError("it has a node affinity of several terms or with other operators than In")
        for rule in rules:
            yield tuple(f"{rule['key']}={value}" for value in rule["values"])


def _metadata(pod: str) -> dict[str, str]:
    namespace, _, name = pod.partition("/")
    return {"namespace": namespace, "name": name}


def _run(lines: Iterable[str], url: str) -> None:
    with Scheduler(url, token=os.environ.get("FLOWLEX_TOKEN")) as scheduler:
        placer = PodPlacer(scheduler)
        for line in lines:
            placer.take(json.loads(line))
            for each in placer.bindings(wait_s=0.2):
                sys.stdout.write(f"{json.dumps(each)}\n")
                sys.stdout.flush()


if __name__ == "__main__":
    _run(sys.stdin, sys.argv[1])
