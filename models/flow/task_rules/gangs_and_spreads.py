"""What ties tasks together: gangs, affinities and spreads, and the cells of the cluster that these tell apart.

A *cell* is the machines that no rule of a task tells apart: those with one tag of each key that its rules are about,
such as ``rack:r1`` and ``zone=a``. The arcs of such a task are cut by cells, so that each leads to one cell only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from flowlex.instances.flow import FlowInstance, Machine
from flowlex.instances.flow_rules import Gang, TaskSpread, domain_tags, members_of
from flowlex.models.flow.arc_costs import only_machine
from flowlex.models.flow.goals.base import Spot

__all__ = ["Bonds", "Cell", "Limit", "Team"]

Cell = frozenset[str]


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
class Bonds:
    """The rules of an instance over several tasks.

    Attributes
    ----------
    teams, limits
        Gangs and affinities; what spreads allow in each domain.
    cells
        Cells of each task with a rule over racks or labels, by its name.
    """

    teams: tuple[Team, ...] = ()
    limits: tuple[Limit, ...] = ()
    cells: dict[str, tuple[Cell, ...]] = field(default_factory=dict)
    _cell_of: dict[tuple[str, ...], dict[str, Cell]] = field(default_factory=dict)
    _keys: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, instance: FlowInstance) -> Bonds:
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
        kept = {task: tuple(sorted(those)) for task, those in keys.items()}
        cell_of = {those: _cells(instance.machines, [tags[key] for key in those]) for those in set(kept.values())}
        distinct = {those: tuple(dict.fromkeys(cells.values())) for those, cells in cell_of.items()}
        return cls(tuple(teams), tuple(limits), {t: distinct[those] for t, those in kept.items()}, cell_of, kept)

    def __bool__(self) -> bool:
        return bool(self.tasks)

    @cached_property
    def tasks(self) -> frozenset[str]:
        """Tasks with any rule."""
        return frozenset((*(t for team in self.teams for t in team.tasks), *self.cells))

    def machines(self, task: str) -> frozenset[str] | None:
        """The machines that are in some domain of every rule of a task; None where its rules have no domains."""
        return frozenset(self._cell_of[self._keys[task]]) if task in self.cells else None

    def cell(self, task: str, target: str | Spot) -> Cell | None:
        """The cell of a machine, or of a group that was cut to one; None outside of all."""
        machine = target if isinstance(target, str) else only_machine(target)
        if machine is not None:
            return self._cell_of[self._keys[task]].get(machine)
        assert isinstance(target, Spot)
        return next((cell for cell in self.cells[task] if cell <= target.has), None)

    def cut(self, task: str, offers: dict[str | Spot, int]) -> dict[str | Spot, int]:
        """Costs of the arcs of a task, cut so that each leads into one cell."""
        if task not in self.cells:
            return offers
        found: dict[str | Spot, int] = {}
        for target, cost in offers.items():
            for piece in self._pieces(task, target):
                found[piece] = min(cost, found.get(piece, cost))
        return found

    def _pieces(self, task: str, target: str | Spot) -> Iterator[str | Spot]:
        if isinstance(target, str) or only_machine(target) is not None:
            if self.cell(task, target) is not None:
                yield target
            return
        for cell in self.cells[task]:
            both = target.both(Spot(cell, frozenset()))
            if both is not None:
                yield both


def _cells(machines: Iterable[Machine], tags: list[dict[str, str]]) -> dict[str, Cell]:
    """Cell by machine; machines without a tag of some key are in none."""
    return {m.name: frozenset(each[m.name] for each in tags) for m in machines if all(m.name in each for each in tags)}
