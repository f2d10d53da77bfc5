"""Pod affinity, anti-affinity and topology spread: running pods restrict nodes, waiting pods make rules.

Kubernetes checks a constraint when a pod is bound. A rule of an instance holds for all pods at once, so every waiting
pod that a spread's selector matches is a member, whether or not it states the constraint itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from flowlex.instances.group_rules import PodResource, PodSpread
from flowlex.systems.kubernetes.objects import KubePod
from flowlex.systems.kubernetes.pod_selections import Selection
from flowlex.systems.kubernetes.waiting_pods import Draft

#: Up to this many pods get an exclusion each; more share one, which also separates them from each other.
_SINGLE = 20
Terms = tuple[Selection, ...]


def read_affinity(draft: Draft) -> None:
    """Restrict pods with affinity to the domains of matching pods.

    These run, or a one-by-one pass has bound them (``draft.guide``). Without a pass, pods of a group without any choose
    one domain, and others with affinity to waiting pods stay pending.
    """
    groups: dict[Terms, list[KubePod]] = {}
    running: dict[Terms, int] = {}

    def restrict(pod: KubePod) -> None:
        terms = draft.state.rules(pod).affinity
        if not terms:
            return
        if terms not in running:
            partners = draft.running_of(terms)
            running[terms] = draft.mask({str(pod.node) for pod in partners})
            draft.pinned |= {pod.name for pod in partners}
        others = [p for p in draft.of_kinds(terms) if p.name != pod.name]
        if (others or draft.state.rules(pod).itself) and not draft.stricter():
            return  # whatever waits may be bound before it
        joined = draft.joined(terms, running[terms])
        if draft.guide is not None and pod.name in draft.guide:
            joined |= _as_guided(draft, terms, pod, others)
        elif draft.guide is None and not joined and draft.state.rules(pod).itself:
            groups.setdefault(terms, []).append(pod)
            return
        if not joined:
            draft.cluster.leave(pod, "its pod affinity asks for pods that do not run yet; place it after them")
        else:
            draft.forbid(pod, ~joined, "its pod affinity allows no node that takes it")

    draft.each(restrict)
    for terms, group in groups.items():
        _settle(draft, terms, group)
    for name, nodes in draft.anchors.items():
        if name in draft.allowed and draft.allowed[name] & nodes & draft.usable:
            draft.allowed[name] &= nodes


def _as_guided(draft: Draft, terms: Terms, pod: KubePod, others: Sequence[KubePod]) -> int:
    """Return the nodes where the pass met a pod's affinity; the first pod that it counts on stays in this domain."""
    guide = draft.guide or {}
    nodes = draft.joined(terms, draft.bit[guide[pod.name]])
    partners = [p for p in others if p.name in guide and draft.bit[guide[p.name]] & nodes]
    if partners and not draft.state.rules(pod).itself:
        anchor = max(partners, key=lambda p: (p.priority, p.name))
        draft.anchors[anchor.name] = draft.anchors.get(anchor.name, ~0) & nodes
    return nodes


def _settle(draft: Draft, terms: Terms, group: Sequence[KubePod]) -> None:
    """Choose the domain where the most pods of a group fit beside the running pods."""
    mine = {pod.name for pod in group}
    if any(pod.name not in mine for pod in draft.of_kinds(terms)):
        for pod in group:
            draft.cluster.leave(pod, "its pod affinity is met by pods that wait too; place it after them")
        return
    choices = [~0]
    for key in dict.fromkeys(term.key for term in terms):
        domains = draft.domains(key).values()
        choices = [one & other for one in choices for other in domains if one & other & draft.usable]
    best = max(choices, key=lambda mask: _fitting(draft, group, mask), default=0)
    for pod in group:
        draft.forbid(pod, ~best, "its pod affinity allows no node that takes it")


