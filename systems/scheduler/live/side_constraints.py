"""Side constraints of the network: rules across tasks, and capacities of machines.

The network without them is a relaxation: if its optimum satisfies them, no schedule is better. The work of the check
is proportional to the tasks of rules and the machines that receive tasks.
"""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from itertools import chain
from typing import Any, cast

from flowlex.instances.exact_rationals import rational
from flowlex.instances.flow import FlowJob, Machine
from flowlex.instances.group_rules import Gang, check_rules, domain_tags, members_of
from flowlex.models.flow.task_rules import GroupRule, TaskRules
from flowlex.systems.scheduler.live.task_records import EventError, LiveJob, LiveTask

#: Machine of each task that changes: (now, next).
Changes = Mapping[str, tuple[str | None, str | None]]
_MOST_RULES = 2**16
_exact = lru_cache(maxsize=4096)(rational)


class SideConstraints:
    """Present rules and capacities; ``machines``, ``jobs`` and ``tasks`` are those of the live cluster."""

    def __init__(
        self, machines: Mapping[str, Machine], jobs: Mapping[str, LiveJob], tasks: Mapping[str, LiveTask]
    ) -> None:
        self._machines, self._jobs, self._tasks = machines, jobs, tasks
        self.rules: dict[tuple[str, str], GroupRule] = {}
        self._members: dict[tuple[str, str], dict[str, None]] = {}
        self._rules_of: dict[str, dict[tuple[str, str], None]] = {}
        self._stale = False  # whether the blocked tasks may have changed
        self._task_rules: TaskRules | None = None  # cached until a rule, its tasks or a machine changes
        self._tags: dict[str, dict[str, str]] = {}  # domain by key and machine, cached until the machines change
        self._most_slots: dict[str | None, tuple[int, str]] = {}  # by key: most slots in one domain, and its tag
        self.blocked: dict[str, None] = {}  # tasks of gangs for which no domain has enough slots
        self.resources: Counter[str] = Counter()  # number of machines with each resource
        self.unchecked: dict[str, None] = {}  # machines whose capacity may be exceeded

    def __bool__(self) -> bool:
        return bool(self.rules or self.resources)

    @property
    def task_rules(self) -> TaskRules:
        """The rules over the present tasks and machines."""
        if self._task_rules is None:
            jobs = {name: tuple(self._jobs[name].tasks) for rule in self.rules.values() for name in rule.jobs}
            self._task_rules = TaskRules.read(self.rules.values(), jobs, self._tags_of)
        return self._task_rules

    # Rules -----------------------------------------------------------------------------------------------------
    def check(self, rules: Iterable[GroupRule], job: FlowJob | None = None) -> None:
        """Raise `EventError` if a rule names what is not present, in a new job either, or contradicts another rule."""
        if not (rules := tuple(rules)):
            return
        new = [(_kind(rule), rule.name) for rule in rules]
        if len(self.rules) + len(new) > _MOST_RULES:
            raise EventError(f"there would be more than {_MOST_RULES} rules; untie some first")
        twice = next((key for k, key in enumerate(new) if key in self.rules or key in new[:k]), None)
        if twice is not None:
            raise EventError(f"{twice[0]} {twice[1]!r} is here already; untie it first, or give another name")
        mine = {} if job is None else {job.name: [task.name for task in job.tasks]}
        tasks: ChainMap[str, Any] = ChainMap(dict.fromkeys(chain(*mine.values())), cast("dict[str, Any]", self._tasks))
        tasks_of = self._tasks_of(rules) | mine
        teams = self._teams(task for rule in rules for task in members_of(rule, tasks_of))
        try:
            check_rules(rules, tasks_of, tasks, self._machines.values(), teams)
        except ValueError as error:
            raise EventError(str(error)) from error

    def tie(self, rules: Iterable[GroupRule]) -> None:
        """Add rules that were checked."""
        rules = tuple(rules)
        tasks_of = self._tasks_of(rules)
        self._stale, self._task_rules = self._stale or bool(rules), None
        for rule in rules:
            key, members = (_kind(rule), rule.name), members_of(rule, tasks_of)
            self.rules[key], self._members[key] = rule, dict.fromkeys(members)
            for task in members:
                self._rules_of.setdefault(task, {})[key] = None

    def _tasks_of(self, rules: Iterable[GroupRule]) -> dict[str, list[str]]:
        """Names of tasks by present job that rules name."""
        return {name: list(self._jobs[name].tasks) for rule in rules for name in rule.jobs if name in self._jobs}

    def _teams(self, tasks: Iterable[str]) -> dict[str, str]:
        found = {}
        for task in tasks:
            for key in self._rules_of.get(task, ()):
                if key[0] != "spread":
                    found[task] = self.rules[key].says
        return found

    def untie(self, kind: str, name: str) -> None:
        """Drop a rule."""
        if (kind, name) not in self.rules:
            raise EventError(f"there is no {kind} {name!r}; it may have gone with the last of its tasks")
        self._stale, self._task_rules = True, None
        del self.rules[kind, name]
        for task in self._members.pop((kind, name)):
            self._loosen(task, (kind, name))

    def forget(self, task: str, job: str) -> None:
        """Remove a task from its rules; rules without tasks are dropped."""
        self.blocked.pop(task, None)
        for key in list(self._rules_of.get(task, ())):
            self._stale, self._task_rules = True, None
            rule, members = self.rules[key], self._members[key]
            del members[task]
            self._loosen(task, key)
            if not members:
                del self.rules[key], self._members[key]
                continue
            tasks = tuple(name for name in rule.tasks if name != task) if task in rule.tasks else rule.tasks
            last = job in rule.jobs and not self._jobs[job].tasks.keys() - {task}
            jobs = tuple(name for name in rule.jobs if name != job) if last else rule.jobs
            if tasks is not rule.tasks or jobs is not rule.jobs:
                self.rules[key] = rule.model_copy(update={"tasks": tasks, "jobs": jobs})

    def _loosen(self, task: str, key: tuple[str, str]) -> None:
        del self._rules_of[task][key]
        if not self._rules_of[task]:
            del self._rules_of[task]

    # Machines --------------------------------------------------------------------------------------------------
    def check_machine(self, machine: Machine) -> None:
        """Raise `EventError` if a machine is in two domains of one key."""
        for key in {rule.key for rule in self.rules.values()} - {None}:
            try:
                domain_tags((machine,), str(key))
            except ValueError as error:
                raise EventError(str(error)) from error

    def put_machine(self, machine: Machine) -> None:
        """Add a machine; if it brings a new resource, mark all machines as unchecked."""
        self._tags.clear()
        self._task_rules = None
        fresh = machine.capacity.keys() - self.resources.keys()
        self.resources.update(machine.capacity.keys())
        self.unchecked |= dict.fromkeys(self._machines) if fresh else {machine.name: None}

    def take_machine(self, machine: Machine) -> None:
        """Remove a machine."""
        self._tags.clear()
        self._task_rules = None
        self.unchecked.pop(machine.name, None)
        self.resources -= Counter(machine.capacity.keys())

    # Gangs without slots ---------------------------------------------------------------------------------------
    def changed_slots(self) -> None:
        """Note that machines were added or removed, or that their slots have changed."""
        self._most_slots.clear()
        self._stale = bool(self.rules or self.blocked)

    def update_blocked(self) -> list[str]:
        """Update the blocked tasks (of gangs without enough slots); return those whose state has changed."""
        if not self._stale:
            return []
        self._stale = False
        before, self.blocked = self.blocked, {}
        for key, rule in self.rules.items():
            if isinstance(rule, Gang) and len(self._members[key]) > self._most(rule.key)[0]:
                self.blocked |= self._members[key]
        return [task for task in (*before, *self.blocked) if (task in before) != (task in self.blocked)]

    def blocked_reason(self, task: str) -> str | None:
        """Why a task of a gang without enough slots waits."""
        if task not in self.blocked:
            return None
        team = next(team for team in self.task_rules.teams if team.whole and task in team.tasks)
        most, tag = self._most(self.rules["gang", team.name].key)
        return f"{team.needs}; the machines have at most {most}{f' on {tag}' if tag else ''}"

    def _most(self, key: str | None) -> tuple[int, str]:
        """Return the largest number of slots in one domain, and its tag."""
        if key not in self._most_slots:
            slots: Counter[str] = Counter()
            tags = dict.fromkeys(self._machines, "") if key is None else self._tags_of(key)
            for machine, tag in tags.items():
                slots[tag] += self._machines[machine].slots
            self._most_slots[key] = max(((count, tag) for tag, count in slots.items()), default=(0, ""))
        return self._most_slots[key]

    def _tags_of(self, key: str) -> dict[str, str]:
        if key not in self._tags:
            self._tags[key] = domain_tags(self._machines.values(), key)
        return self._tags[key]

    # Judging ---------------------------------------------------------------------------------------------------
    def keeps(self, changes: Changes, on: Mapping[str, Iterable[str]]) -> bool:
        """Return whether a schedule satisfies all rules and capacities; ``on``: tasks by machine before ``changes``."""
        next_of = ((t, changes[t][1] if t in changes else self._tasks[t].machine) for t in self._rules_of)
        if any(self.task_rules.broken({task: at for task, at in next_of if at is not None})):
            return False
        return not self.resources or not self._overfull(changes, on)

    def _overfull(self, changes: Changes, on: Mapping[str, Iterable[str]]) -> bool:
        comes: dict[str, list[str]] = {}
        for task, (_, machine) in changes.items():
            if machine is not None:
                comes.setdefault(machine, []).append(task)
        for machine in comes.keys() | self.unchecked.keys():
            stays = [task for task in on.get(machine, ()) if task not in changes]
            demands = [self._tasks[task].task.demands for task in (*stays, *comes.get(machine, ()))]
            capacity = self._machines[machine].capacity
            for name in self.resources:
                asked = sum((_exact(each[name]) for each in demands if name in each), Fraction(0))
                if asked > _exact(capacity.get(name, 0)):
                    return True
        return False


def _kind(rule: GroupRule) -> str:
    return rule.says.partition(" ")[0]
