"""The integer program of tasks that are tied together: the network, a column for each choice, and a row for each rule.

The choices are whether a gang runs, which domain a gang or affinity keeps to, and in which cell a task runs. Once they
are made, what is left is a network again, to be solved in exact integers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from flowlex.formulations.arrays import Floats, Integers
from flowlex.formulations.expression import Expression, Variables
from flowlex.formulations.flow_network import FlowNetwork
from flowlex.formulations.linear_program import LinearProgram
from flowlex.models.flow.exclusion_groups import Block
from flowlex.models.flow.network import ScheduleNetwork
from flowlex.models.flow.task_rules.gangs_and_spreads import Bonds, Cell
from flowlex.models.mathematics import Equation

__all__ = ["BOND_EQUATIONS", "BondProgram", "Choice", "bond_program"]


def _equation(name: str, latex: str, says: str, when: str) -> Equation:
    return Equation(name, latex, says, when=when, exists=lambda model: name in getattr(model.way, "rows", ()))


#: Rows that tie tasks together; duals of integer programs are none.
BOND_EQUATIONS: tuple[Equation, ...] = (
    _equation(
        "cell", r"\sum_{a \in c} x_{ta} = v_{tc}", "the cell in which a task runs", "tasks with rules over domains"
    ),
    _equation("gang", r"y_g + z_t = 1 \quad (t \in g)", "all of a gang run, or all wait", "gangs"),
    _equation("gang_within", r"\sum_{c \in d} v_{tc} = u_{gd}", "a gang runs in one domain", "gangs within domains"),
    _equation("gang_within_one", r"\sum_d u_{gd} = y_g", "a gang that runs has one domain", "gangs within domains"),
    _equation("within", r"\sum_{c \in d} v_{tc} \le u_{fd}", "tasks with affinity run in its domain", "affinities"),
    _equation("within_one", r"\sum_d u_{fd} \le 1", "an affinity has one domain", "affinities"),
    _equation("spread", r"\sum_{t \in s} \sum_{c \in d} v_{tc} \le b_{sd}", "tasks of a spread by domain", "spreads"),
    _equation("stage", r"f_k(x) \le f_k^*", "earlier stages keep their optimum", "rules that tie tasks"),
)


@dataclass(frozen=True)
class Choice:
    """What a binary column says: whether ``subject`` (a gang, an affinity or a task) runs on machines with ``tags``."""

    kind: str
    subject: str
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class BondProgram:
    """The program with what its columns mean.

    Attributes
    ----------
    program
        Its first columns are the arcs of the network. It has no objective yet.
    choices
        What each binary column says, by column.
    limits
        (spread, tag) of each row ``spread``.
    arcs, waits
        Arcs of each task by cell (all under None where the task has no cells), and its arc of waiting.
    gangs
        Tasks and column of each gang.
    """

    program: LinearProgram
    choices: Mapping[int, Choice]
    limits: tuple[tuple[str, str], ...]
    arcs: Mapping[str, Mapping[Cell | None, list[int]]]
    waits: Mapping[str, int]
    gangs: tuple[tuple[tuple[str, ...], int], ...]
    cells: Mapping[tuple[str, Cell], int]

    def chosen(self, network: FlowNetwork, values: Floats) -> FlowNetwork:
        """The network that is left once the choices are made as in ``values``."""
        upper = network.upper.copy()
        runs: dict[str, bool] = {}
        for (task, cell), column in self.cells.items():
            if values[column] > 0.5:
                runs[task] = True
            else:
                runs.setdefault(task, False)
                upper[self.arcs[task].get(cell, [])] = 0
        runs |= {task: bool(values[column] > 0.5) for tasks, column in self.gangs for task in tasks}
        for task, goes in runs.items():
            if goes:
                upper[self.waits[task]] = 0
            else:
                upper[[arc for those in self.arcs[task].values() for arc in those]] = 0
        return replace(network, upper=upper)


def bond_program(schedule: ScheduleNetwork, bonds: Bonds, tasks: list[str], machines: list[str]) -> BondProgram:
    """Network and rules as one integer program; ``tasks`` and ``machines`` are names by index."""
    network = schedule.network
    lp = network.to_linear_program()
    arcs = _arcs_of(schedule, bonds, tasks, machines)
    start = network.arc_blocks["waits"].start
    waits = {task: start + index for index, task in enumerate(tasks) if task in bonds.tasks}
    pairs = [(task, cell) for task, cells in bonds.cells.items() for cell in cells]
    cells = dict(zip(pairs, _binary(lp, "cell", pairs), strict=True))
    held = [(k, arc) for k, (task, cell) in enumerate(pairs) for arc in arcs[task].get(cell, ())]
    if pairs:
        inside = _sum(held, len(pairs))
        lp.constrain("cell", inside - Variables(np.array(list(cells.values()))).expression(), "==", 0, labels=pairs)
    choices = {column: Choice("task", task, tuple(sorted(cell))) for (task, cell), column in cells.items()}
    gangs = [team for team in bonds.teams if team.whole]
    runs = _binary(lp, "gang", [team.name for team in gangs])
    choices |= {column: Choice("gang", team.name) for team, column in zip(gangs, runs, strict=True)}
    rows = [(task, column) for team, column in zip(gangs, runs, strict=True) for task in team.tasks]
    if rows:
        both = [(k, arc) for k, (task, column) in enumerate(rows) for arc in (waits[task], column)]
        lp.constrain("gang", _sum(both, len(rows)), "==", 1, labels=[task for task, _ in rows])
    choices |= _domains(lp, bonds, cells, dict(zip([team.name for team in gangs], runs, strict=True)))
    limits = [each for each in bonds.limits if each.most < len(each.tasks)]
    if limits:
        used = [
            (k, cells[task, cell])
            for k, limit in enumerate(limits)
            for task in limit.tasks
            for cell in bonds.cells[task]
            if limit.tag in cell
        ]
        most = [limit.most for limit in limits]
        names = [(limit.spread, limit.tag) for limit in limits]
        lp.constrain("spread", _sum(used, len(limits)), "<=", most, labels=names)
    known = tuple((limit.spread, limit.tag) for limit in limits)
    whole = tuple((team.tasks, column) for team, column in zip(gangs, runs, strict=True))
    return BondProgram(lp, choices, known, arcs, waits, whole, cells)


def _domains(
    lp: LinearProgram, bonds: Bonds, cells: Mapping[tuple[str, Cell], int], gangs: Mapping[str, int]
) -> dict[int, Choice]:
    """Columns and rows of the domains that teams keep to."""
    teams = [team for team in bonds.teams if team.domains]
    pairs = [(team, tag) for team in teams for tag in team.domains]
    if not pairs:
        return {}
    columns = _binary(lp, "domain", [(team.kind, team.name, tag) for team, tag in pairs])
    column_of = dict(zip([(team.kind, team.name, tag) for team, tag in pairs], columns, strict=True))
    inside: dict[tuple[str, str], list[int]] = defaultdict(list)
    for (task, cell), column in cells.items():
        for tag in cell:
            inside[task, tag].append(column)
    for whole, name in ((True, "gang_within"), (False, "within")):
        rows = [(team, tag, task) for team, tag in pairs if team.whole == whole for task in team.tasks]
        if rows:
            of = [column_of[team.kind, team.name, tag] for team, tag, _ in rows]
            held = [(k, column) for k, (_, tag, task) in enumerate(rows) for column in inside[task, tag]]
            labels = [(tag, task) for _, tag, task in rows]
            sums = _sum(held, len(rows)) - _sum(list(enumerate(of)), len(rows))
            lp.constrain(name, sums, "==" if whole else "<=", 0, labels=labels)
        mine = [team for team in teams if team.whole == whole]
        if mine:
            used = [(k, column_of[team.kind, team.name, tag]) for k, team in enumerate(mine) for tag in team.domains]
            total = _sum(used, len(mine))
            if whole:
                total = total - _sum([(k, gangs[team.name]) for k, team in enumerate(mine)], len(mine))
            label = [team.name for team in mine]
            lp.constrain(f"{name}_one", total, "==" if whole else "<=", 0 if whole else 1, labels=label)
    return {column: Choice(team.kind, team.name, (tag,)) for (team, tag), column in zip(pairs, columns, strict=True)}


def _arcs_of(
    schedule: ScheduleNetwork, bonds: Bonds, tasks: list[str], machines: list[str]
) -> dict[str, dict[Cell | None, list[int]]]:
    """Arcs of the tied tasks by cell."""
    found: dict[str, dict[Cell | None, list[int]]] = {task: defaultdict(list) for task in bonds.tasks}
    for block, pairs in (("runs", schedule.runs), ("via", schedule.via)):
        start = schedule.network.arc_blocks[block].start
        for arc, (t, end) in enumerate(pairs.tolist(), start):
            task = tasks[t]
            if task not in found:
                continue
            target = machines[end] if block == "runs" else schedule.groups[end]
            assert not isinstance(target, Block)  # blocks are entered from groups only
            cell = bonds.cell(task, target) if task in bonds.cells else None
            found[task][cell].append(arc)
    return found


def _binary(lp: LinearProgram, name: str, labels: Sequence[Any]) -> list[int]:
    """Columns of binary variables."""
    if not labels:
        return []
    found: list[int] = lp.variables(name, len(labels), upper=1, integer=True, labels=labels).column.tolist()
    return found


def _sum(terms: list[tuple[int, int]], rows: int) -> Expression:
    """Sums of columns by row, from pairs (row, column)."""
    pairs: Integers = np.array(terms, np.int64).reshape(-1, 2)
    return Expression(pairs[:, 0], pairs[:, 1], np.ones(len(pairs)), np.zeros(rows))
