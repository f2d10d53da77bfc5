"""What ties tasks together: gangs, affinities and spreads over racks or labels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from flowlex.instances.flow import FlowInstance, Machine
from flowlex.instances.group_rules import Gang, TaskSpread, domain_tags, members_of

__all__ = ["Limit", "TaskRules", "Team"]


@dataclass(frozen=True)
class Team:
    """A gang (``whole``: all of its tasks run, or none) or an affinity; ``domains``: tags of which it keeps to one."""

    name: str
    whole: bool
    tasks: tuple[str, ...]
    domains: tuple[str, ...]

    @property
    def kind(self) -> str:
        """``gang`` or ``affinity``."""
        return "gang" if self.whole else "affinity"


@dataclass(frozen=True)
class Limit:
    """At most ``most`` of the tasks of a spread run on the machines with a tag."""

    spread: str
    tag: str
    most: int
    tasks: tuple[str, ...]


@dataclass(frozen=True)
class TaskRules:
    """The rules of an instance over several tasks.

    Attributes
    ----------
    teams, limits
        Gangs and affinities; what spreads allow in each domain.
    inside
        Machines in some domain of every rule over domains, by task with such a rule.
    """

    teams: tuple[Team, ...] = ()
    limits: tuple[Limit, ...] = ()
    inside: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, instance: FlowInstance) -> TaskRules:
        """Read the rules of an instance."""
        jobs = {job.name: [task.name for task in job.tasks] for job in instance.jobs}
        tags: dict[str, dict[str, str]] = {}
        keys: dict[str, dict[str, None]] = defaultdict(dict)
        teams: list[Team] = []
        limits: list[Limit] = []
        for rule in (*instance.gangs, *instance.affinities, *instance.spreads):
            tasks, key = tuple(members_of(rule, jobs)), rule.key
            if key is not None:
                if key not in tags:
                    tags[key] = domain_tags(instance.machines, key)
                for task in tasks:
                    keys[task][key] = None
            domains = () if key is None else tuple(dict.fromkeys(tags[key].values()))
            if not isinstance(rule, TaskSpread):
                teams.append(Team(rule.name, isinstance(rule, Gang), tasks, domains))
                continue
            stated = ((tag, rule.limit(tag)) for tag in domains)
            limits += [Limit(rule.name, tag, most, tasks) for tag, most in stated if most is not None]
        machines: dict[tuple[str, ...], frozenset[str]] = {
            those: frozenset.intersection(*(frozenset(tags[key]) for key in those))
            for those in {tuple(sorted(those)) for those in keys.values()}
        }
        inside = {task: machines[tuple(sorted(those))] for task, those in keys.items()}
        return cls(tuple(teams), tuple(limits), inside)

    def __bool__(self) -> bool:
        return bool(self.tasks)

    @cached_property
    def tasks(self) -> frozenset[str]:
        """Tasks with any rule."""
        return frozenset((*(t for team in self.teams for t in team.tasks), *self.inside))

    def keeps(self, placed: Mapping[str, Machine]) -> bool:
        """Whether the machines of running tasks keep all rules."""
        if any(machine.name not in self.inside.get(task, (machine.name,)) for task, machine in placed.items()):
            return False
        for team in self.teams:
            there = [placed[task] for task in team.tasks if task in placed]
            if team.whole and len(there) not in (0, len(team.tasks)):
                return False
            if there and team.domains and not any(all(tag in m.tags for m in there) for tag in team.domains):
                return False
        return all(
            sum(task in placed and limit.tag in placed[task].tags for task in limit.tasks) <= limit.most
            for limit in self.limits
        )

    @cached_property
    def of_task(self) -> Mapping[str, frozenset[tuple[str, str]]]:
        """Kind and name of the rules of each task, and the domains whose number of tasks is limited."""
        found: dict[str, set[tuple[str, str]]] = defaultdict(set)
        for team in self.teams:
            for task in team.tasks:
                found[task].add((team.kind, team.name))
        for limit in self.limits:
            for task in limit.tasks:
                found[task].add((limit.spread, limit.tag))
        return {task: frozenset(those) for task, those in found.items()}

    @cached_property
    def tags(self) -> frozenset[str]:
        """Tags of all domains that a rule names."""
        return frozenset((*(tag for team in self.teams for tag in team.domains), *(each.tag for each in self.limits)))
