"""What leaves the network: rules that tie tasks together, and capacities of machines.

The network knows neither, so its optimum is a relaxation: where it breaks none of them, no schedule that keeps them is
better. Looking costs a pass over the tied tasks and over the machines that something new goes to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache

from flowlex.instances.exact_rationals import rational
from flowlex.instances.flow import FlowJob, Machine
from flowlex.instances.group_rules import RACK, Affinity, Gang, TaskSpread, check_rules, domain_tags, members_of
from flowlex.models.flow.live.task_records import EventError, LiveJob, LiveTask

__all__ = ["Changes", "SideConstraints", "TieRule"]

TieRule = Gang | TaskSpread | Affinity
#: Machine of each task that changes: (now, next).
Changes = Mapping[str, tuple[str | None, str | None]]
_MOST_RULES = 2**16
_exact = lru_cache(maxsize=4096)(rational)


class SideConstraints:
    """Rules and capacities in force; ``machines``, ``jobs`` and ``tasks`` are those of the living cluster."""

    def __init__(
        self, machines: Mapping[str, Machine], jobs: Mapping[str, LiveJob], tasks: Mapping[str, LiveTask]
    ) -> None:
        self._machines, self._jobs, self._tasks = machines, jobs, tasks
        self.rules: dict[tuple[str, str], TieRule] = {}
        self._members: dict[tuple[str, str], dict[str, None]] = {}
        self._rules_of: dict[str, dict[tuple[str, str], None]] = {}
        self._stale = False  # whether other tasks may be blocked
        self._tags: dict[str, dict[str, str]] = {}  # of domains by machine and key, until a machine comes or goes
        self._most_slots: dict[str | None, tuple[int, str]] = {}  # in one domain, by key
        self.blocked: dict[str, None] = {}  # tasks of gangs that no domain has slots for: they wait whatever happens
        self._resources: Counter[str] = Counter()  # machines that state each resource
        self.unchecked: dict[str, None] = {}  # machines that may hold more than they have

    def __bool__(self) -> bool:
        return bool(self.rules or self._resources)

    @property
    def capacities(self) -> bool:
        """Whether machines have capacities."""
        return bool(self._resources)

    # Rules -----------------------------------------------------------------------------------------------------
    def tie(self, rules: Iterable[TieRule], *, known: bool = False) -> None:
        """Add rules, all or none of them; ``known``: they were in force before, so nothing is checked.

        Raises
        ------
        EventError
            A rule names what is not here, or contradicts another.
        """
        rules = tuple(rules)
        if rules and not known:
            self._refuse_beside_limits(rules[0])
        new = [(_kind(rule), rule.name) for rule in rules]
        if len(self.rules) + len(new) > _MOST_RULES:
            raise EventError(f"there would be more than {_MOST_RULES} rules; untie some first")
        twice = next((key for k, key in enumerate(new) if key in self.rules or key in new[:k]), None)
        if twice is not None:
            raise EventError(f"{twice[0]} {twice[1]!r} is here already; untie it first, or give another name")
        tasks_of = {name: list(self._jobs[name].tasks) for rule in rules for name in rule.jobs if name in self._jobs}
        members = {key: members_of(rule, tasks_of) for key, rule in zip(new, rules, strict=True)}
        if not known:
            teams = self._teams(t for those in members.values() for t in those)
            try:
                check_rules(rules, tasks_of, self._tasks, self._machines.values(), teams)
            except ValueError as error:
                raise EventError(str(error)) from error
        self._stale |= bool(rules)
        for key, rule in zip(new, rules, strict=True):
            self.rules[key], self._members[key] = rule, dict.fromkeys(members[key])
            for task in members[key]:
                self._rules_of.setdefault(task, {})[key] = None

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
        self._stale = True
        del self.rules[kind, name]
        for task in self._members.pop((kind, name)):
            self._loosen(task, (kind, name))

    def forget(self, task: str, job: str) -> None:
        """A task ends: rules keep what is left of their tasks, and go with the last of them."""
        self.blocked.pop(task, None)
        for key in list(self._rules_of.get(task, ())):
            self._stale = True
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
        """Raise `EventError` where a machine is in two domains of one key."""
        for key in {rule.key for rule in self.rules.values()} - {None}:
            try:
                domain_tags((machine,), str(key))
            except ValueError as error:
                raise EventError(str(error)) from error

    def put_machine(self, machine: Machine) -> None:
        """A machine comes; what counted for nothing before may be a resource now."""
        self._tags.clear()
        fresh = machine.capacity.keys() - self._resources.keys()
        self._resources.update(machine.capacity.keys())
        self.unchecked |= dict.fromkeys(self._machines) if fresh else {machine.name: None}

    def take_machine(self, machine: Machine) -> None:
        """A machine goes."""
        self._tags.clear()
        self.unchecked.pop(machine.name, None)
        self._resources -= Counter(machine.capacity.keys())

    def refuse_job(self, job: FlowJob) -> None:
        """Raise `EventError` where a job limits preemptions beside rules across tasks."""
        rule = next(iter(self.rules.values()), None)
        if job.preemptions_per_hour is not None and rule is not None:
            raise _clash(job, rule)

    def _refuse_beside_limits(self, rule: TieRule) -> None:
        """Raise `EventError` where a job limits preemptions: what may not stop could break the rule."""
        for live in self._jobs.values():
            if live.job.preemptions_per_hour is not None:
                raise _clash(live.job, rule)

    # Gangs without room ----------------------------------------------------------------------------------------
    def changed_slots(self) -> None:
        """Machines came, went, or have other slots."""
        self._most_slots.clear()
        self._stale = bool(self.rules or self.blocked)

    def update_blocked(self) -> list[str]:
        """Find the tasks that wait whatever happens; returns those that are among them, or were, unlike before."""
        if not self._stale:
            return []
        self._stale = False
        before, self.blocked = self.blocked, {}
        for key, rule in self.rules.items():
            if isinstance(rule, Gang) and len(self._members[key]) > self._most(rule.key)[0]:
                self.blocked |= self._members[key]
        return [task for task in (*before, *self.blocked) if (task in before) != (task in self.blocked)]

    def blocked_reason(self, task: str) -> str | None:
        """Why a task waits whatever happens."""
        if task not in self.blocked:
            return None
        key = next(key for key in self._rules_of[task] if key[0] == "gang")
        within = self.rules[key].key
        most, tag = self._most(within)
        one = "" if within is None else f" within one {'rack' if within == RACK else 'label'}"
        there = f"the machines have {most}{f' on {tag}' if tag else ''}, the most there is"
        says, count = self.rules[key].says, len(self._members[key])
        return f"{says} runs whole or not at all and needs {count} places at once{one}; {there}"

    def missing_domain_reason(self, task: str) -> str | None:
        """Why a task waits whose rule is about places that are gone."""
        for rule in (self.rules[each] for each in self._rules_of.get(task, ())):
            if rule.key is not None and self._machines and not self._tags_of(rule.key):
                return f"{rule.says} is about {rule.key!r}, and no machine has a label '{rule.key}=...' any more"
        return None

    def _most(self, key: str | None) -> tuple[int, str]:
        """Most slots in one domain, and its tag."""
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
    def breach(self, changes: Changes, on: Mapping[str, Iterable[str]]) -> str | None:
        """What a schedule would break; None where it keeps all. ``on``: tasks by machine before the changes."""
        for key, rule in self.rules.items():
            places = [self._next(task, changes) for task in self._members[key]]
            if not self._holds(rule, [place for place in places if place is not None], len(places)):
                return rule.says
        return self._overfull(changes, on) if self._resources else None

    def settled(self) -> None:
        """A schedule that keeps everything is in force."""
        self.unchecked.clear()

    def _next(self, task: str, changes: Changes) -> str | None:
        return changes[task][1] if task in changes else self._tasks[task].machine

    def _holds(self, rule: TieRule, used: list[str], wanted: int) -> bool:
        if isinstance(rule, Gang) and 0 < len(used) < wanted:
            return False
        if rule.key is None:
            return True
        tags = self._tags_of(rule.key)
        found = Counter(tags.get(machine) for machine in used)
        if None in found:
            return False
        if not isinstance(rule, TaskSpread):
            return len(found) <= 1
        return all((limit := rule.limit(str(tag))) is None or count <= limit for tag, count in found.items())

    def _overfull(self, changes: Changes, on: Mapping[str, Iterable[str]]) -> str | None:
        comes: dict[str, list[str]] = {}
        for task, (_, machine) in changes.items():
            if machine is not None:
                comes.setdefault(machine, []).append(task)
        for machine in comes.keys() | self.unchecked.keys():
            stays = [task for task in on.get(machine, ()) if task not in changes]
            demands = [self._tasks[task].task.demands for task in (*stays, *comes.get(machine, ()))]
            capacity = self._machines[machine].capacity
            for name in self._resources:
                asked = sum((_exact(each[name]) for each in demands if name in each), Fraction(0))
                if asked > _exact(capacity.get(name, 0)):
                    return f"{name} of machine {machine!r}"
        return None


def _kind(rule: TieRule) -> str:
    return rule.says.partition(" ")[0]


def _clash(job: FlowJob, rule: TieRule) -> EventError:
    return EventError(
        f"job {job.name!r} limits preemptions, which {rule.says} does not go with; leave preemptions_per_hour out "
        "(preempt_cost may stay)"
    )