def _fitting(draft: Draft, group: Sequence[KubePod], mask: int) -> int:
    """Estimate how many pods of a group fit on the nodes."""
    total = 0
    for name in draft.names:
        mine = [pod for pod in group if draft.allowed[pod.name] & mask & draft.usable & draft.bit[name]]
        if mine:
            free, asked = draft.free[name], mine[0].requests
            total += min(len(mine), *(free.get(what, 0) // amount for what, amount in asked.items() if amount))
    return total


def read_anti_affinity(draft: Draft) -> None:
    """Exclude domains closed by running pods; make rules for anti-affinity among waiting pods."""
    owners: dict[Selection, list[KubePod]] = {}

    def own(pod: KubePod) -> None:
        for term in draft.state.rules(pod).anti_affinity:
            owners.setdefault(term, []).append(pod)
        if nodes := draft.of_mask(draft.state.near_others(pod)):
            draft.sound = draft.sound and not draft.stoppable
            draft.forbid(pod, nodes, "anti-affinity closes all nodes that take it")

    draft.each(own)
    names = {pod.name for pod in draft.waiting}
    for term, pods in owners.items():
        stating = [pod for pod in pods if pod.name in names]
        meant = draft.of_kinds((term,))
        if stating and meant:
            _exclude(draft, term, stating, meant)


def _exclude(draft: Draft, term: Selection, owners: Sequence[KubePod], meant: Sequence[KubePod]) -> None:
    """Forbid domains that hold an owner of a term and another pod that the term matches."""
    inner, outer = {pod.name for pod in owners}, {pod.name for pod in meant}
    both = [pod for pod in owners if pod.name in outer]
    others = [pod for pod in meant if pod.name not in inner]
    number = len(draft.spreads) + len(draft.resources) + 1
    over = draft.over(term.key, f"apart-{number}", ~0, others=True)
    if both and not others:
        name = f"{both[0].namespace}/apart-{number}"
        draft.add_spread(PodSpread(name=name, over=over, most=1), both)
    elif both:
        _share(draft, over, both, others)
    alone = [pod for pod in owners if pod.name not in outer]
    if alone:
        few, many = (alone, meant) if len(alone) <= len(meant) else (meant, alone)
        for heavy in [[pod] for pod in few] if len(few) <= _SINGLE else [few]:
            _share(draft, over, heavy, many)


def _share(draft: Draft, over: str, heavy: Sequence[KubePod], light: Sequence[KubePod]) -> None:
    """Let a domain hold either one heavy pod or any number of light ones."""
    name = f"{heavy[0].namespace}/apart-{len(draft.spreads) + len(draft.resources) + 1}"
    asked = {pod.name: len(light) for pod in heavy} | {pod.name: 1 for pod in light}
    draft.add_resource(PodResource(name=name, over=over, amount=len(light)), asked)


class _Constraint(NamedTuple):
    """A topology-spread constraint; equal constraints become one rule."""

    selection: Selection
    skew: int
    least_domains: int
    nodes: int
    """Nodes whose pods count."""


def read_spreads(draft: Draft) -> None:
    """Make rules of the hard constraints, each for the pods that state it: it binds nobody else.

    Pods that a selector matches without stating the constraint are bound after those that do. Without a one-by-one
    pass to settle their order, such pods with constraints of their own are under the rule too.
    """
    owners: dict[_Constraint, list[KubePod]] = {}

    def own(pod: KubePod) -> None:
        for spread in draft.state.rules(pod).spreads:
            nodes = draft.of_mask(spread.eligible)
            key = _Constraint(spread.selection, spread.skew, spread.least_domains, nodes)
            owners.setdefault(key, []).append(pod)

    draft.each(own)
    for constraint, pods in owners.items():
        for pod in pods:
            draft.forbid(pod, ~_labelled(draft, constraint.nodes, constraint.selection.key), _NOWHERE)
    if not owners or not draft.stricter():
        return
    bases = {constraint: _base(draft, constraint) for constraint in owners}
    ruled = {pod.name for pods in owners.values() for pod in pods}
    under: dict[_Constraint, list[KubePod]] = {}
    for constraint, pods in owners.items():
        mine = {pod.name for pod in pods}
        under[constraint] = [
            pod
            for pod in draft.of_kinds((constraint.selection,))
            if pod.name in mine or (draft.guide is None and pod.name in ruled)
        ]
        _restrict(draft, constraint, bases[constraint], pods, under[constraint])
    for constraint, pods in under.items():
        _rule(draft, constraint, bases[constraint], pods)


_NOWHERE = "its topology spread allows no node that takes it"


def _labelled(draft: Draft, nodes: int, key: str) -> int:
    return sum(mask & nodes for mask in draft.domains(key).values())


def _base(draft: Draft, constraint: _Constraint) -> dict[str, tuple[int, int]]:
    """Return, by domain, its nodes that count and the number of running pods there that match the selector."""
    here = Counter(str(pod.node) for pod in draft.running_of((constraint.selection,)) if not pod.ending)
    found = {}
    for value, mask in draft.domains(constraint.selection.key).items():
        if mask & constraint.nodes:
            inside = (many for name, many in here.items() if draft.bit[name] & mask & constraint.nodes)
            found[value] = (mask & constraint.nodes, sum(inside))
    return found


def _restrict(
    draft: Draft,
    constraint: _Constraint,
    base: Mapping[str, tuple[int, int]],
    owners: Sequence[KubePod],
    under: Sequence[KubePod],
) -> None:
    """Exclude domains with more pods than the skew allows, until the running pods are spread more evenly."""
    least = min((many for _, many in base.values()), default=0) if len(base) >= constraint.least_domains else 0
    full = sum(mask for mask, many in base.values() if many - least > constraint.skew)
    for pod in {pod.name: pod for pod in (*owners, *under)}.values():
        if draft.guide is None and under and not draft.means(constraint.selection, pod):
            draft.cluster.leave(pod, "its topology spread counts pods that wait too; place it after them")
        else:
            draft.forbid(pod, full, _NOWHERE)


def _rule(draft: Draft, constraint: _Constraint, base: Mapping[str, tuple[int, int]], under: Sequence[KubePod]) -> None:
    """Make one rule for the pods under a constraint."""
    selection = constraint.selection
    members = [
        pod
        for pod in under
        if pod.name not in draft.cluster.pending and draft.allowed[pod.name] & constraint.nodes & draft.usable
    ]
    running = [
        pod for pod in draft.running_of((selection,)) if not pod.ending and draft.bit[str(pod.node)] & constraint.nodes
    ]
    draft.pinned |= {pod.name for pod in running}
    if any(not draft.bit[str(pod.node)] & draft.usable for pod in running):
        for pod in members:
            draft.cluster.leave(pod, "its topology spread counts pods on nodes that take no pod and cannot be stated")
        return
    reached = 0
    for pod in members:
        reached |= draft.allowed[pod.name] & draft.usable
    # The minimum over domains never exceeds the count of a domain that no member can reach.
    fixed = [many for mask, many in base.values() if not mask & reached]
    if len(base) < constraint.least_domains:
        fixed.append(0)
    if not members:
        return
    name = f"{members[0].namespace}/even-{len(draft.spreads) + 1}"
    over = draft.over(selection.key, f"even-{len(draft.spreads) + 1}", constraint.nodes, others=False)
    most = min(fixed) + constraint.skew if fixed else None
    draft.add_spread(PodSpread(name=name, over=over, skew=constraint.skew, most=most), (*members, *running))
