"""Gangs, affinities, spreads and capacities of machines, and which of these a schedule breaks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from flowlex.instances.exact_rationals import rational
from flowlex.instances.flow import FlowInstance
from flowlex.instances.group_rules import Affinity, Gang, TaskSpread
from flowlex.validation.restated.flow import key_of, machines_by_domain, members, most_in, resource_names

#: Names of the checks of rules.
CHECKS = ("gangs: all tasks run, or none", "gangs and affinities in one domain", "limits of spreads")


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
            tasks, key = [at[name] for name in members(rule, jobs)], key_of(rule)
            inside = {} if key is None else machines_by_domain(instance.machines, key)
            masks = {domain: np.array([name in those for name in machines], bool) for domain, those in inside.items()}
            reach = everywhere if key is None else np.any([*masks.values(), ~everywhere], axis=0)
            for t in tasks:
                self.inside[t] = self.inside.get(t, everywhere) & reach
            if isinstance(rule, TaskSpread):
                self.spreads.append(_Spread(rule.name, tasks, {t: (m, most_in(rule, t)) for t, m in masks.items()}))
                continue
            kind = "gang" if rule in instance.gangs else "affinity"
            domains = [("", everywhere)] if key is None else list(masks.items())
            self.teams.append(_Team(kind, rule.name, tasks, domains))

    def __bool__(self) -> bool:
        return bool(self.inside)

    def of_task(self) -> dict[int, tuple[str, ...]]:
        """Names of the rules of each task, with their kinds."""
        found: dict[int, tuple[str, ...]] = {}
        for team in self.teams:
            for t in team.tasks:
                found[t] = (*found.get(t, ()), f"{team.kind} {team.name}")
        for spread in self.spreads:
            for t in spread.tasks:
                found[t] = (*found.get(t, ()), f"spread {spread.name}")
        return found

    def broken(self, at: Sequence[int]) -> Iterator[tuple[str, str, list[int]]]:
        """Yield (check, offender, tasks) of each rule that a schedule (machine by task, -1 if waiting) breaks."""
        for team in self.teams:
            here = [at[t] for t in team.tasks if at[t] >= 0]
            if team.kind == "gang" and 0 < len(here) < len(team.tasks):
                yield CHECKS[0], f"{len(here)} of {len(team.tasks)} tasks of {team.name}", team.tasks
            if here and not any(mask[here].all() for _, mask in team.domains):
                yield CHECKS[1], f"{team.kind} {team.name}", team.tasks
        for spread in self.spreads:
            for tag, (mask, most) in spread.domains.items():
                held = sum(bool(mask[at[t]]) for t in spread.tasks if at[t] >= 0)
                if most is not None and held > most:
                    yield CHECKS[2], f"{held} of {spread.name} on {tag}", spread.tasks
        for t, mask in self.inside.items():
            if at[t] >= 0 and not mask[at[t]]:
                yield CHECKS[2], self.names[t], [t]


def overfull(instance: FlowInstance, demands: Iterable[Mapping[str, float]], at: Iterable[int]) -> Iterator[str]:
    """Machines whose tasks demand more than their capacity; ``at`` is the machine of each task, -1 for none."""
    used: dict[tuple[int, str], Fraction] = {}
    known = resource_names(instance)
    for asked, m in zip(demands, at, strict=True):
        for name in known if m >= 0 else ():
            amount = rational(asked.get(name, 0))
            if amount:
                used[m, name] = used.get((m, name), Fraction(0)) + amount
    for (m, name), amount in used.items():
        machine = instance.machines[m]
        if amount > rational(machine.capacity.get(name, 0)):
            yield f"{name} of {machine.name}"
