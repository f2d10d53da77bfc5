"""Rules of flow scheduling read again from the data fields of an instance: who is under them, and where.

Nothing here comes from the properties and functions of `flowlex.instances` that models use. A wrong rule there is
refused by the certificates, which read theirs here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from flowlex.instances.flow import FlowInstance, Machine
from flowlex.instances.group_rules import Affinity, Gang, TaskSpread

_RACK = "rack"


def resource_names(instance: FlowInstance) -> list[str]:
    """Names of the resources of which some machine has a capacity."""
    return sorted(set().union(*(machine.capacity for machine in instance.machines)))


def key_of(rule: Gang | Affinity | TaskSpread) -> str | None:
    """What the domains of a rule are: racks, or the values of a label; None: the rule has none."""
    return rule.over if isinstance(rule, TaskSpread) else rule.within


def members(rule: Gang | Affinity | TaskSpread, tasks_of: Mapping[str, Sequence[str]]) -> list[str]:
    """Names of the tasks under a rule: those it lists, then those of its jobs, each once."""
    found: dict[str, None] = {}
    for name in rule.tasks:
        found[name] = None
    for job in rule.jobs:
        for name in tasks_of[job]:
            found[name] = None
    return list(found)


def machines_by_domain(machines: Iterable[Machine], key: str) -> dict[str, set[str]]:
    """Names of the machines by domain: ``rack:r1``, or a label such as ``zone=a``; machines without it are in none."""
    found: dict[str, set[str]] = {}
    for machine in machines:
        tags = [f"rack:{machine.rack}"] if key == _RACK else [x for x in machine.labels if x.startswith(key + "=")]
        for tag in tags:
            found.setdefault(tag, set()).add(machine.name)
    return found


def most_in(spread: TaskSpread, domain: str) -> int | None:
    """Most tasks of a spread in a domain; None: no limit."""
    return spread.limits.get(domain[len(spread.over) + 1 :], spread.most)
