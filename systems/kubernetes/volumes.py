"""Volumes of waiting pods as restrictions and resources of an instance (see `pod_volumes` for what they ask)."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np

from flowlex.instances.group_rules import PodResource
from flowlex.systems.kubernetes.objects import KubePod
from flowlex.systems.kubernetes.pod_volumes import Handle, by_driver
from flowlex.systems.kubernetes.waiting_pods import Draft


def read_volumes(draft: Draft, found: dict[str, dict[str, int]]) -> None:
    """Restrict pods to nodes with access to their volumes, and state what they compete for.

    ``found``: the resources of each node, which get those of attached volumes.
    """
    shared: dict[str, list[str]] = defaultdict(list)

    def reach(pod: KubePod) -> None:
        if not pod.spec.get("volumes"):
            return
        mine = draft.state.volumes.of(pod)
        draft.sound = draft.sound and not draft.stoppable
        if why := draft.state.volume_wait(pod):
            draft.cluster.leave(pod, why)
            return
        for refusal in draft.state.volume_refusals(pod):
            draft.forbid(pod, draft.of_mask(refusal.nodes), "")
            if pod.name in draft.cluster.pending:
                return
        for claim in mine.alone | {late.name for late in mine.late}:
            shared[claim].append(pod.name)
        draft.exact = draft.exact and not any(late.volumes for late in mine.late)

    draft.each(reach)
    # a claim of one pod; and the first pod determines where a volume is created, so the others wait for the next plan
    for number, (claim, pods) in enumerate(shared.items(), 1):
        if len(pods) > 1:
            over = draft.mark(f"claim-{number}", dict.fromkeys(draft.cluster.nodes, "all"))
            what = PodResource(name=f"claim {claim} of one pod at a time", over=over, amount=1)
            draft.add_resource(what, dict.fromkeys(pods, 1))
    _attached(draft, found)


def _attached(draft: Draft, found: dict[str, dict[str, int]]) -> None:
    """Make the volumes that a CSI driver may still attach to a node a resource."""
    volumes, users = draft.state.volumes, Counter[Handle]()
    asking: dict[str, dict[str, list[Handle]]] = defaultdict(dict)
    for pod in draft.waiting if volumes.limits else ():
        if not pod.spec.get("volumes"):
            continue
        mine = volumes.of(pod).handles
        users.update(mine)
        for driver, handles in by_driver(mine).items():
            if driver in volumes.limits:
                asking[driver][pod.name] = handles
    for driver, pods in asking.items():
        if any(users[handle] > 1 or handle.plugin for handles in pods.values() for handle in handles):
            draft.stricter()  # a shared volume counts once on a node, an in-tree one only where it is migrated
        counted = {
            name: sum(not draft.relaxed or (users[h] == 1 and h.plugin is None) for h in handles)
            for name, handles in pods.items()
        }
        left = draft.state.attachable(driver)
        if int(left.min(initial=0)) >= sum(counted.values()):
            continue
        what = f"volumes to attach of {driver}"
        for name, amount in zip(draft.names, np.minimum(left, 2**31).tolist(), strict=True):
            found.setdefault(name, {})[what] = max(0, amount)
        draft.add_resource(PodResource(name=what), counted)
