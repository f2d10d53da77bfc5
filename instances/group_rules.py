"""Rules over several tasks or pods: gangs, spreads, affinity, and quotas of queues and of resources.

A rule counts by *domain*. Tasks say for themselves which rules they are under by their names or jobs in the rule; their
domains are the machines of one rack (``rack``), or those whose label ``key=value`` has one value of a key (``zone=a``).
Pods name their rules; their domains are single nodes (``node``), or the nodes that share a label's value.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Annotated, ClassVar, Protocol, Self, TypeAlias

from pydantic import Field, model_validator

from flowlex.instances.instance_base import Name, NonNegative, Part, Positive, require_known

#: The key of racks; any other key of machines is that of a label ``key=value``.
RACK = "rack"
AtLeastOne: TypeAlias = Annotated[int, Field(ge=1)]


class Labelled(Protocol):
    """What rules ask of a machine."""

    @property
    def name(self) -> str:
        """Unique."""

    @property
    def rack(self) -> str:
        """Where it stands."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Some are ``key=value``."""


class Rule(Part):
    """What all rules have."""

    name: Name
    """Unique among the rules of its kind."""

    @property
    def says(self) -> str:
        """What messages call it."""
        return f"{type(self).__name__.removeprefix('Task').removeprefix('Pod').lower()} {self.name!r}"

    @property
    def key(self) -> str | None:
        """What its domains are: ``rack``, ``node`` or a label; None where it has none."""
        found: str | None = getattr(self, "within", getattr(self, "over", None))
        return found


class _Gang(Rule):
    """Runs all together or not at all."""

    within: Name | None = None
    """All run in one domain of this key, such as ``rack``; null: anywhere."""


class _Spread(Rule):
    """Kept apart, or spread over domains. What is in no domain takes none of it."""

    _instead: ClassVar[str]
    """The field that may limit it instead of ``most``."""

    over: Name
    """What a domain is: ``rack`` or the key of a label of machines, ``node`` or a label of nodes."""
    most: AtLeastOne | None = None
    """Of its tasks or pods in a domain, at most; 1 keeps them apart."""

    @model_validator(mode="after")
    def _limits_something(self) -> Self:
        if self.most is None and not getattr(self, self._instead):
            raise ValueError(f"{self.says} gives neither most nor {self._instead}; give one of them")
        return self


class TaskRule(Rule):
    """A rule for some tasks: those named, and all of the jobs named."""

    tasks: tuple[Name, ...] = ()
    """Tasks that it is about, beside those of ``jobs``."""
    jobs: tuple[Name, ...] = ()
    """Jobs all whose tasks it is about."""

    @model_validator(mode="after")
    def _about_something(self) -> Self:
        if not self.tasks and not self.jobs:
            raise ValueError(f"{self.says} names no tasks and no jobs; name some, or drop it")
        return self


class Gang(_Gang, TaskRule):
    """Tasks that run all together or not at all."""


class Affinity(TaskRule):
    """Tasks that keep together: those that run, run in one domain."""

    within: Name = RACK
    """``rack``, or the key of a label."""


class TaskSpread(_Spread, TaskRule):
    """Tasks that keep apart: at most so many run in a domain. Machines in no domain run none of them."""

    _instead = "limits"
    over: Name = RACK
    limits: Mapping[Name, AtLeastOne] = {}
    """Of its tasks in the domains named (a rack, or a value of the label), at most; instead of ``most``."""

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
    """The fullest and the emptiest domain that its pods may use differ by at most so many pods."""


class PodQueue(Rule):
    """A user or a queue: what its pods may use together, and its weight where users are treated fairly."""

    weight: Positive = 1.0
    """Its share of the cluster compared with other queues, for ``admission=fair``."""
    gpus: NonNegative | None = None
    """Quota of GPUs, parts of a card counted as such; GB as parts of the largest card. Null: no quota."""
    cpu_cores: NonNegative | None = None
    """Quota of cores."""
    memory_gb: NonNegative | None = None
    """Quota of memory in GB."""
    pods: Annotated[int, Field(ge=0)] | None = None
    """Quota of pods."""


class PodResource(Rule):
    """A resource that pods ask for in integer units, beside cores, memory and cards; each domain has some of it."""

    over: Name = "node"
    """What a domain is: ``node``, or the label whose values are the domains; nodes without it take no such pod."""
    amount: Annotated[int, Field(ge=0, le=2**53)] | None = None
    """What every domain has; null: the sum of what its nodes say in their ``resources``."""


def domain_tags(machines: Iterable[Labelled], key: str) -> dict[str, str]:
    """The tag of each machine's domain, by machine: ``rack:r1`` or ``zone=a``; machines in none are left out."""
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
    """Names of the tasks that a rule is about, each once; ``tasks_of``: names of tasks by job."""
    return list(dict.fromkeys([*rule.tasks, *(task for job in rule.jobs for task in tasks_of.get(job, ()))]))


def check_rules(
    rules: Iterable[TaskRule],
    tasks_of: Mapping[str, Sequence[str]],
    tasks: Collection[str],
    machines: Collection[Labelled],
    together: Mapping[str, str] | None = None,
) -> None:
    """Raise `ValueError` unless rules name tasks that there are, and do not contradict each other.

    Racks and labels may be gone: machines come and go, and tasks that need them wait. ``tasks_of`` are names of tasks
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
