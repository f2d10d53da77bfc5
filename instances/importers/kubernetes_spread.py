"""Topology spread constraints: counts of running pods and the rules that waiting pods share.

A constraint holds for a pod when it is bound. The rules of an instance hold for all pods together, so every waiting pod
that the selector means is a member, whether or not it states the constraint itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from flowlex.instances.importers.kubernetes_draft import Draft, Selection
from flowlex.instances.importers.kubernetes_objects import KubeNode, KubePod
from flowlex.instances.importers.kubernetes_selectors import tolerates
from flowlex.instances.pod_rules import PodSpread

__all__ = ["read_spreads"]


class _Constraint(NamedTuple):
    """A constraint; equal ones are one rule."""

    selection: Selection
    skew: int
    least_domains: int
    nodes: int
    """Nodes whose pods count."""


def read_spreads(draft: Draft) -> None:
    """Make rules of the constraints that must hold; pods whose constraint no rule can say stay pending."""
    owners: dict[_Constraint, list[KubePod]] = {}

    def own(pod: KubePod) -> None:
        hard = [
            rule
            for rule in pod.spec.get("topologySpreadConstraints") or ()
            if rule.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule"
        ]
        keys = [str(rule["topologyKey"]) for rule in hard]
        for number, rule in enumerate(hard):
            make = partial(_constraint, draft, pod, rule, keys)
            owners.setdefault(draft.of_spec(pod, "spread", make, number, pod.kind), []).append(pod)

    draft.each(own)
    for constraint, pods in owners.items():
        for pod in pods:
            draft.forbid(pod, ~_labelled(draft, constraint.nodes, constraint.selection.key), _NOWHERE)
    bases = {constraint: _base(draft, constraint) for constraint in owners}
    for constraint, pods in owners.items():
        _restrict(draft, constraint, bases[constraint], pods)
    for constraint, pods in owners.items():
        if any(draft.means(constraint.selection, pod) for pod in pods):
            _rule(draft, constraint, bases[constraint])


_NOWHERE = "its topology spread allows no node that takes it"


def _labelled(draft: Draft, nodes: int, key: str) -> int:
    return sum(mask & nodes for mask in draft.domains(key).values())


def _constraint(draft: Draft, pod: KubePod, rule: Mapping[str, Any], keys: Sequence[str]) -> _Constraint:
    affinity, taints = rule.get("nodeAffinityPolicy") or "Honor", rule.get("nodeTaintsPolicy") or "Ignore"
    if {affinity, taints} - {"Honor", "Ignore"}:
        raise ValueError(f"topology spread with policies {affinity}, {taints}; Honor and Ignore are known")

    def counts(node: KubeNode) -> bool:
        held = all(tolerates(pod.spec.get("tolerations") or (), taint) for taint in node.taints)
        return (
            all(key in node.labels for key in keys)
            and (affinity == "Ignore" or pod.chooses(node))
            and (taints == "Ignore" or held)
        )

    nodes = sum(draft.bit[name] for name, node in draft.cluster.nodes.items() if counts(node))
    skew, least = int(rule["maxSkew"]), int(rule.get("minDomains") or 1)
    if skew < 1 or least < 1:
        raise ValueError("topology spread with maxSkew or minDomains below 1")
    return _Constraint(draft.selection(pod, rule, spread=True), skew, least, nodes)


def _base(draft: Draft, constraint: _Constraint) -> dict[str, tuple[int, int]]:
    """By domain, its nodes that count and how many pods run on them that the selector means."""
    here = Counter[str]()
    for kind, places in draft.lasting.items():
        if constraint.selection.matches(kind):
            here.update(places)
    found = {}
    for value, mask in draft.domains(constraint.selection.key).items():
        if mask & constraint.nodes:
            inside = (many for name, many in here.items() if draft.bit[name] & mask & constraint.nodes)
            found[value] = (mask & constraint.nodes, sum(inside))
    return found


def _members(draft: Draft, constraint: _Constraint) -> list[KubePod]:
    """Waiting pods that count once they are placed."""
    return [
        pod
        for pod in draft.waiting
        if draft.means(constraint.selection, pod) and draft.allowed[pod.name] & constraint.nodes & draft.usable
    ]


def _restrict(
    draft: Draft, constraint: _Constraint, base: Mapping[str, tuple[int, int]], owners: Sequence[KubePod]
) -> None:
    """Close domains that hold more than the skew allows; they open when what runs has spread."""
    least = min((many for _, many in base.values()), default=0) if len(base) >= constraint.least_domains else 0
    full = sum(mask for mask, many in base.values() if many - least > constraint.skew)
    members = _members(draft, constraint)
    for pod in owners:
        if not draft.means(constraint.selection, pod):
            if members:
                draft.cluster.leave(pod, "its topology spread counts pods that wait too; place it after them")
            else:
                draft.forbid(pod, full, _NOWHERE)
    if any(draft.means(constraint.selection, pod) for pod in owners):
        for pod in members:
            draft.forbid(pod, full, _NOWHERE)


def _rule(draft: Draft, constraint: _Constraint, base: Mapping[str, tuple[int, int]]) -> None:
    """One rule for all pods that the constraint counts."""
    selection, members = constraint.selection, _members(draft, constraint)
    running = [
        pod
        for pod in draft.cluster.running
        if not pod.ending and draft.means(selection, pod) and draft.bit[str(pod.node)] & constraint.nodes
    ]
    draft.pinned |= {pod.name for pod in running}
    if any(not draft.bit[str(pod.node)] & draft.usable for pod in running):
        for pod in members:
            draft.cluster.leave(pod, "its topology spread counts pods on nodes that take no pod and cannot be stated")
        return
    reached = 0
    for pod in members:
        reached |= draft.allowed[pod.name] & draft.usable
    # The emptiest domain never holds more than one that no member can reach.
    fixed = [many for mask, many in base.values() if not mask & reached]
    if len(base) < constraint.least_domains:
        fixed.append(0)
    if not members:
        return
    name = f"{members[0].namespace}/even-{len(draft.spreads) + 1}"
    over = draft.over(selection.key, f"even-{len(draft.spreads) + 1}", constraint.nodes, others=False)
    most = min(fixed) + constraint.skew if fixed else None
    draft.spreads.append(PodSpread(name=name, over=over, skew=constraint.skew, most=most))
    for pod in (*members, *running):
        draft.spread_of[pod.name] = (*draft.spread_of.get(pod.name, ()), name)
