"""Minimum-cost flow stated from the instance, for answers of changed models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowlex.instances.network import NetworkInstance
from flowlex.validation.certificates.statement.program import ExactStatement

__all__ = ["state_network"]


def state_network(instance: NetworkInstance, options: Mapping[str, Any]) -> ExactStatement:
    """Flows by arc, conservation at nodes, total cost."""
    names = list(instance.node_names or ())
    if not names:
        names = [str(v + instance.first_node) for v in range(len(instance.supply))]
    # No flow needs more on an arc than all supplies and all bounds together: a cycle carries at most its other bounds.
    most = sum(max(b, 0) for b in instance.supply)
    most += sum(low if up is None else up for low, up in zip(instance.lower, instance.upper, strict=True))
    labels = [
        {"arc": a, "tail": names[tail], "head": names[head]}
        for a, (tail, head) in enumerate(zip(instance.tail, instance.head, strict=True))
    ]
    statement = ExactStatement("cost", needed=frozenset({"node"}))
    upper = [most if up is None else up for up in instance.upper]
    statement.variables("flow", labels, keys=("arc",), lower=list(instance.lower), upper=upper)
    terms: list[dict[int, int]] = [{} for _ in names]
    for a, (tail, head) in enumerate(zip(instance.tail, instance.head, strict=True)):
        if tail != head:
            terms[tail][a], terms[head][a] = 1, -1
    for name, row, supply in zip(names, terms, instance.supply, strict=True):
        statement.row("node", name, row, "==", supply)
    statement.stage("cost", dict(enumerate(instance.cost)))
    return statement
