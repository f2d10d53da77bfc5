"""Example of an adapter that reads a Kubernetes watch stream and writes bindings.

    kubectl get nodes,pods --watch --output-watch-events -o json | python -m flowlex.systems.kubernetes.watch URL

Each line is a watch event (``ADDED``, ``MODIFIED``, ``DELETED`` of a Node or Pod), live or recorded. Events may come
twice. After ``ERROR`` 410 (Gone) the watcher lists again: objects that are not among the ``ADDED`` events up to the
``BOOKMARK`` with the annotation ``k8s.io/initial-events-end`` were deleted meanwhile. Other bookmarks are ignored.
Nodes become machines with their allocatable amounts; pods of the scheduler ``flowlex`` become jobs of one task with
their requests and required labels from ``nodeSelector``. Decisions are written as ``v1 Binding`` objects to post.
Taints, affinities and volumes are left out here; `placement_instance` reads them for whole clusters.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from flowlex.client import Refused, Scheduler
from flowlex.instances.flow import Constraint, FlowJob, FlowTask, Machine
from flowlex.systems.kubernetes.resources import allocatable, requests

Item = Mapping[str, Any]
#: Pod priorities from this on are the most important; their jobs have priority 0.
_TOP, _LOWEST = 1000, 1000
_ENDED = ("Succeeded", "Failed")
#: Annotation of the bookmark that ends a repeated list.
_LISTED = "k8s.io/initial-events-end"
_KNOWN = ("cpu", "memory", "nvidia.com/gpu")


class PodPlacer:
    """Sends a scheduler the changes in a watch stream, each once; it may know pods of an earlier run.

    ``scheduler``: the scheduler, used for this cluster only. ``name``: the ``schedulerName`` of the pods to place.
    """

    def __init__(self, scheduler: Scheduler, name: str = "flowlex") -> None:
        self.scheduler, self.name = scheduler, name
        self.nodes: dict[str, Machine] = {}
        self.pods: dict[str, str] = {}  # uid by name
        self._unlisted: set[str] | None = None  # objects that a repeated list has not named yet
        self._number = scheduler.placements().number

    def take(self, event: Item) -> None:
        """Process one watch event.

        Raises `ValueError`: the watch ended with another error than 410, or a pod asks for a resource that this example
        does not know.
        """
        item, kind = event["object"], event["type"]
        if kind == "ERROR":
            if item.get("code") != 410:
                raise ValueError(f"the watch ended: {item.get('message') or item}")
            self._unlisted = {*self.nodes, *self.pods}
        elif kind == "BOOKMARK":
            if (item["metadata"].get("annotations") or {}).get(_LISTED) == "true":
                self._drop_unlisted()
        elif item["kind"] == "Node":
            self._node(item, kind == "DELETED")
        elif item["kind"] == "Pod" and item["spec"].get("schedulerName") == self.name:
            self._pod(item, kind == "DELETED" or (item.get("status") or {}).get("phase") in _ENDED)

    def _drop_unlisted(self) -> None:
        for name in sorted(self._unlisted or ()):
            if name in self.pods:
                self._cancel(name)
            else:
                self.scheduler.remove_machine(name)
                del self.nodes[name]
        self._unlisted = None

    def _named(self, name: str) -> None:
        if self._unlisted is not None:
            self._unlisted.discard(name)

    def _node(self, item: Item, gone: bool) -> None:
        name = item["metadata"]["name"]
        closed = gone or item["spec"].get("unschedulable")
        machine = None if closed else _machine(item)
        self._named(name)
        if machine == self.nodes.get(name):
            return
        if name in self.nodes:
            self.scheduler.remove_machine(name)
            del self.nodes[name]
        if machine is not None:
            self.scheduler.add_machine(machine)
            self.nodes[name] = machine

    def _pod(self, item: Item, ended: bool) -> None:
        name, uid = f"{item['metadata']['namespace']}/{item['metadata']['name']}", item["metadata"].get("uid", "")
        self._named(name)
        if name in self.pods and (ended or self.pods[name] != uid):  # another pod has the name now
            self._cancel(name)
        if not ended and name not in self.pods:
            try:
                self.scheduler.submit(_job(name, item))
            except Refused:
                self.scheduler.task(name)  # known from an earlier run of this adapter; otherwise this raises too
            self.pods[name] = uid

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


def _machine(item: Item) -> Machine:
    amounts = allocatable(item)
    labels = (item["metadata"].get("labels") or {}).items()
    capacity = {name: amounts.get(name, 0) for name in _KNOWN}
    return Machine(
        name=item["metadata"]["name"],
        slots=amounts.get("pods", 110),
        labels=tuple(f"{key}={value}" for key, value in sorted(labels)),
        capacity=capacity,
    )


def _job(name: str, item: Item) -> FlowJob:
    wanted = (f"{key}={value}" for key, value in sorted((item["spec"].get("nodeSelector") or {}).items()))
    needs = tuple(Constraint(kind="required", resources=(label,)) for label in wanted)
    asked = {resource: amount for resource, amount in requests(item).items() if amount}
    unknown = sorted(asked.keys() - set(_KNOWN))
    if unknown:
        raise ValueError(f"pod {name}: this example knows {', '.join(_KNOWN)}, not {', '.join(unknown)}")
    importance = max(0, min(_LOWEST, _TOP - int(item["spec"].get("priority") or 0)))
    return FlowJob(name=name, priority=importance, tasks=(FlowTask(name=name, demands=asked, constraints=needs),))


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
