"""Rules over several tasks of a cluster: gangs, spreads over racks or labels, and affinity.

A *domain* is the machines of one rack, or those whose label ``key=value`` has one value of a key (``zone=a``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Annotated, Protocol, Self

from pydantic import Field, model_validator

from flowlex.instances.instance_base import Name, Part, require_known

__all__ = ["RACK", "Affinity", "Gang", "Labelled", "TaskSpread", "check_rules", "domain_tags", "members_of"]

#: The key of racks; any other key is that of a label ``key=value``.
RACK = "rack"


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


class TaskRule(Part):
    """A rule for some tasks: those named, and all of the jobs named."""

    name: Name
    """Unique among the rules of its kind."""
    tasks: tuple[Name, ...] = ()
    """Tasks that it is about, beside those of ``jobs``."""
    jobs: tuple[Name, ...] = ()
    """Jobs all whose tasks it is about."""

    @model_validator(mode="after")
    def _about_something(self) -> Self:
        if not self.tasks and not self.jobs:
            raise ValueError(f"{self.says} names no tasks and no jobs; name some, or drop it")
        return self

    @property
    def says(self) -> str:
        """What messages call it."""
        return f"{type(self).__name__.removeprefix('Task').lower()} {self.name!r}"

    @property
    def key(self) -> str | None:
        """What its domains are: ``rack`` or the key of a label; None where it has none."""
        raise NotImplementedError


class Gang(TaskRule):
    """Tasks that run all together or not at all."""

    within: Name | None = None
    """``rack``, or the key of a label: all run in one rack, or on machines with one value of it; null: anywhere."""

    @property
    def key(self) -> str | None:
        """What it stays within."""
        return self.within


class Affinity(TaskRule):
    """Tasks that keep together: those that run, run in one domain."""

    within: Name = RACK
    """``rack``, or the key of a label."""

    @property
    def key(self) -> str | None:
        """What it stays within."""
        return self.within


class TaskSpread(TaskRule):
    """Tasks that keep apart: at most so many run in a domain. Machines in no domain run none of them."""

    over: Name = RACK
    """``rack``, or the key of a label."""
    most: Annotated[int, Field(ge=1)] | None = None
    """Of its tasks in a domain, at most; null for no limit but those of ``limits``."""
    limits: Mapping[Name, Annotated[int, Field(ge=1)]] = {}
    """Of its tasks in the domains named (a rack, or a value of the label), at most; instead of ``most``."""

    @model_validator(mode="after")
    def _limits_something(self) -> Self:
        if self.most is None and not self.limits:
            raise ValueError(f"{self.says} gives neither most nor limits; give one of them")
        return self

    @property
    def key(self) -> str | None:
        """What it spreads over."""
        return self.over

    def limit(self, tag: str) -> int | None:
        """Most of its tasks on the machines with a tag (see `domain_tags`)."""
        return self.limits.get(tag.partition(":" if self.over == RACK else "=")[2], self.most)


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

    Racks and labels may be gone: machines come and go, and tasks that need them wait.

    Parameters
    ----------
    tasks_of, tasks
        Names of tasks by job, and of all.
    together
        Gang or affinity of tasks that have one already.
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
