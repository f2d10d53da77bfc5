"""Gangs, spreads, quotas and resources as rules over domains, recounted from the documents pod by pod.

Running pods may already exceed a rule: then the limit is what runs (for a skew, its excess over the emptiest domain).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TypeAlias

from flowlex.formulations.block_labels import label_text
from flowlex.instances.pods import Pod, PodInstance, PodNode
from flowlex.validation.restated.pods.sizes import fits_wishes, kind_of, size_of, wants_gpu

Amount: TypeAlias = Fraction | int
Limits: TypeAlias = Mapping[str, Amount] | Amount

#: What a queue may limit.
_FIELDS = ("gpus", "cpu_cores", "memory_gb", "pods")


def domain_of(node: PodNode, key: str | None) -> str | None:
    """The domain of a node: the cluster, the node, or the value of a label; None where it has none."""
    return "cluster" if key is None else node.name if key == "node" else node.labels.get(key)


@dataclass(frozen=True)
class Rule:
    """A limit on what the pods of a set use together in a domain."""

    # kind, name, label: ``gang``, ``spread``, ``skew``, ``quota`` or ``resource``; its name in proofs, and in rows
    kind: str
    name: str
    label: str
    key: str | None  # ``node`` or the label whose values are the domains; None: the cluster is the domain
    # asked, home: by number of each pod, what it asks for, and the node where it ran
    asked: Mapping[int, Amount]
    home: Mapping[int, PodNode]
    base: Limits  # limit of every domain, or by domain; for a skew, relative to the emptiest of the ``usable``
    usable: frozenset[str] = frozenset()

    @cached_property
    def ran(self) -> dict[str, Amount]:
        """By domain, what its pods used before."""
        return self._used(self.home)

    def _used(self, at: Mapping[int, PodNode]) -> dict[str, Amount]:
        used: dict[str, Amount] = {}
        for p, node in at.items():
            if (d := domain_of(node, self.key)) is not None:
                used[d] = used.get(d, 0) + self.asked[p]
        return used

    def _emptiest(self, used: Mapping[str, Amount]) -> Amount:
        return min((used.get(d, 0) for d in self.usable), default=0)

    @cached_property
    def _before(self) -> Amount:
        return self._emptiest(self.ran)

    def limit(self, domain: str) -> Amount:
        """Limit of the rule in a domain."""
        base = self.base[domain] if isinstance(self.base, Mapping) else self.base
        return max(base, self.ran.get(domain, 0) - self._before)

    def broken(self, where: Sequence[int], nodes: Sequence[PodNode]) -> bool:
        """Whether a placement breaks the rule: too much in a domain, a pod outside all domains, or a split gang."""
        at = {p: nodes[where[p]] for p in self.asked if where[p] >= 0}
        for p, node in at.items():
            if domain_of(node, self.key) is None and (p not in self.home or self.home[p].name != node.name):
                return True
        used = self._used(at)
        if self.kind == "gang" and at and (len(at) < len(self.asked) or len(used) > 1):
            return True
        least = self._emptiest(used)
        return any(many - least > self.limit(d) for d, many in used.items())


@dataclass(frozen=True)
class RuleBook:
    """The rules of an instance, checked for placements: the number of each pod's node, -1 if it waits."""

    instance: PodInstance

    @cached_property
    def rules(self) -> list[Rule]:
        """Gangs, spreads, quotas and resources, as the instance lists them."""
        return [*self._gangs(), *self._spreads(), *self._quotas(), *self._resources()]

    def holds(self, where: Sequence[int], of: int | None = None) -> bool:
        """Whether a placement satisfies all rules, or all rules of one pod."""
        mine = (rule for rule in self.rules if of is None or of in rule.asked)
        return not any(rule.broken(where, self.instance.nodes) for rule in mine)

    def totals(self, most: Callable[[str], int | None]) -> dict[str, tuple[dict[int, Amount], Amount]]:
        """By name of a quota or spread, what each pod takes of it, and all that it allows in all its domains.

        ``most`` gives the most pods of a spread in all its domains. Pods that run outside of all domains are excluded,
        since they may stay there.
        """
        found: dict[str, tuple[dict[int, Amount], Amount]] = {}
        for rule in self.rules:
            together = most(rule.label) if rule.kind in ("spread", "skew") else None
            if rule.name in found or rule.kind == "gang" or (rule.kind == "skew" and together is None):
                continue
            domains = {domain_of(node, rule.key) for node in self.instance.nodes}
            whole = sum(rule.limit(d) for d in domains if d is not None) if together is None else together
            away = {p for p, node in rule.home.items() if domain_of(node, rule.key) is None}
            if whole:
                found[rule.name] = {p: a for p, a in rule.asked.items() if p not in away}, whole
        return found

    def _rule(self, kind: str, name: str, label: str, key: str | None, of: Mapping[int, Amount], base: Limits) -> Rule:
        """A rule over these pods; for a skew, with the domains that their constraints allow."""
        source, usable = self.instance, frozenset[str]()
        home = {p: self._node[at] for p in of if (at := source.pods[p].node) is not None}
        if kind == "skew":
            wishes = {kind_of(source.pods[p]): source.pods[p] for p in of}.values()
            able = (node for node in source.nodes if any(fits_wishes(pod, node) for pod in wishes))
            usable = frozenset(d for node in able if (d := domain_of(node, key)) is not None)
        return Rule(kind, name, label, key, of, home, base, usable)

    @cached_property
    def _node(self) -> dict[str, PodNode]:
        return {node.name: node for node in self.instance.nodes}

    @cached_property
    def _members(self) -> dict[tuple[str, str], dict[int, int]]:
        """By kind and name of every set of pods, the numbers of its pods, each mapped to 1."""
        members: dict[tuple[str, str], dict[int, int]] = {}
        for p, pod in enumerate(self.instance.pods):
            names = [("gang", pod.gang), ("queue", pod.queue), *(("spread", name) for name in pod.spreads)]
            for kind, name in names:
                if name is not None:
                    members.setdefault((kind, name), {})[p] = 1
        return members

    def _gangs(self) -> Iterator[Rule]:
        """Gangs; one whose running pods are already in different domains may be anywhere."""
        for gang in self.instance.gangs:
            mine = self._members.get(("gang", gang.name), {})
            rule = self._rule("gang", f"gang {gang.name!r}", gang.name, gang.within, mine, len(mine))
            apart = len(rule.ran) > 1 or sum(rule.ran.values()) < len(rule.home)
            yield self._rule("gang", rule.name, rule.label, None, mine, rule.base) if apart else rule

    def _spreads(self) -> Iterator[Rule]:
        for spread in self.instance.spreads:
            mine = self._members.get(("spread", spread.name), {})
            for kind, limit in (("spread", spread.most), ("skew", spread.skew)):
                if limit is not None:
                    name = f"spread {spread.name!r}"
                    yield self._rule(kind, name, spread.name, spread.over, mine, limit)

    def _quotas(self) -> Iterator[Rule]:
        pods = self.instance.pods
        largest = max(size_of(node.card_gb) for node in self.instance.nodes) or Fraction(1)
        for queue in self.instance.queues:
            mine = self._members.get(("queue", queue.name), {})
            for field in _FIELDS:
                if (limit := getattr(queue, field)) is not None:
                    asked = {p: _asked(pods[p], field, largest) for p in mine}
                    name = f"{field} of queue {queue.name!r}"
                    yield self._rule("quota", name, label_text((queue.name, field)), None, asked, size_of(limit))

    def _resources(self) -> Iterator[Rule]:
        for resource in self.instance.resources:
            asked = {p: a for p, pod in enumerate(self.instance.pods) if (a := pod.resources.get(resource.name))}
            has = dict[str, int]()
            for node in self.instance.nodes:
                if (d := domain_of(node, resource.over)) is not None:
                    more = has.get(d, 0) + node.resources.get(resource.name, 0)
                    has[d] = more if resource.amount is None else resource.amount
            name = f"resource {resource.name!r}"
            yield self._rule("resource", name, resource.name, resource.over, asked, has)


def _asked(pod: Pod, field: str, largest: Fraction) -> Fraction:
    """Amount of a quota that a pod uses; GB of GPU memory count as fractions of the largest card."""
    if field == "pods":
        return Fraction(1)
    if field != "gpus":
        return size_of(getattr(pod, field))
    share = size_of(pod.gpu_share) or size_of(pod.gpu_memory_gb) / largest
    return share * pod.gpu_cards if wants_gpu(pod) else Fraction(0)
