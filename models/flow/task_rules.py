"""Rules across tasks: gangs, affinities and spreads over racks or labels."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from flowlex.instances.flow import FlowInstance
from flowlex.instances.group_rules import RACK, Affinity, Gang, TaskSpread, domain_tags, members_of

GroupRule: TypeAlias = Gang | TaskSpread | Affinity


@dataclass(frozen=True)
class Team:
    """A gang (``whole``: all of its tasks run, or none) or an affinity; its tasks run in one of ``domains`` (tags)."""

    name: str
    whole: bool
    tasks: tuple[str, ...]
    domains: tuple[str, ...]

    @property
    def kind(self) -> str:
        """``gang`` or ``affinity``."""
        return "gang" if self.whole else "affinity"

    @property
    def needs(self) -> str:
        """What a gang asks for, in words."""
        kind = "" if not self.domains else "rack" if self.domains[0].startswith("rack:") else "label"
        one = f" within one {kind}" if kind else ""
        return f"gang {self.name!r} runs completely or not at all and needs {len(self.tasks)} slots at once{one}"


@dataclass(frozen=True)
class Limit:
    """At most ``most`` of the tasks of a spread run on the machines with a tag."""

    spread: str
    tag: str
    most: int
    tasks: tuple[str, ...]


@dataclass(frozen=True)
class TaskRules:
    """Rules over several tasks."""

    # gangs and affinities; limits of spreads by domain
    teams: tuple[Team, ...] = ()
    limits: tuple[Limit, ...] = ()
    # by task with rules over domains: machines that lie in a domain of each of these rules
    inside: Mapping[str, frozenset[str]] = field(default_factory=dict)
    # each rule with its tasks, and the domain of each machine if the rule is over domains
    stated: tuple[tuple[GroupRule, tuple[str, ...], Mapping[str, str] | None], ...] = ()

    @classmethod
    def of(cls, instance: FlowInstance) -> TaskRules:
        """The rules of an instance."""
        jobs = {job.name: [task.name for task in job.tasks] for job in instance.jobs}
        rules: tuple[GroupRule, ...] = (*instance.gangs, *instance.affinities, *instance.spreads)
        return cls.read(rules, jobs, lambda key: domain_tags(instance.machines, key))

    @classmethod
    def read(
        cls,
        rules: Iterable[GroupRule],
        jobs: Mapping[str, Sequence[str]],
        domain_of: Callable[[str], Mapping[str, str]],
    ) -> TaskRules:
        """Read rules, given the tasks of jobs and a function from a key to the domain of each machine."""
        tags: dict[str, Mapping[str, str]] = {}
        keys: dict[str, dict[str, None]] = defaultdict(dict)
        teams: list[Team] = []
        limits: list[Limit] = []
        read = []
        for rule in rules:
            tasks, key = tuple(members_of(rule, jobs)), rule.key
            if key is not None:
                if key not in tags:
                    tags[key] = domain_of(key)
                for task in tasks:
                    keys[task][key] = None
            read.append((rule, tasks, None if key is None else tags[key]))
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
        return cls(tuple(teams), tuple(limits), inside, tuple(read))

    def __bool__(self) -> bool:
        return bool(self.tasks)

    @cached_property
    def tasks(self) -> frozenset[str]:
        """Tasks with any rule."""
        return frozenset((*(t for team in self.teams for t in team.tasks), *self.inside))

    def broken(self, placed: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
        """Iterate over the tasks of each rule that ``placed`` (machine by running task) breaks."""
        for rule, tasks, tags in self.stated:
            used = [placed[task] for task in tasks if task in placed]
            if isinstance(rule, Gang) and len(used) not in (0, len(tasks)):
                yield tasks
            elif tags is not None:
                found = Counter(map(tags.get, used))
                if None in found or (_exceeds(rule, found) if isinstance(rule, TaskSpread) else len(found) > 1):
                    yield tasks

    @cached_property
    def missing_domains(self) -> dict[str, str]:
        """Reason by task for tasks with a rule that needs a label that no machine has."""
        gone = ((rule, tasks) for rule, tasks, tags in self.stated if rule.key not in (None, RACK) and not tags)
        return {
            task: f"{rule.says} needs a machine with a label '{rule.key}=...', and none has it now"
            for rule, tasks in gone
            for task in tasks
        }

    @cached_property
    def gang_tasks(self) -> frozenset[str]:
        """Tasks of gangs."""
        return frozenset(task for team in self.teams if team.whole for task in team.tasks)

    @cached_property
    def of_task(self) -> Mapping[str, frozenset[tuple[str, str]]]:
        """By task: (kind, name) of its gangs and affinities, and (spread, tag) of its limited domains."""
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
        """Tags of all domains of gangs and affinities, and of limited domains of spreads."""
        return frozenset((*(tag for team in self.teams for tag in team.domains), *(each.tag for each in self.limits)))


def _exceeds(rule: TaskSpread, found: Mapping[str | None, int]) -> bool:
    """Return whether a domain has more tasks of a spread than its limit."""
    return any((most := rule.limit(str(tag))) is not None and count > most for tag, count in found.items())
