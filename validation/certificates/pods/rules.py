"""Gangs, spreads and quotas recounted from the documents, pod by pod.

What runs already may exceed a rule: then the limit is what runs (for a skew, how far it is above the emptiest domain).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from flowlex.instances.pods import Pod, PodInstance, PodNode, fits_wishes
from flowlex.validation.certificates.certificate import Check
from flowlex.validation.certificates.pods.sizes import kind_of, size_of

__all__ = ["RuleBook"]

#: What a queue may limit.
_FIELDS = ("gpus", "cpu_cores", "memory_gb", "pods")


def _domain(node: PodNode | None, key: str) -> str | None:
    if node is None:
        return None
    return node.name if key == "node" else node.labels.get(key)


@dataclass(frozen=True)
class _Set:
    """Pods of a rule, by number: where they ran, and what the rule needs to know of them."""

    pods: list[int]
    homes: list[PodNode]
    usable: frozenset[str]
    asked: dict[str, list[Fraction]]


@dataclass(frozen=True)
class RuleBook:
    """The rules of an instance, asked about placements: the number of each pod's node, -1 where it waits."""

    instance: PodInstance

    def __bool__(self) -> bool:
        return bool(self.instance.gangs or self.instance.spreads or self.instance.queues or self.instance.resources)

    def checks(self, where: Sequence[int]) -> tuple[Check, ...]:
        """One check for each kind of rule that the instance has."""
        source, found = self.instance, []
        for name, rules, broken in (
            ("gangs whole and within their domain", source.gangs, self.gangs),
            ("spreads over their domains", source.spreads, self.spreads),
            ("quotas of queues", source.queues, self.quotas),
            ("resources of their domains", source.resources, self.resources),
        ):
            if rules:
                wrong = broken(where)
                found.append(Check(name, not wrong, len(wrong), ", ".join(wrong[:3])))
        return tuple(found)

    def holds(self, where: Sequence[int], of: Pod | None = None) -> bool:
        """Whether nothing is broken, of the rules of one pod or of all."""
        kinds = (self.gangs, self.spreads, self.quotas, self.resources)
        return not any(broken(where, of) for broken in kinds)

    @cached_property
    def _sets(self) -> dict[tuple[str, str], _Set]:
        """Kind and name of every rule to its pods."""
        source, pods = self.instance, self.instance.pods
        node = {each.name: each for each in source.nodes}
        members: dict[tuple[str, str], list[int]] = {}
        for p, pod in enumerate(pods):
            names = [("gang", pod.gang), ("queue", pod.queue), *(("spread", name) for name in pod.spreads)]
            for kind, name in names:
                if name is not None:
                    members.setdefault((kind, name), []).append(p)
        over = {spread.name: spread.over for spread in source.spreads}
        largest = max(size_of(each.card_gb) for each in source.nodes) or Fraction(1)
        found = {}
        for (kind, name), mine in members.items():
            usable: frozenset[str | None] = frozenset()
            if kind == "spread":
                wishes = {kind_of(pods[p]): pods[p] for p in mine}.values()
                able = [n for n in source.nodes if any(fits_wishes(pod, n) for pod in wishes)]
                usable = frozenset(_domain(n, over[name]) for n in able)
            asked = {f: [self._asked(pods[p], f, largest) for p in mine] for f in _FIELDS} if kind == "queue" else {}
            homes = [node[home] for p in mine if (home := pods[p].node) is not None]
            found[kind, name] = _Set(mine, homes, frozenset(d for d in usable if d is not None), asked)
        return found

    def gangs(self, where: Sequence[int], of: Pod | None = None) -> list[str]:
        """Gangs that are placed in parts, or across domains."""
        nodes, wrong = self.instance.nodes, []
        for gang in self.instance.gangs:
            mine = self._sets.get(("gang", gang.name))
            if mine is None or (of is not None and of.gang != gang.name):
                continue
            placed, apart = [where[p] for p in mine.pods if where[p] >= 0], False
            if gang.within is not None and placed:
                ran = {_domain(home, gang.within) for home in mine.homes}
                domains = {_domain(nodes[n], gang.within) for n in placed}
                apart = (len(domains) > 1 or None in domains) and not (len(ran) > 1 or None in ran)
            if apart or 0 < len(placed) < len(mine.pods):
                wrong.append(gang.name)
        return wrong

    def spreads(self, where: Sequence[int], of: Pod | None = None) -> list[str]:
        """Spreads with too many in a domain, or too uneven, or with a pod outside all domains."""
        nodes, pods, wrong = self.instance.nodes, self.instance.pods, []
        for spread in self.instance.spreads:
            mine = self._sets.get(("spread", spread.name))
            if mine is None or (of is not None and spread.name not in of.spreads):
                continue
            placed = [(pods[p], nodes[where[p]]) for p in mine.pods if where[p] >= 0]
            now = Counter(_domain(node, spread.over) for _, node in placed)
            ran = Counter(_domain(home, spread.over) for home in mine.homes)
            strange = any(_domain(n, spread.over) is None and n.name != pod.node for pod, n in placed)
            least, before = (min((count[d] for d in mine.usable), default=0) for count in (now, ran))
            for d, many in now.items():
                if d is None:
                    continue
                strange |= spread.most is not None and many > max(spread.most, ran[d])
                strange |= spread.skew is not None and many - least > max(spread.skew, ran[d] - before)
            if strange:
                wrong.append(spread.name)
        return wrong

    def quotas(self, where: Sequence[int], of: Pod | None = None) -> list[str]:
        """Queues that use more than their quota and than what ran before."""
        pods, wrong = self.instance.pods, []
        for queue in self.instance.queues:
            mine = self._sets.get(("queue", queue.name))
            if mine is None or (of is not None and of.queue != queue.name):
                continue
            for field in _FIELDS:
                limit = getattr(queue, field)
                if limit is None:
                    continue
                used = sum(a for a, p in zip(mine.asked[field], mine.pods, strict=True) if where[p] >= 0)
                ran = sum(a for a, p in zip(mine.asked[field], mine.pods, strict=True) if pods[p].node is not None)
                if used > max(size_of(limit), ran):
                    wrong.append(f"{queue.name} ({field})")
        return wrong

    @cached_property
    def _stock(self) -> dict[str, tuple[list[tuple[int, int]], dict[str, int], Counter[str]]]:
        """By resource: pods that ask for it and how much, what each domain has, what ran there before."""
        source, found = self.instance, {}
        home = {node.name: node for node in source.nodes}
        for resource in source.resources:
            asked = [
                (p, pod.resources[resource.name])
                for p, pod in enumerate(source.pods)
                if pod.resources.get(resource.name)
            ]
            has, ran = dict[str, int](), Counter[str]()
            for node in source.nodes:
                if (d := _domain(node, resource.over)) is not None:
                    more = node.resources.get(resource.name, 0)
                    has[d] = resource.amount if resource.amount is not None else has.get(d, 0) + more
            for p, amount in asked:
                at = source.pods[p].node
                if at is not None and (d := _domain(home[at], resource.over)) is not None:
                    ran[d] += amount
            found[resource.name] = (asked, has, ran)
        return found

    def resources(self, where: Sequence[int], of: Pod | None = None) -> list[str]:
        """Resources of which a domain gives more than it has and than what ran before took, or a node without any."""
        nodes, pods, wrong = self.instance.nodes, self.instance.pods, []
        for resource in self.instance.resources:
            if of is not None and resource.name not in of.resources:
                continue
            asked, has, ran = self._stock[resource.name]
            used, strange = Counter[str](), False
            for p, amount in asked:
                node = nodes[where[p]] if where[p] >= 0 else None
                domain = _domain(node, resource.over)
                if domain is not None:
                    used[domain] += amount
                elif node is not None:
                    strange |= node.name != pods[p].node
            if strange or any(amount > max(has[d], ran[d]) for d, amount in used.items()):
                wrong.append(resource.name)
        return wrong

    def shares(self, names: Iterable[str], most: Callable[[str], int | None]) -> dict[str, dict[str, float]]:
        """By name of a quota or a spread, the share of all that it allows by name of pod; these sum to 1 at most.

        ``most`` knows how many pods of a spread its domains hold together.

        Pods that run in no domain of a spread take no part of it, since only there may they stay outside.
        """
        found: dict[str, dict[str, float]] = {}
        nodes, pods = self.instance.nodes, self.instance.pods
        home = {node.name: node for node in nodes}
        for spread in self.instance.spreads:
            mine = self._sets.get(("spread", spread.name))
            together = None if mine is None else most(spread.name)
            if mine is None or (spread.most is None and together is None):
                continue
            ran = Counter(_domain(each, spread.over) for each in mine.homes)
            domains = {_domain(node, spread.over) for node in nodes} - {None}
            whole = together if together is not None else sum(max(spread.most or 0, ran[d]) for d in domains)
            inside = [p for p in mine.pods if (at := pods[p].node) is None or _domain(home[at], spread.over) in domains]
            if whole:
                found[f"spread {spread.name!r}"] = {pods[p].name: 1 / whole for p in inside}
        for queue in self.instance.queues:
            mine = self._sets.get(("queue", queue.name))
            for field in _FIELDS if mine is not None else ():
                if (limit := getattr(queue, field)) is None or mine is None:
                    continue
                asked = dict(zip(mine.pods, mine.asked[field], strict=True))
                running = sum((a for p, a in asked.items() if pods[p].node is not None), Fraction(0))
                if everything := max(size_of(limit), running):
                    share = {pods[p].name: float(a / everything) for p, a in asked.items()}
                    found[f"{field} of queue {queue.name!r}"] = share
        for resource in self.instance.resources:
            amounts, has, before = self._stock[resource.name]
            stock = sum(max(has[d], before[d]) for d in has)
            if stock:
                homes = {p: _domain(home[at], resource.over) for p, _ in amounts if (at := pods[p].node) is not None}
                part = {pods[p].name: a / stock for p, a in amounts if homes.get(p, next(iter(has))) in has}
                found[f"resource {resource.name!r}"] = part
        return {name: found[name] for name in names}

    def _asked(self, pod: Pod, field: str, largest: Fraction) -> Fraction:
        """What a pod counts for a quota; GB of a card are parts of the largest."""
        if field == "pods":
            return Fraction(1)
        if field != "gpus":
            return size_of(getattr(pod, field))
        share = size_of(pod.gpu_share) or size_of(pod.gpu_memory_gb) / largest
        return share * pod.gpu_cards if pod.wants_gpu else Fraction(0)
