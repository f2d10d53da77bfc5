"""Why a task waits that rules tie to others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from flowlex.models.flow.arc_costs import Rules
from flowlex.models.flow.goals.base import ClusterView, TaskView
from flowlex.models.flow.task_rules import Limit, TaskRules, Team

__all__ = ["RuleReasons"]


@dataclass(frozen=True)
class RuleReasons:
    """The schedule in which tasks wait, and what is asked of it.

    Attributes
    ----------
    shares
        (least, most) running tasks by job.
    """

    task_rules: TaskRules
    rules: Rules
    cluster: ClusterView
    views: Mapping[str, TaskView]
    machine_of: Mapping[str, str]
    shares: Mapping[str, tuple[int, int]]

    def reason(self, task: str) -> str | None:
        """Which rule keeps a waiting task out; None when no rule does."""
        if task not in self.task_rules.tasks:
            return None
        team = next((team for team in self.task_rules.teams if task in team.tasks), None)
        found = None if team is None else self._gang(team) if team.whole else self._affinity(team)
        return found or self._spread(task)

    def _gang(self, team: Team) -> str:
        needs = f"{len(team.tasks)} places at once{self._one(team)}"
        says = f"gang {team.name!r} runs whole or not at all and needs {needs}"
        for task in team.tasks:
            unmet = self.rules.unmet(self.views[task], self.cluster)
            if unmet is not None:
                return f"gang {team.name!r} runs whole or not at all, and for task {task!r} {unmet}"
        wanted = Counter(self.views[task].job for task in team.tasks)
        for job, count in wanted.items():
            most = self.shares[job][1]
            if self.rules.shares is not None and count > most:
                return f"{says}, {count} of them of job {job!r}, whose share is {most}"
        held = Counter(self.machine_of.values())
        best = max(((self._slots(team, tag), tag) for tag in team.domains or ("",)), default=(0, ""))
        if best[0] < len(team.tasks):
            return f"{says}; the machines that it may take have {best[0]}{self._on(best[1])}, the most there is"
        free = max((self._slots(team, tag, held), tag) for tag in team.domains or ("",))
        return f"{says}; {free[0]} are free{self._on(free[1])}, and tasks worth as much or more hold the others"

    @staticmethod
    def _one(team: Team) -> str:
        return "" if not team.domains else f" within one {'rack' if team.domains[0].startswith('rack:') else 'label'}"

    @staticmethod
    def _on(tag: str) -> str:
        return f" on {tag}" if tag else ""

    def _slots(self, team: Team, tag: str, held: Mapping[str, int] | None = None) -> int:
        """Slots in a domain, less those held, that any task of a team may take."""
        reach = {m for task in team.tasks for m in self._machines(task) if not tag or tag in self.cluster.tags[m]}
        return sum(self.cluster.machines[m].slots - (held or {}).get(m, 0) for m in reach)

    def _machines(self, task: str) -> set[str]:
        """Machines that placement and domains leave to a task."""
        inside = self.task_rules.inside.get(task)
        found = self.rules.everywhere(self.views[task], self.cluster)
        return {m for m in found if self.cluster.machines[m].slots and (inside is None or m in inside)}

    def _affinity(self, team: Team) -> str | None:
        there = [self.machine_of[task] for task in team.tasks if task in self.machine_of]
        tag = next((tag for tag in team.domains if there and tag in self.cluster.tags[there[0]]), None)
        if tag is None:
            return None
        return f"affinity {team.name!r} keeps it with the others on {tag}, where no slot is worth more to it"

    def _spread(self, task: str) -> str | None:
        mine = [limit for limit in self.task_rules.limits if task in limit.tasks]
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
