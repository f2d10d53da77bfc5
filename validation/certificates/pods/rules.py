"""Gangs, spreads and quotas recounted from the documents, pod by pod.

What runs already may exceed a rule: then the limit is what runs (for a skew, how far it is above the emptiest domain).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from flowlex.instances.pods import Pod, PodInstance, PodNode, fits_wishes
from flowlex.validation.certificates.certificate import Check
from flowlex.validation.certificates.pods.sizes import size_of

__all__ = ["RuleBook"]


def _domain(node: PodNode, key: str) -> str | None:
    return node.name if key == "node" else node.labels.get(key)


def _gpus(instance: PodInstance, pod: Pod) -> Fraction:
    """GPUs that a pod asks for; GB count as parts of the largest card."""
    largest = max(size_of(node.card_gb) for node in instance.nodes)
    share = size_of(pod.gpu_share) or (size_of(pod.gpu_memory_gb) / largest if largest else size_of(pod.gpu_memory_gb))
    return share * pod.gpu_cards if pod.wants_gpu else Fraction(0)


@dataclass(frozen=True)
class RuleBook:
    """The rules of an instance, asked about placements: the number of each pod's node, -1 where it waits."""

    instance: PodInstance

    def __bool__(self) -> bool:
        return bool(self.instance.gangs or self.instance.spreads or self.instance.queues)

    def checks(self, where: Sequence[int]) -> tuple[Check, ...]:
        """One check for each kind of rule that the instance has."""
        source, found = self.instance, []
        for name, rules, broken in (
            ("gangs whole and within their domain", source.gangs, self.gangs),
            ("spreads over their domains", source.spreads, self.spreads),
            ("quotas of queues", source.queues, self.quotas),
        ):
            if rules:
                wrong = broken(where)
                found.append(Check(name, not wrong, len(wrong), ", ".join(wrong[:3])))
        return tuple(found)

    def holds(self, where: Sequence[int]) -> bool:
        """Whether nothing is broken."""
        return not (self.gangs(where) or self.spreads(where) or self.quotas(where))

    def _home(self, pod: Pod) -> PodNode | None:
        return next((node for node in self.instance.nodes if node.name == pod.node), None)

    def gangs(self, where: Sequence[int]) -> list[str]:
        """Gangs that are placed in parts, or across domains."""
        nodes, wrong = self.instance.nodes, []
        for gang in self.instance.gangs:
            mine = [(pod, n) for pod, n in zip(self.instance.pods, where, strict=True) if pod.gang == gang.name]
            placed = [n for _, n in mine if n >= 0]
            apart = False
            if gang.within is not None and placed:
                homes = [self._home(pod) for pod, _ in mine]
                ran = {_domain(home, gang.within) for home in homes if home is not None}
                domains = {_domain(nodes[n], gang.within) for n in placed}
                apart = (len(domains) > 1 or None in domains) and not (len(ran) > 1 or None in ran)
            if apart or 0 < len(placed) < len(mine):
                wrong.append(gang.name)
        return wrong

    def spreads(self, where: Sequence[int]) -> list[str]:
        """Spreads with too many in a domain, or too uneven, or with a pod outside all domains."""
        nodes, wrong = self.instance.nodes, []
        for spread in self.instance.spreads:
            mine = [(p, n) for p, n in zip(self.instance.pods, where, strict=True) if spread.name in p.spreads]
            placed = [(pod, nodes[n]) for pod, n in mine if n >= 0]
            now = Counter(_domain(node, spread.over) for _, node in placed)
            homes = [self._home(pod) for pod, _ in mine]
            ran = Counter(_domain(home, spread.over) for home in homes if home is not None)
            strange = any(_domain(n, spread.over) is None and n.name != pod.node for pod, n in placed)
            usable = {_domain(n, spread.over) for n in nodes if any(fits_wishes(pod, n) for pod, _ in mine)} - {None}
            least, before = (min((count[d] for d in usable), default=0) for count in (now, ran))
            for d, many in now.items():
                if d is None:
                    continue
                strange |= spread.most is not None and many > max(spread.most, ran[d])
                strange |= spread.skew is not None and many - least > max(spread.skew, ran[d] - before)
            if strange:
                wrong.append(spread.name)
        return wrong

    def quotas(self, where: Sequence[int]) -> list[str]:
        """Queues that use more than their quota and than what ran before."""
        wrong = []
        for queue in self.instance.queues:
            mine = [(pod, n) for pod, n in zip(self.instance.pods, where, strict=True) if pod.queue == queue.name]
            for field in ("gpus", "cpu_cores", "memory_gb", "pods"):
                limit = getattr(queue, field)
                if limit is None:
                    continue
                asked = [self._asked(pod, field) for pod, _ in mine]
                used = sum(a for a, (_, n) in zip(asked, mine, strict=True) if n >= 0)
                ran = sum(a for a, (pod, _) in zip(asked, mine, strict=True) if pod.node is not None)
                if used > max(size_of(limit), ran):
                    wrong.append(f"{queue.name} ({field})")
        return wrong

    def _asked(self, pod: Pod, field: str) -> Fraction:
        if field == "pods":
            return Fraction(1)
        return _gpus(self.instance, pod) if field == "gpus" else size_of(getattr(pod, field))
