"""Rules over several tasks or pods: gangs, spreads, affinity, and quotas of queues and of resources.

A rule counts by *domain*. Task rules list tasks or jobs; a domain is the machines of one rack (``rack``), or those with
the same value of a label ``key=value`` (``zone=a``). Pods name their rules; a domain is a single node (``node``), or
the nodes with the same value of a label.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Annotated, ClassVar, Protocol, Self, TypeAlias

from pydantic import Field, model_validator

from flowlex.instances.instance_base import Name, NonNegative, Part, Positive, require_known

#: The key of racks; any other key of machines is that of a label ``key=value``.
RACK = "rack"
AtLeastOne: TypeAlias = Annotated[int, Field(strict=True, ge=1)]


class Labelled(Protocol):
    """The properties of a machine that rules use."""

    @property
    def name(self) -> str:
        """Unique."""

    @property
    def rack(self) -> str:
        """The rack of the machine."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Some are ``key=value``."""


class Rule(Part):
    """Base class of the rules."""

    name: Name
    """Unique among the rules of its kind."""

    @property
    def says(self) -> str:
        """Its kind and name, for messages."""
        return f"{type(self).__name__.removeprefix('Task').removeprefix('Pod').lower()} {self.name!r}"

    @property
    def key(self) -> str | None:
        """The key of its domains: ``rack``, ``node`` or a label; None if it has no domains."""
        found: str | None = getattr(self, "within", getattr(self, "over", None))
        return found


class _Gang(Rule):
    """Runs all together or not at all."""

    within: Name | None = None
    """All run in one domain of this key, such as ``rack``; null: anywhere."""


class _Spread(Rule):
    """Limits its tasks or pods per domain. Machines and nodes in no domain run none of them."""

    _instead: ClassVar[str]
    """The field that may limit it instead of ``most``."""

    over: Name
    """The key of the domains: ``rack`` or a label key for machines, ``node`` or a label for nodes."""
    most: AtLeastOne | None = None
    """Most of its tasks or pods in a domain; 1 for anti-affinity."""

    @model_validator(mode="after")
    def _limits_something(self) -> Self:
        if self.most is None and not getattr(self, self._instead):
            raise ValueError(f"{self.says} gives neither most nor {self._instead}; give one of them")
        return self


class TaskRule(Rule):
    """A rule over the listed tasks and all tasks of the listed jobs."""

    tasks: tuple[Name, ...] = ()
    """Tasks under the rule, besides those of ``jobs``."""
    jobs: tuple[Name, ...] = ()
    """Jobs whose tasks are all under the rule."""

    @model_validator(mode="after")
    def _about_something(self) -> Self:
        if not self.tasks and not self.jobs:
            raise ValueError(f"{self.says} names no tasks and no jobs; name some, or drop it")
        return self


class Gang(_Gang, TaskRule):
    """Tasks that run all together or not at all."""


class Affinity(TaskRule):
    """Tasks with affinity: all that run do so in one domain."""

    within: Name = RACK
    """``rack``, or the key of a label."""


class TaskSpread(_Spread, TaskRule):
    """Tasks with anti-affinity: the number that run in a domain is limited. Machines in no domain run none."""

    _instead = "limits"
    over: Name = RACK
    limits: Mapping[Name, AtLeastOne] = {}
    """Most of its tasks in each named domain (a rack, or a value of the label); instead of ``most``."""

    def limit(self, tag: str) -> int | None:
        """Most of its tasks on the machines with a tag (see `domain_tags`)."""
        return self.limits.get(tag.partition(":" if self.over == RACK else "=")[2], self.most)


class PodGang(_Gang):
    """Pods that are placed all together or not at all, over as many nodes as it takes."""


class PodSpread(_Spread):
    """Pods with anti-affinity, or spread evenly over domains; nodes without the label take none."""

    _instead = "skew"
    over: Name = "node"
    skew: AtLeastOne | None = None
    """Largest difference in pods between the fullest and the emptiest domain that its pods may use."""


class PodQueue(Rule):
    """A user or a queue: quotas on the total use of its pods, and its weight in fair admission."""

    weight: Positive = 1.0
    """Its share of the cluster compared with other queues, for ``admission=fair``."""
    gpus: NonNegative | None = None
    """Quota of GPUs, counting fractions of a card, and GB as fractions of the largest card. Null: no quota."""
    cpu_cores: NonNegative | None = None
    """Quota of cores."""
    memory_gb: NonNegative | None = None
    """Quota of memory in GB."""
    pods: Annotated[int, Field(strict=True, ge=0)] | None = None
    """Quota of pods."""


class PodResource(Rule):
    """A resource that pods ask for in integer units, beside cores, memory and cards; each domain has some of it."""

    over: Name = "node"
    """The key of the domains: ``node``, or a label whose values are the domains; nodes without it run no such pod."""
    amount: Annotated[int, Field(strict=True, ge=0, le=2**53)] | None = None
    """Amount in every domain; null: the sum over the ``resources`` of its nodes."""


def domain_tags(machines: Iterable[Labelled], key: str) -> dict[str, str]:
    """Return the tag of each machine's domain (``rack:r1`` or ``zone=a``); machines in no domain are left out."""
    if key == RACK:
        return {machine.name: f"rack:{machine.rack}" for machine in machines}
    found = {}
    for machine in machines:
        tags = [label for label in machine.labels if label.startswith(f"{key}=")]
        if len(set(tags)) > 1:
            raise ValueError(f"machine {machine.name!r} has {' and '.join(tags)}; rules over {key!r} need one of them")
        if tags:
            found[machine.name] = tags[0]
    return found


def members_of(rule: TaskRule, tasks_of: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the names of the tasks under a rule, each once; ``tasks_of``: names of tasks by job."""
    return list(dict.fromkeys([*rule.tasks, *(task for job in rule.jobs for task in tasks_of.get(job, ()))]))


def check_rules(
    rules: Iterable[TaskRule],
    tasks_of: Mapping[str, Sequence[str]],
    tasks: Collection[str],
    machines: Collection[Labelled],
    together: Mapping[str, str] | None = None,
) -> None:
    """Raise `ValueError` unless rules name existing tasks and do not contradict each other.

    Racks and labels may be missing: machines come and go; tasks that need them wait. ``tasks_of`` are names of tasks
    by job, ``together`` the gang or affinity of tasks that have one already.
    """
    known: dict[str, Collection[str]] = {"task": tasks, "job": tasks_of}
    teams = dict(together or {})
    for rule in rules:
        for what, names in (("task", rule.tasks), ("job", rule.jobs)):
            for name in names:
                require_known(name, known[what], f"{rule.says} names {what}", f"{what}s")
        if rule.key is not None:
            domain_tags(machines, rule.key)  # raises where a machine is in two domains
        if isinstance(rule, TaskSpread):
            continue
        for task in members_of(rule, tasks_of):
            if task in teams:
                raise ValueError(f"task {task!r} is in {teams[task]} and {rule.says}; it may be in one of them only")
            teams[task] = rule.says
