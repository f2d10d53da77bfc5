"""Changed models with rules on few transfers: solve these by the statement, and all others by the fast method.

Rules only restrict schedules, so the optimum of the unchanged model stays optimal if it satisfies them. Otherwise the
transfers named by rules, with all transfers of the same loads, are solved by the statement, and the others by the fast
method, each without the other. Both results are lower bounds, so a schedule with the lateness and loads of both is
optimal. It is found if both fit the ports together, or if the concerned transfers have an equally good schedule on the
remaining capacity. Otherwise the whole statement is solved.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.program_arrays import Floats, Integers
from flowlex.formulations.solver_outcome import Outcome, Status
from flowlex.instances.model_changes import Bounds, Changes, Constraint, Fix, Term
from flowlex.models.jit.interval_schedules import Blocks, overfull
from flowlex.models.jit.load_levels import find_plan
from flowlex.models.jit.plan_search import Plan, Search
from flowlex.models.jit.reference_formulation import rate_cells
from flowlex.models.jit.solution import by_slot
from flowlex.models.jit.transfer_slot_grid import Grid
from flowlex.models.statement.rows_and_objectives import Statement
from flowlex.models.statement.solve_statement import StatementRun, run_statement
from flowlex.validation.certificates.jit import SchedulePart

#: Levels of time, which are ignored when the transfers concerned by a rule are determined.
_MOMENTS = frozenset({"slot", "time", "step"})


@dataclass(frozen=True, eq=False)
class RuledRun(StatementRun):
    """A plan of all transfers, and the proof of those concerned by rules (empty: covered by the plan's proof)."""

    plan: Plan


def concerned(grid: Grid, statement: Statement, changes: Changes, search: Search) -> Integers | None:
    """Transfers named by rules, and those of the same loads; None if the whole statement must be solved."""
    named = np.zeros(grid.count, np.bool_)
    for change in changes:
        terms = list(_terms(change))
        if not terms or any(term.variable not in ("rate", "level") for term in terms):
            return None
        for term in terms:
            index = statement.columns[term.variable]
            chosen = index.select({level: wanted for level, wanted in term.where.items() if level not in _MOMENTS})
            if term.variable == "rate":
                named[np.unique(index.codes["transfer"][chosen])] = True
            else:
                named |= _counted(grid, search, statement, np.unique(index.codes[index.keys[0]][chosen]))
    while True:
        held = [np.isin(group, group[named]) for group in grid.groups(search.load)]
        wider = named | np.logical_or.reduce(held)
        if (wider == named).all():
            break
        named = wider
    return np.flatnonzero(named) if 0 < 2 * named.sum() <= grid.count else None


def _terms(change: object) -> Iterator[Term]:
    """Terms of a rule; none for changes that do not merely restrict schedules."""
    if isinstance(change, Constraint):
        yield from change.terms
    elif isinstance(change, Fix):
        yield change.variables
    elif isinstance(change, Bounds) and (change.lower or 0) >= 0:
        tighter = change.upper is not None and change.upper <= 1
        yield from (change.variables,) if change.variables.variable == "rate" or tighter else ()


def _counted(grid: Grid, search: Search, statement: Statement, loads: Integers) -> NDArray[np.bool_]:
    """(F,) whether a transfer counts towards some loads, given by codes of their labels."""
    groups, count = grid.groups(search.load), len(grid.out_units)
    if search.load == "receiver":
        groups = (groups[0] + count,)
    return np.asarray(np.logical_or.reduce([np.isin(group, loads) for group in groups]))


def solve_ruled(grid: Grid, members: Integers, statement: Statement, search: Search, main: str) -> StatementRun | None:
    """Plan all transfers; ``statement`` is the changed one of the ``members`` alone. None if this method fails.

    If the members alone have no schedule, their run is returned; its proof holds for all transfers.
    """
    plan = find_plan(grid, search)
    if plan.status is Status.INFEASIBLE:
        return None
    if plan.status is Status.OPTIMAL and plan.blocks.whole:
        steady = _steady(grid, plan.blocks)
        if _keeps(grid, members, statement, steady):
            return _run(statement, replace(plan, blocks=steady), {}, "the optimum without rules keeps them")
    others = np.setdiff1d(np.arange(grid.count), members)
    rest = find_plan(grid.only(others), search)
    if rest.status is not Status.OPTIMAL or not rest.blocks.whole:
        return None
    run = run_statement(statement, search.options, main=main)
    if run.outcome.status is not Status.OPTIMAL:
        return run if run.outcome.status is Status.INFEASIBLE and run.proof else None
    blocks = replace(rest.blocks, item=others[rest.blocks.item])
    together = _steady(grid, blocks.and_also(_blocks(grid, members, search, run)))
    if any(over.any() for over in overfull(grid, together)):
        taken = by_slot(grid, blocks.cut(grid), max(grid.horizon, int(blocks.end.max(initial=0))))
        again = run_statement(_within(statement, taken), search.options, main=main)
        if again.outcome.status is not Status.OPTIMAL or again.stages != run.stages:
            return None
        together = _steady(grid, blocks.and_also(_blocks(grid, members, search, again)))
    parts = (*rest.parts, SchedulePart(grid.transfer[members], ()))
    how = f"{run.method} of the {len(members)} transfers that rules concern, the quick method of {len(others)} others"
    return _run(statement, replace(rest, blocks=together, parts=parts), run.proof, how)


def _run(statement: Statement, plan: Plan, proof: object, how: str) -> RuledRun:
    outcome = Outcome(plan.status, "highs", message=plan.message)
    return RuledRun(statement, outcome, {}, {}, proof, how, {}, plan)  # type: ignore[arg-type]


def _steady(grid: Grid, blocks: Blocks) -> Blocks:
    """Expand a schedule to slots, so that every rule can be evaluated."""
    return blocks if blocks.steady.all() else blocks.cut(grid)


def _blocks(grid: Grid, members: Integers, search: Search, run: StatementRun) -> Blocks:
    cells = rate_cells(grid, members, elastic=search.windows == "elastic")
    return cells.blocks(np.rint(run.values["rate"]).astype(np.int64))


def _keeps(grid: Grid, members: Integers, statement: Statement, blocks: Blocks) -> bool:
    """Return whether a schedule satisfies every row of the statement of some of its transfers."""
    x = _values(members, statement, blocks.only(members))
    if x is None:
        return False
    arrays = statement.program.arrays()
    activity = arrays.matrix @ x
    rows = (activity >= arrays.row_lower).all() and (activity <= arrays.row_upper).all()
    return bool(rows and (x >= arrays.column_lower).all() and (x <= arrays.column_upper).all())


def _values(members: Integers, statement: Statement, blocks: Blocks) -> Floats | None:
    """Values of all columns at a schedule; None if it uses slots that the statement does not have."""
    program, rates = statement.program, statement.columns["rate"]
    x = np.zeros(program.column_count)
    first = np.full(int(rates.codes["transfer"].max()) + 1, -1)
    place = np.flatnonzero(np.diff(rates.codes["transfer"], prepend=-1))
    first[rates.codes["transfer"][place]] = place - rates.codes["slot"][place]
    length = np.diff(np.append(place, rates.count))
    last = dict(
        zip(rates.codes["transfer"][place].tolist(), (rates.codes["slot"][place] + length).tolist(), strict=True)
    )
    for k, begin, end, units in zip(
        *(a.tolist() for a in (blocks.item, blocks.begin, blocks.end, blocks.amount)), strict=True
    ):
        if end > last[k]:
            return None
        x[first[k] + begin : first[k] + end] += units // (end - begin)
    loads = program.constraint_blocks["largest_link"].expression.evaluate(x)
    x[program.variable_blocks["largest"].columns] = loads.max(initial=0)
    if "level" in program.variable_blocks:
        link, level = program.constraint_blocks["level_link"].expression, program.variable_blocks["level"]
        steps = link.column >= level.start
        x[link.column[steps]] = (
            loads[link.row[steps]] > statement.columns["level"].codes["step"][link.column[steps] - level.start]
        )
    return x


def _within(statement: Statement, taken: tuple[NDArray[np.int64], NDArray[np.int64]]) -> Statement:
    """Return the statement with port capacities reduced by the units that others send."""
    program = statement.program.copy()
    for name, used in zip(("egress", "ingress"), taken, strict=True):
        block, index = program.constraint_blocks[name], statement.rows[name]
        slot = np.minimum(index.codes["slot"], used.shape[1] - 1)
        less = np.where(index.codes["slot"] < used.shape[1], used[index.codes["machine"], slot], 0)
        program.constraint_blocks = program.constraint_blocks | {name: replace(block, rhs=block.rhs - less)}
    return replace(statement, program=program)
