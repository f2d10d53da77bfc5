"""Reasons why tasks wait."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from fractions import Fraction
from functools import cached_property
from math import inf

from flowlex.instances.exact_rationals import rational
from flowlex.instances.input_errors import counted
from flowlex.models.flow.arc_costs import Rules
from flowlex.models.flow.goal_interface import ClusterView, TaskView
from flowlex.models.flow.priced_instance import PricedInstance
from flowlex.models.flow.task_rules import Limit, Team

CHANGED = "no slot that the changed model leaves it is worth more to it than to others, or than waiting"
TOO_LARGE = "no machine that it may use has as much of everything it asks for"
CAPACITY_USED = "no machine that it may use has as much left of everything it asks for"
SHARE_USED = "the share of its job is used up"
IDLE = "stay idle, as rules or capacities keep other jobs from their shares, which are not lent then"
WORTH_MORE = "no slot it could take is worth more to it than to the tasks that hold them, or than waiting"


def plain_reason(
    rules: Rules, task: TaskView, cluster: ClusterView, beside: Collection[str], *, share_used: bool
) -> str:
    """Reason of waiting without rules across tasks; ``beside``: machines with tasks of its different-machines rule."""
    return rules.unmet(task, cluster, beside) or (SHARE_USED if share_used else WORTH_MORE)


def waiting_reasons(priced: PricedInstance, machine_of: Mapping[str, str]) -> dict[str, str]:
    """Reason by waiting task, from the machine by running task."""
    if len(machine_of) == len(priced.views):
        return {}
    found = _Schedule(priced, machine_of)
    return {view.task.name: found.reason(view) for view in priced.views if view.task.name not in machine_of}


class _Schedule:
    """A schedule with waiting tasks."""

    def __init__(self, priced: PricedInstance, machine_of: Mapping[str, str]) -> None:
        self.priced, self.machine_of, self.cluster = priced, machine_of, priced.cluster
        self.number = {view.task.name: t for t, view in enumerate(priced.views)}
        self.held, self.running = Counter(machine_of.values()), Counter[str]()  # running tasks by machine, by job
        self.apart = defaultdict[str, set[str]](set)  # machines by different-machines rule of a task that runs there
        for task, machine in machine_of.items():
            view = self.view(task)
            self.running[view.job] += 1
            self.apart[view.apart] |= {machine} if view.apart else set()
        most = priced.shares[:, 1].tolist() if priced.rules.shares is not None else ()
        self.most = dict(zip((job.name for job in priced.instance.jobs), most, strict=False))  # by job, its share

    def view(self, task: str) -> TaskView:
        """A task as goals see it."""
        return self.priced.views[self.number[task]]

    def reason(self, view: TaskView) -> str:
        """Why a task waits."""
        name = view.task.name
        if found := self.priced.task_rules.missing_domains.get(name) or self._rule(name):
            return found
        used = self.running[view.job] >= self.most.get(view.job, inf)
        found = plain_reason(self.priced.rules, view, self.cluster, self.apart[view.apart], share_used=used)
        if found == SHARE_USED and (idle := self._idle(name)):
            return f"{SHARE_USED}; {counted(idle, 'slot')} that it could take {IDLE}"
        return self._capacity(view) if found == WORTH_MORE and self.priced.instance.resources else found

    def _idle(self, task: str) -> int:
        """Free slots where a task may run: they belong to shares that other jobs cannot use."""
        return sum(self.cluster.machines[m].slots - self.held[m] for m in self._machines(task))

    @cached_property
    def _free(self) -> dict[tuple[str, str], Fraction]:
        """Remaining capacity by (machine, resource)."""
        instance = self.priced.instance
        free = {(m.name, r): rational(m.capacity.get(r, 0)) for m in instance.machines for r in instance.resources}
        for task, machine in self.machine_of.items():
            for r in instance.resources:
                free[machine, r] -= rational(self.view(task).task.demands.get(r, 0))
        return free

    def _capacity(self, view: TaskView) -> str:
        """Reason of a waiting task with demands: capacity, remaining capacity, or cost."""
        may = [self.cluster.machines[name] for name in self.priced.costs(self.number[view.task.name])]
        asked = {r: rational(view.task.demands.get(r, 0)) for r in self.priced.instance.resources}
        if not any(all(a <= rational(m.capacity.get(r, 0)) for r, a in asked.items()) for m in may):
            return TOO_LARGE
        left = any(all(a <= self._free[m.name, r] for r, a in asked.items()) for m in may)
        return WORTH_MORE if left else CAPACITY_USED

    def _rule(self, task: str) -> str | None:
        """Reason from a rule that prevents a waiting task from running; None if no rule does."""
        if task not in self.priced.task_rules.tasks:
            return None
        team = next((team for team in self.priced.task_rules.teams if task in team.tasks), None)
        found = None if team is None else self._gang(team) if team.whole else self._affinity(team)
        return found or self._spread(task)

    def _gang(self, team: Team) -> str:
        for task in team.tasks:
            unmet = self.priced.rules.unmet(self.view(task), self.cluster)
            if unmet is not None:
                return f"gang {team.name!r} runs completely or not at all, and for task {task!r} {unmet}"
        wanted = Counter(self.view(task).job for task in team.tasks)
        for job, count in wanted.items():
            if count > (most := self.most.get(job, inf)):
                return f"{team.needs}, {count} of them of job {job!r}, whose share is {most}"
        best = max(((self._slots(team, tag), tag) for tag in team.domains or ("",)), default=(0, ""))
        if best[0] < len(team.tasks):
            return f"{team.needs}; the machines that it may take have at most {best[0]}{self._on(best[1])}"
        free = max((self._slots(team, tag, self.held), tag) for tag in team.domains or ("",))
        return f"{team.needs}; {free[0]} are free{self._on(free[1])}, and tasks worth as much or more hold the others"

    @staticmethod
    def _on(tag: str) -> str:
        return f" on {tag}" if tag else ""

    def _slots(self, team: Team, tag: str, held: Mapping[str, int] | None = None) -> int:
        """Slots in a domain where any task of a team may run, minus those in use (``held``)."""
        reach = {m for task in team.tasks for m in self._machines(task) if not tag or tag in self.cluster.tags[m]}
        return sum(self.cluster.machines[m].slots - (held or {}).get(m, 0) for m in reach)

    def _machines(self, task: str) -> set[str]:
        """Machines with slots where placement and domains allow a task."""
        inside = self.priced.task_rules.inside.get(task)
        found = self.priced.costs(self.number[task])
        return {m for m in found if self.cluster.machines[m].slots and (inside is None or m in inside)}

    def _affinity(self, team: Team) -> str | None:
        there = [self.machine_of[task] for task in team.tasks if task in self.machine_of]
        tag = next((tag for tag in team.domains if there and tag in self.cluster.tags[there[0]]), None)
        if tag is None:
            return None
        return f"affinity {team.name!r} keeps it with the others on {tag}, where no slot is worth more to it"

    def _spread(self, task: str) -> str | None:
        mine = [limit for limit in self.priced.task_rules.limits if task in limit.tasks]
        full = {limit.tag: limit for limit in mine if self._used(limit) >= limit.most}
        closed: dict[str, Limit] = {}
        for machine in self._machines(task):
            limit = next((full[tag] for tag in sorted(self.cluster.tags[machine]) if tag in full), None)
            if limit is None:
                return None
            closed[limit.tag] = limit
        if not closed:
            return None
        said = ", ".join(f"{limit.most} on {tag}" for tag, limit in sorted(closed.items())[:3])
        return f"spread {next(iter(closed.values())).spread!r} has its limit wherever it could run ({said})"

    def _used(self, limit: Limit) -> int:
        there = (self.machine_of.get(task) for task in limit.tasks)
        return sum(machine is not None and limit.tag in self.cluster.tags[machine] for machine in there)
