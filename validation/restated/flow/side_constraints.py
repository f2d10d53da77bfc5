"""Gangs, affinities and spreads, and which of these a schedule breaks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flowlex.instances.flow import FlowInstance, Machine
from flowlex.instances.group_rules import Affinity, Gang, TaskSpread


@dataclass(frozen=True)
class _Team:
    """Tasks of a gang or an affinity by position, and the domains (tag, machines) of which it may use only one."""

    kind: str
    name: str
    tasks: list[int]
    domains: list[tuple[str, NDArray[np.bool_]]]


@dataclass(frozen=True)
class _Spread:
    """Tasks of a spread by position; machines and limit of each domain by tag, no limit as None."""

    name: str
    tasks: list[int]
    domains: dict[str, tuple[NDArray[np.bool_], int | None]]


class Ties:
    """The rules of an instance over its tasks by position."""

    def __init__(self, instance: FlowInstance, names: Iterable[str]) -> None:
        rules: tuple[Gang | Affinity | TaskSpread, ...] = (*instance.gangs, *instance.affinities, *instance.spreads)
        self.names = list(names) if rules else []
        at = {name: t for t, name in enumerate(self.names)}
        machines = [machine.name for machine in instance.machines]
        jobs = {job.name: [task.name for task in job.tasks] for job in (instance.jobs if rules else ())}
        self.teams: list[_Team] = []
        self.spreads: list[_Spread] = []
        self.inside: dict[int, NDArray[np.bool_]] = {}  # machines in a domain of every rule of a task
        everywhere = np.ones(len(machines), bool)
        for rule in rules:
            tasks = [at[name] for name in _members(rule, jobs)]
            key = rule.over if isinstance(rule, TaskSpread) else rule.within
            inside = {} if key is None else _machines_by_domain(instance.machines, key)
            masks = {domain: np.array([name in those for name in machines], bool) for domain, those in inside.items()}
            reach = everywhere if key is None else np.any([*masks.values(), ~everywhere], axis=0)
            for t in tasks:
                self.inside[t] = self.inside.get(t, everywhere) & reach
            if isinstance(rule, TaskSpread):
                self.spreads.append(_Spread(rule.name, tasks, {t: (m, _most_in(rule, t)) for t, m in masks.items()}))
                continue
            kind = "gang" if rule in instance.gangs else "affinity"
            domains = [("", everywhere)] if key is None else list(masks.items())
            self.teams.append(_Team(kind, rule.name, tasks, domains))

    def broken(self, at: NDArray[np.int64]) -> Iterator[int]:
        """Tasks of the rules that a schedule, (T,) machine of each task or -1, breaks."""
        for team in self.teams:
            here = at[team.tasks][at[team.tasks] >= 0]
            parted = len(here) and not any(mask[here].all() for _, mask in team.domains)
            if parted or (team.kind == "gang" and 0 < len(here) < len(team.tasks)):
                yield from team.tasks
        for spread in self.spreads:
            here = at[spread.tasks][at[spread.tasks] >= 0]
            for mask, most in spread.domains.values():
                if most is not None and np.count_nonzero(mask[here]) > most:
                    yield from spread.tasks
        yield from (t for t, mask in self.inside.items() if at[t] >= 0 and not mask[at[t]])


def _members(rule: Gang | Affinity | TaskSpread, tasks_of: Mapping[str, Sequence[str]]) -> list[str]:
    """Names of the tasks under a rule: those it lists, then those of its jobs, each once."""
    found: dict[str, None] = {}
    for name in rule.tasks:
        found[name] = None
    for job in rule.jobs:
        for name in tasks_of[job]:
            found[name] = None
    return list(found)


def _machines_by_domain(machines: Iterable[Machine], key: str) -> dict[str, set[str]]:
    """Names of the machines by domain: ``rack:r1``, or a label such as ``zone=a``; machines without it are in none."""
    found: dict[str, set[str]] = {}
    for machine in machines:
        tags = [f"rack:{machine.rack}"] if key == "rack" else [x for x in machine.labels if x.startswith(key + "=")]
        for tag in tags:
            found.setdefault(tag, set()).add(machine.name)
    return found


def _most_in(spread: TaskSpread, domain: str) -> int | None:
    """Most tasks of a spread in a domain; None: no limit."""
    return spread.limits.get(domain[len(spread.over) + 1 :], spread.most)
