r"""Objectives in strict order over one integer program, each proven by a tree of linear programs.

Stage k is minimised among the answers that keep the stages before it at their optima. A linear program comes first: if
its vertex is integer, it is the answer, and its duals are the proof. Else HiGHS solves the integer program, and branch
and bound over linear programs makes a tree whose leaves carry duals. Verifying this proof needs no solver: with
multipliers y of the rows and e of the earlier stages, every answer of a leaf satisfies

.. math::

    w c x \ge \sum_i y_i b_i + \sum_k e_k v_k + \sum_j \min_{l_j \le x_j \le u_j} r_j x_j,
    \quad r = w c - A'y - \sum_k e_k c_k,

with w = 1, or with w = 0 and a positive right-hand side if the leaf is empty.
Source: branch and bound with dual bounds as in VIPR (Cheung, Gleixner and Steffy, 2017).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf

import numpy as np

from flowlex.formulations.lexicographic.branch_and_bound_leaves import Branch, Leaf, StageResult, StagesOutcome
from flowlex.formulations.lexicographic.scaling import Scaling
from flowlex.formulations.lexicographic.solver_watch import Watch, interruptible
from flowlex.formulations.lexicographic.sorted_vectors import SortedVector
from flowlex.formulations.lexicographic.stage_program import WHOLE, Gains, StageProgram, close_to, raised
from flowlex.formulations.processor_clock import processor_seconds
from flowlex.formulations.program_arrays import Booleans, Floats, LinearProgramArrays
from flowlex.formulations.solver_outcome import SolveOptions, Status

#: A tree that is cut off counts if it closes this share of the gap that the root leaves.
_WORTH = 0.1
#: Integer columns within this distance of an integer are not branched on.
_DUST = 1e-10

__all__ = ["Branch", "Leaf", "StageResult", "StagesOutcome", "solve_stages"]


def solve_stages(
    arrays: LinearProgramArrays,
    costs: Sequence[Floats],
    options: SolveOptions | None = None,
    *,
    start: Floats | None = None,
    nodes: int | None = None,
    steps: Sequence[float] | None = None,
    allowance: Callable[[int, float], float] | None = None,
    cut_rounds: int = 0,
    watch: Watch | None = None,
    strong: bool = False,
    vectors: Sequence[SortedVector] = (),
) -> StagesOutcome:
    """Minimise the costs one after the other.

    Parameters
    ----------
    arrays
        The program; its own objective does not count.
    costs
        (n,) coefficients of each stage, integers where exact.
    options
        Of `SolveOptions`: ``time_limit_s`` (processor seconds), ``max_steps`` (leaves of a stage's tree), ``gap``,
        ``seed``, ``threads``.
    start
        (n,) initial answer; ignored if it breaks a bound or a row.
    nodes
        Node limit of HiGHS in one stage; 0: only linear programs are solved.
    steps
        The unit of which values of each stage are multiples, 0 for none; found from integer costs when omitted.
    allowance
        Number of a stage and its value to how much of it later stages may give up.
    cut_rounds
        In how many rounds cuts are looked for before branching.
    watch
        Is told of answers and bounds, and ends the solve on Ctrl-C; what is missing then is like after a time limit.
    strong
        Choose columns to branch on by trying some of them; within a time limit, trees may then have more leaves.
    vectors
        Stages that sort a vector, and where they stand.

    Returns
    -------
    StagesOutcome
        ``optimal`` if every stage is proven, ``feasible`` if the tree of one was cut off (later stages are still
        minimised, from the value found), ``infeasible`` or ``time_limit`` without an answer.
    """
    options = options or SolveOptions()
    started = processor_seconds()
    until = inf if options.time_limit_s is None else started + options.time_limit_s
    if steps is None:
        steps = [_step(cost, arrays.integrality) for cost in costs]
    scaling = Scaling.of(arrays, costs, steps)
    units = scaling.stages if scaling is not None else np.ones(len(costs))
    if scaling is not None:
        arrays, costs = scaling.applied(arrays, costs)
        steps = [step * unit for step, unit in zip(steps, units.tolist(), strict=True)]
        if scaling.columns is not None:  # cuts and sorted vectors are stated in the units given
            cut_rounds, vectors = 0, ()
            start = None if start is None else start / scaling.columns
    if watch is not None:
        watch.units, watch.scaled = units, None if scaling is None else scaling.values
    program = StageProgram(arrays, costs, options, until, nodes, watch, strong)
    if start is not None:
        program.begin(start)

    def given_up(stage: int, value: float) -> float:
        unit = float(units[stage]) if stage < len(units) else 1.0
        return allowance(stage, value / unit) * unit if allowance is not None else 0.0

    sorted_ = [vector for vector in vectors if vector.fits(arrays, costs)]
    with interruptible(watch):
        found = _all_stages(program, costs, steps, given_up, cut_rounds, started, sorted_)
    return found if scaling is None else scaling.undone(found)


def _all_stages(
    program: StageProgram,
    costs: Sequence[Floats],
    steps: Sequence[float],
    allowance: Callable[[int, float], float],
    cut_rounds: int,
    started: float,
    vectors: Sequence[SortedVector],
) -> StagesOutcome:
    """Minimise stage after stage."""
    arrays, watch = program.arrays, program.watch
    results: list[StageResult] = []
    message, overlooked = "", False
    for k, cost in enumerate(costs if len(costs) else [np.zeros(len(arrays.cost))]):
        step = steps[k] if len(costs) else _step(cost, arrays.integrality)
        if watch is not None:
            watch.stage = k
        empty: tuple[Leaf, ...] = ()
        result = _unsolved(program, cost)
        if result is None:
            result, empty = _stage(program, cost, step, cut_rounds, k, vectors)
        if result is None and program.ray is not None:
            return StagesOutcome(
                Status.UNBOUNDED, program.best, tuple(results), _method(program), "the objective improves without end",
                processor_seconds() - started, ray=program.ray, cuts=tuple(program.cuts),
            )  # fmt: skip
        if result is None and results and program.best is not None:  # an answer that was found is never lost
            result = StageResult(float(cost @ program.best), (), -inf, False)
        if result is None:
            status = Status.INFEASIBLE if empty or program.refuted else Status.TIME_LIMIT
            text = "no answer satisfies all rows" if status is Status.INFEASIBLE else "the limit came before any answer"
            if watch is not None and watch.interrupted and status is not Status.INFEASIBLE:
                text = "interrupted before any answer was found"
            return StagesOutcome(status, method=_method(program), message=text, empty=empty, cuts=tuple(program.cuts))
        overlooked = overlooked or program.overlooks(cost, result.value)
        given = allowance(k, result.value)
        results.append(replace(result, values=program.best) if given else result)
        if watch is not None and program.best is not None and k + 1 < len(costs):
            watch.answer(program.best)
        program.keep(cost, result.value, step, given)
        if not result.proven and not message:
            least = f", at least {result.bound:g}" if np.isfinite(result.bound) else ""
            message = f"stage {len(results)} is not proven: {result.value:g}{least}"
    best = program.best
    if best is not None and len(program.integer) < len(best):
        best = program.tidied(best)
    return StagesOutcome(
        Status.FEASIBLE if message else Status.OPTIMAL,
        best,
        tuple(results),
        _method(program),
        message,
        processor_seconds() - started,
        cuts=tuple(program.cuts),
        sure=not overlooked and all(result.proven or result.sure for result in results),
    )


def _unsolved(program: StageProgram, cost: Floats) -> StageResult | None:
    """A stage after the first for which no time is left: its value in the best answer; None: there is time."""
    if not (program.strong and program.kept and program.expired) or program.best is None:
        return None
    return StageResult(float(cost @ program.best), (), -inf, False)


def _method(program: StageProgram) -> str:
    return "integer program" if program.methods else "linear program"


def _stage(
    program: StageProgram, cost: Floats, step: float, cut_rounds: int, number: int, vectors: Sequence[SortedVector]
) -> tuple[StageResult | None, tuple[Leaf, ...]]:
    """Minimise one stage; without an answer, return leaves that prove infeasibility, or leave a ray."""
    program.minimise(cost)
    program.wake(cost)
    trivial = None
    for vector in vectors:
        direct = vector.stage(program, number, cost)
        if direct is not None:
            program.take(direct[0], cost)
            trivial = _settled(program, direct[1], False, cost, step)
    trivial = trivial or _trivial(program, cost, step)
    if trivial is None:
        root, vertex = program.relax((), cost)
        plain = root
        if program.ray is not None and program.best is None:
            program.minimise(np.zeros(len(cost)))
            ray, program.ray = program.ray, None
            nothing = np.zeros(len(cost))
            found, sure = program.whole_program(nothing)
            if found is None:
                program.refuted = sure
                leaves, open_ = _tree(program, nothing, 0.0)
                return None, () if open_ or program.best is not None else leaves
            program.best, program.ray = program.rounded(found), ray
        if program.ray is not None:
            return None, ()
        if vertex is None and not root.own:
            return None, (root,)
        done = program.reached(root.bound, cost, step)
        whole = vertex is not None and program.integral(vertex)
        if whole and vertex is not None:
            program.take(vertex, cost)
        elif (
            vertex is not None
            and program.nodes != 0
            and not done
            and np.isfinite(root.bound)
            and raised(root.bound, step) - root.bound <= close_to(root.bound, 0)
        ):
            found = program.on_face(root, cost)
            if found is not None:
                program.take(found, cost)
        trivial = _settled(program, root, whole, cost, step)
    if trivial is None:
        program.quoted, program.sure = None, False
        if program.nodes != 0:
            found, sure = program.whole_program(cost)
            program.refuted = found is None and sure
            if found is not None:
                program.take(found, cost)
        trivial = _settled(program, root, False, cost, step)
    if trivial is None and vertex is not None and cut_rounds and not program.integral(vertex):
        from flowlex.formulations.lexicographic.mixed_integer_cuts import strengthened

        root, vertex = strengthened(program, cost, cut_rounds)
        if vertex is None and not root.own:
            return None, (root,)
        whole = vertex is not None and program.integral(vertex)
        if whole and vertex is not None:
            program.take(vertex, cost)
        trivial = _settled(program, root, whole, cost, step)
        trivial = None if trivial is None else replace(trivial, root=plain)
    if trivial is None:
        leaves, open_ = _tree(program, cost, step)
        if program.best is None:
            return None, () if open_ else leaves
        value = float(cost @ program.best)
        bound = min((raised(leaf.bound, step) for leaf in leaves), default=value)
        if open_ and bound - raised(root.bound, step) <= _WORTH * (value - bound):
            leaves, bound = (root,), raised(root.bound, step)  # the tree shows hardly more, and takes long to check
        bound = min(bound, value)
        proven = value - bound <= close_to(value, program.options.gap)
        trivial = StageResult(value, leaves, bound, proven, program.quoted, program.sure, root=plain)
    return trivial, ()


def _settled(program: StageProgram, root: Leaf, whole: bool, cost: Floats, step: float) -> StageResult | None:
    """The best answer, if the relaxation has it as its vertex (``whole``) or its bound shows that none is better."""
    if program.best is None or not (whole or program.reached(root.bound, cost, step)):
        return None
    value = float(cost @ program.best)
    return StageResult(value, (root,), value, True)


def _step(cost: Floats, integrality: Booleans) -> float:
    """The unit of which stage values are integer multiples; 0 if costs or their columns may be fractional."""
    used = np.flatnonzero(cost)
    if not integrality[used].all() or (cost != np.rint(cost)).any() or not len(used):
        return 0.0 if len(used) else 1.0
    return float(np.gcd.reduce(np.abs(cost[used]).astype(np.int64)))


def _trivial(program: StageProgram, cost: Floats, step: float) -> StageResult | None:
    """The best answer so far, if the bounds of the columns alone prove it optimal."""
    if program.best is None:
        return None
    a = program.arrays
    zero = np.zeros(len(a.row_lower) + len(program.added))
    leaf = program.leaf((), zero, 1, cost, a.column_lower, a.column_upper)
    value = float(cost @ program.best)
    return StageResult(value, (leaf,), value, True) if value <= leaf.bound + close_to(value, 0) else None


def _tree(program: StageProgram, cost: Floats, step: float) -> tuple[tuple[Leaf, ...], bool]:
    """Leaves that cover all answers, found depth first, and whether one of them is still open."""
    leaves: list[Leaf] = []
    stack: list[tuple[Branch, ...]] = [()]
    cut, least = False, -inf
    gains = Gains(len(cost))
    while stack:
        leaf, vertex = program.relax(stack.pop(), cost)
        value = inf if program.best is None else float(cost @ program.best)
        least = least if leaf.branches else leaf.bound
        if program.watch is not None:
            program.watch.progress(value, least)
        if vertex is not None and raised(leaf.bound, step) < value - close_to(value if np.isfinite(value) else 0.0, 0):
            if program.integral(vertex):
                taken = program.take(vertex, cost) or not _uneven(program, vertex, 0.0)
                best = inf if program.best is None else float(cost @ program.best)
                # Within the tolerance of integers, a vertex may be better than the answer that it is rounded to.
                exact = taken and not _uneven(program, vertex)
                settled = exact or raised(leaf.bound, step) >= best - close_to(best, 0)
            else:
                settled = False
            if settled:
                pass
            elif len(leaves) + len(stack) + 2 <= program.leaves and not program.late:
                stack += [(*leaf.branches, b) for b in _branches(program, vertex, cost, leaf.bound, value, gains)]
                continue
            else:
                cut = True
        cut = cut or (vertex is None and leaf.own == 1)
        leaves.append(leaf)
    return tuple(leaves), cut


def _uneven(program: StageProgram, vertex: Floats, dust: float = _DUST) -> bool:
    """Whether an integer column differs from an integer by more than the last digits."""
    x = vertex[program.integer]
    return bool((np.abs(x - np.rint(x)) > dust).any())


def _branches(
    program: StageProgram, vertex: Floats, cost: Floats, bound: float, cutoff: float, gains: Gains
) -> tuple[Branch, Branch]:
    """The two branches of a fractional integer column; the nearer one is last, so that the stack pops it first.

    Columns with a cost in earlier stages, whose sums are fixed, go first, then those of this stage, whose branches
    raise its bound. Of these, choose the column at which the vertex gains most over the best answer, the last of ties.
    """
    x = vertex[program.integer]
    away = np.abs(x - np.rint(x))
    if program.strong and (away > WHOLE).sum() > 1:
        fractional = gains.order(program.integer[away > WHOLE], vertex)
        column = program.try_branches(fractional, vertex, bound, cutoff, gains)
        below = int(np.floor(vertex[column]))
        sides = Branch(column, True, below), Branch(column, False, below + 1)
        return sides if vertex[column] - below > 0.5 else (sides[1], sides[0])
    for each in (*(before for before, _ in program.kept), cost):
        own = each[program.integer]
        if away[own != 0].max(initial=0) > WHOLE:
            away = np.where(own != 0, away, 0.0)
            if program.best is not None:
                gain = np.sign(own) * (program.best[program.integer] - x)
                away = np.where(away > WHOLE, 2 + np.clip(gain, -1, 1), 0.0)
            break
    k = int(np.flatnonzero(away >= away.max() - WHOLE)[-1]) if away.max() > WHOLE else int(np.argmax(away))
    column, below = int(program.integer[k]), int(np.floor(x[k]))
    sides = Branch(column, True, below), Branch(column, False, below + 1)
    return sides if x[k] - below > 0.5 else (sides[1], sides[0])
