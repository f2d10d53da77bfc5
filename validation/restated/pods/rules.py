"""Gangs, spreads, quotas and resources as rules over domains, recounted from the documents.

Running pods may already exceed a rule: then the limit is what runs (for a skew, its excess over the emptiest domain).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.block_labels import label_text
from flowlex.instances.pods import Pod, PodInstance, PodNode
from flowlex.validation.proofs.exact_program import Positions, Whole
from flowlex.validation.restated.pods.sizes import fits_wishes, shape_of, size_of, wants_gpu

#: What a queue may limit.
_FIELDS = ("gpus", "cpu_cores", "memory_gb", "pods")


def domain_of(node: PodNode, key: str | None) -> str | None:
    """The domain of a node: the cluster, the node, or the value of a label; None where it has none."""
    return "cluster" if key is None else node.name if key == "node" else node.labels.get(key)


@dataclass(frozen=True, eq=False)
class Rule:
    """A limit on what M pods use together in each of D domains."""

    # kind, name, label: ``gang``, ``spread``, ``skew``, ``quota`` or ``resource``; its name in proofs, and in rows
    kind: str
    name: str
    label: str
    key: str | None  # ``node`` or the label whose values are the domains; None: the cluster is the domain
    # pods, asked, home: (M,) numbers of the pods, what they ask for (rationals), and the nodes where they run, else -1
    pods: Positions
    asked: Whole
    home: Positions
    # domain, domains: (N,) domain of each node, -1 outside of all, and names of the domains
    domain: Positions
    domains: tuple[str, ...]
    limit: Whole  # (D,) for a skew, above the emptiest of the domains that are ``counted``
    counted: NDArray[np.bool_]
    unit: int = 1  # its row is stated in multiples of 1 / this

    def used(self, at: Positions) -> Whole:
        """(D,) what pods at these (M,) nodes use."""
        total = np.zeros(len(self.domains), object)
        inside = np.flatnonzero((at >= 0) & (self.domain[at] >= 0))
        np.add.at(total, self.domain[at[inside]], self.asked[inside])
        return total

    def emptiest(self, used: Whole) -> Any:
        """The least that a counted domain uses."""
        return min(used[self.counted].tolist(), default=0)

    def broken(self, where: Positions) -> bool:
        """Whether a placement breaks the rule: too much in a domain, a pod outside all domains, or a split gang."""
        at = where[self.pods]
        if ((at >= 0) & (self.domain[at] < 0) & (at != self.home)).any():
            return True
        used = self.used(at)
        if self.kind == "gang" and (at >= 0).any() and ((at < 0).any() or np.count_nonzero(used) > 1):
            return True
        return bool((used - self.emptiest(used) > self.limit).any())


def rules_of(instance: PodInstance) -> list[Rule]:
    """Gangs, spreads, quotas and resources, as the instance lists them."""
    return [*_rules(instance)]


def hold(rules: Sequence[Rule], where: Sequence[int]) -> bool:
    """Whether a placement, the number of each pod's node or -1, satisfies all rules."""
    return not any(rule.broken(np.asarray(where, np.int64)) for rule in rules)


def _rules(instance: PodInstance) -> Iterator[Rule]:
    pods, nodes = instance.pods, instance.nodes
    place = {node.name: n for n, node in enumerate(nodes)}

    def rule(kind: str, name: str, label: str, key: str | None, asked: dict[int, Any], base: Any) -> Rule:
        names = [domain_of(node, key) for node in nodes]
        domains = {name: d for d, name in enumerate(dict.fromkeys(name for name in names if name is not None))}
        domain = np.array([-1 if name is None else domains[name] for name in names], np.int64)
        home = np.array([place.get(pods[p].node or "", -1) for p in asked], np.int64)
        amounts = np.array([*asked.values(), None], object)[:-1]
        counted = np.zeros(len(domains), bool)
        if kind == "skew":
            wishes = {shape_of(pods[p]): pods[p] for p in asked}.values()
            able = [any(fits_wishes(pod, node) for pod in wishes) for node in nodes]
            counted[domain[np.array(able, bool) & (domain >= 0)]] = True
        limit = np.array([base(d) if callable(base) else base for d in domains] + [None], object)[:-1]
        made = Rule(
            kind,
            name,
            label,
            key,
            np.array([*asked], np.int64),
            amounts,
            home,
            domain,
            tuple(domains),
            limit,
            counted,
            math.lcm(base.denominator, *(v.denominator for v in asked.values())) if kind == "quota" else 1,
        )
        ran = made.used(home)
        made.limit[:] = np.maximum(limit, ran - made.emptiest(ran))
        return made

    members: dict[tuple[str, str | None], dict[int, Any]] = {}
    for p, pod in enumerate(pods):
        for key in (("gang", pod.gang), ("queue", pod.queue), *(("spread", name) for name in pod.spreads)):
            members.setdefault(key, {})[p] = 1
    for gang in instance.gangs:
        mine = members.get(("gang", gang.name), {})
        at = {domain_of(nodes[place[name]], gang.within) for p in mine if (name := pods[p].node) is not None}
        apart = len(at) > 1 or None in at  # one that already runs in different domains may be anywhere
        yield rule("gang", f"gang {gang.name!r}", gang.name, None if apart else gang.within, mine, len(mine))
    for spread in instance.spreads:
        for kind, limit in (("spread", spread.most), ("skew", spread.skew)):
            if limit is not None:
                mine = members.get(("spread", spread.name), {})
                yield rule(kind, f"spread {spread.name!r}", spread.name, spread.over, mine, limit)
    largest = max(size_of(node.card_gb) for node in nodes) or Fraction(1)
    for queue in instance.queues:
        for field in _FIELDS:
            if (limit := getattr(queue, field)) is not None:
                mine = {p: _asked(pods[p], field, largest) for p in members.get(("queue", queue.name), {})}
                label = label_text((queue.name, field))
                yield rule("quota", f"{field} of queue {queue.name!r}", label, None, mine, size_of(limit))
    for resource in instance.resources:
        mine = {p: amount for p, pod in enumerate(pods) if (amount := pod.resources.get(resource.name))}
        has: dict[str | None, int] = {}
        for node in nodes:
            d = domain_of(node, resource.over)
            has[d] = has.get(d, 0) + node.resources.get(resource.name, 0)
        limit = resource.amount
        yield rule(
            "resource",
            f"resource {resource.name!r}",
            resource.name,
            resource.over,
            mine,
            has.__getitem__ if limit is None else limit,
        )


def _asked(pod: Pod, field: str, largest: Fraction) -> Fraction:
    """Amount of a quota that a pod uses; GB of GPU memory count as fractions of the largest card."""
    if field == "pods":
        return Fraction(1)
    if field != "gpus":
        return size_of(getattr(pod, field))
    share = size_of(pod.gpu_share) or size_of(pod.gpu_memory_gb) / largest
    return share * pod.gpu_cards if wants_gpu(pod) else Fraction(0)
