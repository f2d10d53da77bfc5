"""Pod affinity and anti-affinity: what running pods decide becomes allowed nodes, what waiting pods decide a rule."""

from __future__ import annotations

from collections.abc import Sequence

from flowlex.instances.importers.kubernetes_draft import Draft, Selection
from flowlex.instances.importers.kubernetes_objects import ANY_ERROR, KubePod
from flowlex.instances.pod_rules import PodResource, PodSpread

__all__ = ["read_affinity", "read_anti_affinity"]

#: So many pods of a side state their exclusion each by itself; more share one, which also keeps them apart.
_SINGLE = 20
Terms = tuple[Selection, ...]


def read_affinity(draft: Draft) -> None:
    """Restrict pods that must join others to the domains of these; the first of a group settle on one domain."""
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
    """Nodes with a running pod that all terms mean."""
    kinds = [kind for kind in draft.places if all(term.matches(kind) for term in terms)]
    return {name for kind in kinds for name in draft.places[kind]}


def _settle(draft: Draft, terms: Terms, group: Sequence[KubePod]) -> None:
    """Choose the domain where the most pods of a group fit beside what runs; each alone may open any."""
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
    """About how many pods of a group the nodes take."""
    total = 0
    for name in draft.names:
        mine = [pod for pod in group if draft.allowed[pod.name] & mask & draft.usable & draft.bit[name]]
        if mine:
            free, asked = draft.free[name], mine[0].requests
            total += min(len(mine), *(free.get(what, 0) // amount for what, amount in asked.items() if amount))
    return total


def read_anti_affinity(draft: Draft) -> None:
    """Keep pods from domains that running pods close; make rules of what waiting pods exclude among themselves."""
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
    """Running pods keep the pods that their anti-affinity means out of their domains."""
    closed: dict[Selection, int] = {}
    for pod in draft.cluster.running:
        try:
            terms = [draft.selection(pod, rule, anywhere=True) for rule in pod.rules("podAntiAffinity")]
        except ANY_ERROR:
            draft.cluster.counts["running pods whose anti-affinity cannot be read; their nodes take no pod"] += 1
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
    """No domain holds an owner beside another pod that its term means."""
    inner, outer = {pod.name for pod in owners}, {pod.name for pod in meant}
    both = [pod for pod in owners if pod.name in outer]
    others = [pod for pod in meant if pod.name not in inner]
    number = len(draft.spreads) + len(draft.resources) + 1
    over = draft.over(term.key, f"apart-{number}", ~0, others=True)
    if both and not others:
        name = f"{both[0].namespace}/apart-{number}"
        draft.spreads.append(PodSpread(name=name, over=over, most=1))
        for pod in both:
            draft.spread_of[pod.name] = (*draft.spread_of.get(pod.name, ()), name)
    elif both:
        _share(draft, over, both, others)
    alone = [pod for pod in owners if pod.name not in outer]
    if alone:
        few, many = (alone, meant) if len(alone) <= len(meant) else (meant, alone)
        for heavy in [[pod] for pod in few] if len(few) <= _SINGLE else [few]:
            _share(draft, over, heavy, many)


def _share(draft: Draft, over: str, heavy: Sequence[KubePod], light: Sequence[KubePod]) -> None:
    """A domain holds one of the heavy pods, or any of the light ones."""
    name = f"{heavy[0].namespace}/apart-{len(draft.spreads) + len(draft.resources) + 1}"
    draft.resources.append(PodResource(name=name, over=over, amount=len(light)))
    for pods, amount in ((heavy, len(light)), (light, 1)):
        for pod in pods:
            draft.resources_of.setdefault(pod.name, {})[name] = amount
