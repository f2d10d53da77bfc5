"""Pod affinity, anti-affinity and topology spread: running pods restrict nodes, waiting pods make rules.

Kubernetes checks a constraint when a pod is bound. A rule of an instance holds for all pods at once, so every waiting
pod that a spread's selector matches is a member, whether or not it states the constraint itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from flowlex.instances.group_rules import PodResource, PodSpread
from flowlex.systems.kubernetes.objects import ANY_ERROR, KubeNode, KubePod
from flowlex.systems.kubernetes.selectors import tolerates
from flowlex.systems.kubernetes.waiting_pods import Draft, Selection

#: Up to this many pods get an exclusion each; more share one, which also separates them from each other.
_SINGLE = 20
Terms = tuple[Selection, ...]


def read_affinity(draft: Draft) -> None:
    """Restrict pods with affinity to the domains of matching pods; a group without any chooses one domain."""
    groups: dict[Terms, list[KubePod]] = {}

    def restrict(pod: KubePod) -> None:
        terms = tuple(draft.selection(pod, rule) for rule in pod.rules("podAffinity"))
        if not terms:
            return
        for each in draft.cluster.running:
            if all(draft.means(term, each) for term in terms):
                draft.pinned.add(each.name)
        nodes = sum(draft.bit[name] for name in _where(draft, terms))
        reach = [draft.same_domain(term.key, nodes) for term in terms]
        if any(reach):
            joined = ~0
            for mask in reach:
                joined &= mask
            draft.forbid(pod, ~joined, "its pod affinity allows no node that takes it")
        elif all(draft.means(term, pod) for term in terms):
            groups.setdefault(terms, []).append(pod)
        else:
            draft.cluster.leave(pod, "its pod affinity asks for pods that do not run yet; place it after them")

    draft.each(restrict)
    for terms, group in groups.items():
        _settle(draft, terms, group)


def _where(draft: Draft, terms: Terms) -> set[str]:
    """Return the nodes with a running pod that matches all terms."""
    kinds = [kind for kind in draft.places if all(term.matches(kind) for term in terms)]
    return {name for kind in kinds for name in draft.places[kind]}


def _settle(draft: Draft, terms: Terms, group: Sequence[KubePod]) -> None:
    """Choose the domain where the most pods of a group fit beside the running pods."""
    mine = {pod.name for pod in group}
    if any(pod.name not in mine and all(draft.means(term, pod) for term in terms) for pod in draft.waiting):
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
        for term in [draft.selection(pod, rule) for rule in pod.rules("podAntiAffinity")]:
            nodes = sum(draft.bit[name] for name in _where(draft, (term,)))
            draft.forbid(pod, draft.same_domain(term.key, nodes), "its anti-affinity closes all nodes that take it")
            owners.setdefault(term, []).append(pod)

    draft.each(own)
    _closed_by_running(draft)
    waiting = draft.waiting
    names = {pod.name for pod in waiting}
    for term, pods in owners.items():
        stating = [pod for pod in pods if pod.name in names]
        meant = [pod for pod in waiting if draft.means(term, pod)]
        if stating and meant:
            _exclude(draft, term, stating, meant)


def _closed_by_running(draft: Draft) -> None:
    """Exclude, for pods matched by a running pod's anti-affinity, the domain of the running pod."""
    closed: dict[Selection, int] = {}
    for pod in draft.cluster.running:
        try:
            terms = [draft.selection(pod, rule, anywhere=True) for rule in pod.rules("podAntiAffinity")]
        except ANY_ERROR:
            draft.cluster.counts["running pod", "with unreadable anti-affinity, where no other pod is placed"] += 1
            draft.usable &= ~draft.bit[str(pod.node)]
            continue
        for term in terms:
            closed[term] = closed.get(term, 0) | draft.bit[str(pod.node)]
    for term, nodes in closed.items():
        mask = draft.same_domain(term.key, nodes)
        for each in draft.waiting:
            if draft.means(term, each):
                draft.forbid(each, mask, "anti-affinity of running pods closes all nodes that take it")


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
    """Make rules of the hard constraints; pods whose constraint no rule can express stay pending."""
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
    """Return, by domain, its nodes that count and the number of running pods there that match the selector."""
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
    """Return the waiting pods that will count once they are placed."""
    return [
        pod
        for pod in draft.waiting
        if draft.means(constraint.selection, pod) and draft.allowed[pod.name] & constraint.nodes & draft.usable
    ]


def _restrict(
    draft: Draft, constraint: _Constraint, base: Mapping[str, tuple[int, int]], owners: Sequence[KubePod]
) -> None:
    """Exclude domains with more pods than the skew allows, until the running pods are spread more evenly."""
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
    """Make one rule for all pods that the constraint counts."""
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
