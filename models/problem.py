"""A scheduling problem of one's own: stated, solved to a proven optimum, saved, verified and changed.

>>> import flowlex as fx
>>> import pandas as pd
>>> p = fx.Problem("shifts")
>>> x = p.variables("x", worker=["ann", "bob"], shift=["mon", "tue", "wed"], binary=True)
>>> demand = pd.Series({"mon": 1, "tue": 1, "wed": 1}).rename_axis("shift")
>>> p.constrain("cover", x.sum(by="shift") >= demand)
>>> p.constrain("rest", x + x.shift(shift=1) <= 1)                # no two shifts in a row
>>> p.minimize("wages", (x * pd.Series({"ann": 10, "bob": 12}).rename_axis("worker")).sum())
>>> s = p.solve()
>>> s["x"].to_dict()
{('ann', 'mon'): 1, ('ann', 'wed'): 1, ('bob', 'tue'): 1}
>>> s.certificate.summary
'optimal, proven exactly: 4 checks'
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from flowlex.formulations.engines import solve_options
from flowlex.formulations.engines.highs import CoefficientError, out_of_range
from flowlex.formulations.language import mathematics, piecewise, problem_document
from flowlex.formulations.language.exact_units import common_unit, to_floats
from flowlex.formulations.language.expressions import Expression, Rule
from flowlex.formulations.language.labels import Index, StatementError, known, nearest
from flowlex.formulations.language.program_conversion import program_of
from flowlex.formulations.language.statement import Objective, RowBlock, Statement, VariableBlock, _summed, whole_or_not
from flowlex.formulations.lexicographic.branch_and_bound_leaves import StagesOutcome
from flowlex.formulations.lexicographic.scaling import Scaling, lost_in_integers
from flowlex.formulations.lexicographic.solver_watch import Watch
from flowlex.formulations.processor_clock import processor_seconds
from flowlex.formulations.program_arrays import Floats, LinearProgramArrays
from flowlex.formulations.program_files.named_program import INFINITE
from flowlex.formulations.solver_outcome import (
    EngineError,
    EngineName,
    Infeasibility,
    OptionError,
    SolveOptions,
    Status,
)
from flowlex.models.equal_labels import EqualLabels, equal_labels
from flowlex.models.exact_proofs import exact_proof, proven, snapped
from flowlex.models.incumbents import Offers
from flowlex.models.problem_solution import ProblemSolution, StageAnswer, StageAnswers, duals_of, plain_number
from flowlex.models.solution import Seconds
from flowlex.models.solve_progress import ProgressLine
from flowlex.validation.certificates.certificate import Certificate
from flowlex.validation.certificates.proof_time_budget import Budget
from flowlex.validation.proofs.checker import Verdict, judge
from flowlex.validation.proofs.own_statement import exact_program
from flowlex.validation.proofs.proof import Proof

if TYPE_CHECKING:
    import pulp

    from flowlex.formulations.linear_program import LinearProgram

_log = logging.getLogger("flowlex.problem")
_log.addHandler(logging.NullHandler())  # silent until someone asks
#: Rounds of cuts before branching.
_CUT_ROUNDS = 15
#: A message names at most this many rows of a conflict.
_NAMED = 12
#: A row in a message shows at most so many terms.
_TERMS = 8
#: Ends the names of rows that keep an objective at its value.
KEPT = "_kept"


class ProblemSource:
    """What a solution of a problem in memory says of its source."""

    kind = "problem"
    changes = None

    def __init__(self, problem: Statement) -> None:
        self._problem = problem

    @property
    def name(self) -> str:
        """Name of the problem."""
        return self._problem.name

    @cached_property
    def fingerprint(self) -> str:
        """Of everything that counts in the problem."""
        return problem_document.fingerprint(self._problem)


class Problem(Statement):
    """A problem stated with labels, in ordinary pandas data; see the page *State your own problem*.

    Parameters
    ----------
    name
        Name of the problem.
    """

    # ---- more that can be stated

    @whole_or_not
    def minimize_leximax(
        self, name: str, entries: Expression, *, breakpoints: Sequence[float] | None = None, words: str = ""
    ) -> None:
        """Make the sorted vector of some expressions lexicographically smallest: the largest first, then the next.

        Parameters
        ----------
        name
            Of the objective; its stages are ``name_1``, ``name_2``, ...
        entries
            An expression with a member for each entry, such as ``load.sum(by="machine")``.
        breakpoints
            All values that entries may take, if they are few: fewer rows, one stage for each.
        words
            What it is.
        """
        piecewise.sorted_stages(self, name, entries, breakpoints, 1, words)

    @whole_or_not
    def maximize_leximin(
        self, name: str, entries: Expression, *, breakpoints: Sequence[float] | None = None, words: str = ""
    ) -> None:
        """Make the sorted vector lexicographically largest: the smallest entry first; see `minimize_leximax`.

        Parameters
        ----------
        name
            Its name.
        entries
            An expression with a member for each entry.
        breakpoints
            All values that entries may take, if they are few.
        words
            What it is, for the mathematics.
        """
        piecewise.sorted_stages(self, name, entries, breakpoints, -1, words)

    @whole_or_not
    def convex_cost(self, name: str, amount: Expression, steps: Sequence[tuple[float | None, float]]) -> Expression:
        """The cost of amounts whose rate rises in steps, to be minimised.

        Parameters
        ----------
        name
            Of the variables that hold the amount in each step.
        amount
            At least 0; one cost for each member.
        steps
            Width and rate of each step, such as ``[(8, 10), (4, 15), (None, 30)]``; None: without end.

        Raises
        ------
        StatementError
            A rate falls from one step to the next: the cost is not convex and needs binary variables.
        """
        return piecewise.convex_cost(self, name, amount, steps)

    def softened(self, name: str, weight: float = 1) -> Self:
        """The problem in which some rows may give, and their violation is minimised before everything else.

        Parameters
        ----------
        name
            Of the rows.
        weight
            Of each unit of violation, beside other softened rows; positive.

        Returns
        -------
        Problem
            With variables ``<name>_violation`` and the first objective ``violation``.
        """
        if not self._finite(weight, "softened: weight") > 0:
            raise StatementError(f"softened: the weight must be positive, got {weight!r}")
        block = self._rows_named(name)
        fresh = self.copy()
        made = fresh.variables(
            f"{name}_violation", over=_members_of(fresh, block), words=f"by how much {name} is violated"
        )
        parts = [(made, 1.0 if block.relation == ">=" else -1.0)]
        if block.relation == "==":
            more = fresh.variables(
                f"{name}_shortfall", over=_members_of(fresh, block), words=f"by how much {name} falls short"
            )
            parts.append((more, 1.0))
        e = _row_expression(self, block)
        total: Expression | None = None
        for variables, sign in parts:
            e = e + variables * sign
            total = variables.sum() * weight if total is None else total + variables.sum() * weight
        rows, columns, values = _summed(e._rows, e._columns, e._values, fresh.column_count)
        fresh.rows[name] = replace(
            block, rows=rows, columns=columns, values=values, rhs=-e._constant, unit=e._unit, left=e.formula
        )
        assert total is not None
        first = fresh.objectives[0] if fresh.objectives else None
        if first is not None and first.name == "violation":
            total = total + _objective_expression(fresh, first)
            fresh.objectives = fresh.objectives[1:]
        rest, fresh.objectives = fresh.objectives, []
        fresh.minimize("violation", total, words="violation of softened rows")
        fresh.objectives += rest
        return fresh

    # ---- changes: each returns a new problem

    def with_constraint(self, name: str, rule: Rule, *, words: str = "") -> Self:
        """The problem with more rows; parameters as in `constrain`.

        Parameters
        ----------
        name
            Its name.
        rule
            ``left <= right``, ``>=`` or ``==``: a row for each member.
        words
            What it is, for the mathematics.
        """
        fresh = self.copy()
        fresh.constrain(name, rule, words=words)
        return fresh

    def without(self, name: str, **labels: Any) -> Self:
        """The problem without rows of a name: all, or those with these labels.

        Parameters
        ----------
        name
            Its name.
        **labels
            Level to label or labels; all rows of the name when omitted.
        """
        block = self._rows_named(name)
        gone = np.ones(block.index.count, bool)
        for level, wanted in labels.items():
            if level not in block.index.levels:
                raise StatementError(f"rows {name!r} have " + nearest("level", level, block.index.names))
            listed = wanted if isinstance(wanted, (list, tuple, set)) else [wanted]
            codes = block.index.levels[level].codes(list(listed), f"without {name!r}")
            gone &= np.isin(block.index.codes[level], codes)
        if not gone.any():
            raise StatementError(f"without: no row {name!r} has these labels")
        return self.without_members(name, np.flatnonzero(gone))

    def without_members(self, name: str, members: Any) -> Self:
        """The problem without some rows of a name, by their position.

        Parameters
        ----------
        name
            Its name.
        members
            Positions of the rows.
        """
        block = self._rows_named(name)
        gone = np.zeros(block.index.count, bool)
        gone[members] = True
        fresh = self.copy()
        if gone.all():
            del fresh.rows[name]
            return fresh
        kept = np.flatnonzero(~gone)
        place = np.cumsum(~gone) - 1
        terms = ~gone[block.rows]
        fresh.rows[name] = replace(
            block,
            index=block.index.take(kept),
            rows=place[block.rows[terms]],
            columns=block.columns[terms],
            values=block.values[terms],
            rhs=block.rhs[kept],
        )
        return fresh

    def with_fixed(self, variables: Expression, value: float) -> Self:
        """The problem with variables fixed: ``p.with_fixed(x.sel(worker="ann"), 0)``.

        Parameters
        ----------
        variables
            Variables of one name, such as ``p["x"].sel(worker="ann")``.
        value
            The number at which each is fixed.
        """
        columns, block = self._plain(variables, "with_fixed")
        value = self._finite(value, "with_fixed")
        inside = columns - block.start
        outside = (block.lower[inside] > value) | (block.upper[inside] < value)
        if outside.any():
            k = int(inside[int(np.argmax(outside))])
            name = block.names(np.array([k]))[0]
            raise StatementError(
                f"with_fixed: {name} = {value:g} lies outside its bounds {block.lower[k]:g} and {block.upper[k]:g}"
            )
        if block.integer[inside].any() and value != np.rint(value):
            raise StatementError(f"with_fixed: {block.name} is integer, {value:g} is not")
        return self.with_bounds(variables, lower=value, upper=value)

    def with_bounds(self, variables: Expression, *, lower: float | None = None, upper: float | None = None) -> Self:
        """The problem with other bounds of some variables; a side that is not given stays.

        Parameters
        ----------
        variables
            Variables of one name, such as ``p["x"].sel(worker="ann")``.
        lower
            Smallest value; unchanged, or 0 for new variables, when omitted.
        upper
            Largest value; unchanged when omitted.
        """
        columns, block = self._plain(variables, "with_bounds")
        if lower is None and upper is None:
            raise StatementError("with_bounds: give lower, upper or both")
        low, high, inside = block.lower.copy(), block.upper.copy(), columns - block.start
        for side, value in ((low, lower), (high, upper)):
            if value is not None:
                if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or np.isnan(value):
                    raise StatementError(f"with_bounds: expected a number, got {value!r}")
                side[inside] = float(value)
        if (low > high).any():
            k = int(np.argmax(low > high))
            raise StatementError(
                f"with_bounds: {block.names(np.array([k]))[0]} has lower bound {low[k]:g} above its upper {high[k]:g}"
            )
        fresh = self.copy()
        fresh.blocks[block.name] = replace(block, lower=low, upper=high)
        return fresh

    def with_cost(self, objective: str, cost: Expression | None = None) -> Self:
        """The problem with something added to an objective.

        Parameters
        ----------
        objective
            Name of the objective.
        cost
            One expression, in the unit of the objective.
        """
        if not isinstance(cost, Expression):
            raise StatementError(
                f"with_cost: expected an objective's name and an expression, got {objective!r} and {cost!r}"
            )
        k = known("objective", objective, {o.name: k for k, o in enumerate(self.objectives)})
        old = self.objectives[k]
        fresh = self.copy()
        rest, fresh.objectives = fresh.objectives, []
        fresh._objective(
            old.name, _objective_expression(fresh, old) + cost, old.maximize, 0, old.words, old.measure, old.sorted_of
        )
        changed = replace(fresh.objectives[0], within=old.within, relative=old.relative)
        fresh.objectives = [*rest[:k], changed, *rest[k + 1 :]]
        return fresh

    def with_variable(self, name: str, **options: Any) -> Self:
        """The problem with more variables; parameters as in `variables`. Take them with ``changed[name]``.

        Parameters
        ----------
        name
            Its name.
        **options
            Further options, by name.
        """
        fresh = self.copy()
        fresh.variables(name, **options)
        return fresh

    def relaxed(self, *names: str) -> Self:
        """The problem without the integrality of some variables (all by default).

        Parameters
        ----------
        *names
            Names of variables; all when omitted.
        """
        fresh = self.copy()
        for name in names or tuple(self.blocks):
            block = known("variables named", name, fresh.blocks)
            fresh.blocks[name] = replace(block, integer=np.zeros_like(block.integer))
        return fresh

    def _plain(self, variables: Any, what: str) -> tuple[Any, VariableBlock]:
        if not isinstance(variables, Expression) or not variables._single_terms:
            raise StatementError(f"{what}: expected variables such as x.sel(...), got {variables!r}")
        self._own(variables, what)
        columns = variables._columns
        blocks = [b for b in self.blocks.values() if b.token in variables._blocks]
        if not len(columns):
            raise StatementError(f"{what}: selects no variable")
        block = next((b for b in blocks if b.start <= columns[0] < b.start + b.index.count), None)
        if block is None or ((columns < block.start) | (columns >= block.start + block.index.count)).any():
            raise StatementError(f"{what}: expected variables of one name, got {variables!r}")
        return columns, block

    @staticmethod
    def _finite(value: Any, what: str) -> float:
        if (
            isinstance(value, (bool, np.bool_))
            or not isinstance(value, (int, float, Fraction, np.number))
            or not np.isfinite(float(value))
        ):
            raise StatementError(f"{what}: expected a finite number, got {value!r}")
        return float(value)

    def _rows_named(self, name: str) -> RowBlock:
        return known("rows named", name, self.rows)

    # ---- mathematics

    def to_latex(self) -> str:
        """The mathematics as LaTeX, derived from what was stated."""
        return mathematics.to_latex(self)

    def _repr_html_(self) -> str:
        return mathematics.to_html(self)

    def __repr__(self) -> str:
        kind = "integer" if any(b.integer.any() for b in self.blocks.values()) else "linear"
        goals = ", ".join(f"{'max' if o.maximize else 'min'} {o.name}" for o in self.objectives) or "no objective"
        return f"<{kind} problem {self.name!r}: {self.column_count} variables, {self.row_count} rows, {goals}>"

    # ---- solving

    def solve(
        self,
        engine: EngineName | str = "auto",
        *,
        certify: bool = True,
        start: Any = None,
        report: Any = None,
        **options: Any,
    ) -> ProblemSolution:
        """Solve to a proven optimum, one objective after the other.

        Parameters
        ----------
        engine
            ``auto`` and ``highs``: HiGHS directly. ``pulp``: through PuLP, with ``solver=`` any PuLP solver; its answer
            is proven by linear programs of HiGHS all the same.
        certify
            False: prove nothing; the answer is the solver's.
        start
            An answer to begin with: a `ProblemSolution` or values by variable and label.
        report
            Called with the best answers so far, each judged to satisfy all rows, about once a second.
        **options
            Of `SolveOptions`: ``time_limit_s`` (processor seconds for solving and proof), ``max_steps``, ``gap``,
            ``seed``, ``threads``, ``log``, ``algorithm``, ``solver``.

        Returns
        -------
        ProblemSolution
            After Ctrl-C the best answer so far. Its ``status`` is the solver's word; its ``certificate`` says what is
            proven.

        Raises
        ------
        EngineError
            The solver failed, or an option does not exist.
        StatementError
            The start is none of this problem.
        """
        if engine not in ("auto", "highs", "pulp"):
            raise EngineError(f"engine {engine!r} solves no problems of one's own; use 'auto', 'highs' or 'pulp'")
        if not isinstance(certify, bool):
            raise OptionError(f"certify must be True or False, got {certify!r}")
        if report is not None and not callable(report):
            raise OptionError(f"report must be a function that takes answers, got {report!r}")
        chosen = solve_options(options, "certify", "start", "report")
        first = self._start(start) if start is not None else None
        return self.solve_with(chosen, engine, certify=certify, first=first, report=report)

    def solve_with(
        self,
        chosen: SolveOptions,
        engine: EngineName | str = "highs",
        *,
        certify: bool = True,
        first: Floats | None = None,
        report: Any = None,
        strong: bool = True,
        leaves: bool = False,
    ) -> ProblemSolution:
        """Solve with options that were read already.

        Parameters
        ----------
        chosen
            The options.
        engine, certify, report
            As in `solve`.
        first
            (columns,) values to begin with.
        strong
            Whether the tree branches on what promises the smallest tree, and is cut short where its proof would grow
            large.
        leaves
            Without ``certify``: hand over the leaves of the tree as a proof that nobody has judged; `StageAnswer.exact`
            then has the bound of objectives that the solver's tree settles.
        """
        from flowlex.formulations.lexicographic.objective_stages import solve_stages

        begun, clock = time.perf_counter(), processor_seconds()
        arrays = self.arrays(None)
        costs = [(-1.0 if o.maximize else 1.0) * o.cost(self.column_count) for o in self.objectives]
        steps = [_step(o, arrays.integrality) for o in self.objectives]
        self._refuse_extremes(arrays, costs, steps)
        _log.info("%s: %d variables, %d rows; solving", self.name, self.column_count, self.row_count)
        compiled = time.perf_counter()
        if engine != "pulp" and chosen.solver is None and (equal := equal_labels(self)) is not None:
            answer = self._counted(equal, chosen, certify, first, report, strong, leaves)
            if answer is not None:
                return answer
        offers = None if report is None else Offers(report)
        watch = Watch(found=None if offers is None else lambda x: offers(lambda: self._found(x), often=True))
        if engine == "pulp" or chosen.solver is not None:
            try:
                first = self._through_pulp(chosen, first)
            except KeyboardInterrupt:
                watch.interrupted = True
            chosen = replace(chosen, solver=None)
            clock -= time.perf_counter() - compiled  # another process
        rounds = _CUT_ROUNDS if certify or leaves else 0

        line = ProgressLine(
            [o.name for o in self.objectives],
            [-1 if o.maximize else 1 for o in self.objectives],
            [o.offset for o in self.objectives],
        )
        watch.tell = line

        def attempt(cut_rounds: int, first: Floats | None) -> tuple[StagesOutcome, ProblemSolution]:
            left = chosen
            if chosen.time_limit_s is not None:
                spent = processor_seconds() - clock
                left = replace(chosen, time_limit_s=max(chosen.time_limit_s - spent, 0.01))
            found = solve_stages(
                arrays,
                costs,
                left,
                start=first,
                nodes=0 if engine == "pulp" and first is not None else None,
                steps=steps,
                allowance=self._allowance,
                cut_rounds=cut_rounds,
                watch=watch,
                strong=certify and strong,
                vectors=piecewise.sorted_vectors(self),
            )
            line.end()
            times = (begun, compiled, time.perf_counter())
            return found, self._solution(found, engine, chosen, certify, times, clock, leaves)

        found, solution = attempt(rounds, first)
        if watch.interrupted:
            _log.info("%s: interrupted", self.name)
            if not solution.status.has_answer:
                return replace(solution, message="Interrupted before any answer was found.")
            return replace(solution, message=f"Interrupted; this is the best answer so far. {solution.message}".strip())
        late = chosen.time_limit_s is not None and processor_seconds() - clock > chosen.time_limit_s / 2
        exhausted = all(stage.proven for stage in found.stages)
        if found.cuts and exhausted and not late and not _is_proven(solution):
            # Rounded coefficients of cuts may prove a little less than branching does.
            _, other = attempt(0, found.values)
            if _is_proven(other) or self._better(other, solution):
                return other
        return solution

    def _counted(
        self,
        equal: EqualLabels[Problem],
        chosen: SolveOptions,
        certify: bool,
        first: Floats | None,
        report: Any,
        strong: bool,
        leaves: bool,
    ) -> ProblemSolution | None:
        """The answer of the problem whose equal labels are counted; None if it does not hold for this one."""
        clock, counted = processor_seconds(), equal.counted
        _log.info("%s: equal labels of %s are counted", self.name, equal.level)

        def dealt(answer: ProblemSolution) -> None:
            assert answer.exact is not None
            report(self.judged(equal.dealt(answer.exact).floats, answer.engine, answer.message))

        found = counted.solve_with(
            chosen,
            certify=certify,
            first=None if first is None else equal.summed(first),
            report=None if report is None else dealt,
            strong=strong,
            leaves=leaves,
        )
        if found.status in (Status.UNBOUNDED, Status.ERROR) or found.program is None:
            return None
        program = exact_program(self)
        exact = None if found.exact is None else equal.dealt(found.exact)
        proof = equal.expanded(found.found, found.program)
        claimed = str(found.status) if certify or exact is None else "feasible"
        budget = Budget.remaining(chosen.time_limit_s, clock)
        verdict = judge(program, exact, proof if certify else Proof(), claimed, budget)
        figures = [each.exact for each in found.stages.values()]
        same = [each.value for each in verdict.stages] == [value for value, _ in figures]
        shown = [each.bound for each in verdict.stages] == [bound for _, bound in figures]
        if not (verdict.certificate.ok and (same or exact is None)) or (certify and not shown and not verdict.late):
            _log.info("%s: the counted answer does not hold for single labels", self.name)
            return None
        tree = next(iter(proof.stages.values()), ())
        duals = None
        if exact is not None and len(tree) == 1 and not tree[0].branches and not tree[0].derived:
            of = tree[0].rows
            each = [of[name].floats if name in of else np.zeros(b.index.count) for name, b in self.rows.items()]
            duals = np.concatenate([np.zeros(0), *each])
        sign = -1.0 if self.objectives and self.objectives[0].maximize else 1.0
        return replace(
            found,
            source=ProblemSource(self),  # type: ignore[arg-type]
            problem=self,
            numbers=None if exact is None else exact.floats,
            exact=exact,
            program=program,
            found=proof,
            certificate=verdict.certificate if certify else None,
            duals=duals_of(self, duals, sign),  # type: ignore[arg-type]
            infeasibility=self._conflict(10.0) if found.status is Status.INFEASIBLE else None,
        )

    def _refuse_extremes(self, arrays: LinearProgramArrays, costs: list[Floats], steps: list[float]) -> None:
        """Raise for numbers that solvers read as infinite or as 0, in any units."""
        for names, sides in (
            (self.column_names, (arrays.column_lower, arrays.column_upper)),
            (self.row_names, (arrays.row_lower, arrays.row_upper)),
        ):
            for side in sides:
                large = np.flatnonzero(np.isfinite(side) & (np.abs(side) >= INFINITE))
                if len(large):
                    raise StatementError(
                        f"{names()[large[0]]}: solvers read {side[large[0]]:g} as infinite; state None for no bound, "
                        "or choose larger units"
                    )
        found = out_of_range(arrays)
        if found is None:
            return
        scaling = Scaling.of(arrays, costs, steps)
        scaled = arrays if scaling is None else scaling.applied(arrays, costs)[0]
        if out_of_range(scaled) is None:
            found = lost_in_integers(scaled)
        if found is not None:
            row, column, _ = found
            value = float(arrays.matrix[[row]].toarray()[0, column])
            raise CoefficientError(self.row_names()[row], self.names_of([column])[0], (row, column, value))

    def _better(self, one: ProblemSolution, other: ProblemSolution) -> bool:
        """Whether an answer is better in the first objective in which they differ, or else more is proven of it."""
        if not (one.status.has_answer and other.status.has_answer):
            return one.status.has_answer
        signs = {o.name: -1 if o.maximize else 1 for o in self.objectives}

        def key(each: ProblemSolution) -> tuple[list[float], list[float]]:
            stages = each.stages.values()
            bounds = [-np.inf if s.bound is None else signs[s.name] * float(s.bound) for s in stages]
            return [signs[s.name] * s.value for s in stages], [-bound for bound in bounds]

        return key(one) < key(other)

    def _found(self, values: Floats) -> ProblemSolution | None:
        """An answer found on the way, if it satisfies all rows."""
        solution = self.judged(values, "highs", "")
        return solution if solution.status.has_answer else None

    def _allowance(self, stage: int, value: float) -> float:
        if stage >= len(self.objectives):
            return 0.0
        objective = self.objectives[stage]
        sign = -1.0 if objective.maximize else 1.0
        size = abs(value + sign * objective.offset)
        return float(objective.within) * (size if objective.relative else 1.0)

    def _through_pulp(self, options: SolveOptions, start: Floats | None) -> Floats | None:
        """Values of a PuLP solver, objective by objective; None if it finds none."""
        from flowlex.formulations.engines import solve
        from flowlex.formulations.linear_program import LinearProgram  # noqa: F401

        problem, values, begun = self, start, time.perf_counter()
        limit = options.time_limit_s
        for k, objective in enumerate(self.objectives or [None]):
            if limit is not None:
                options = replace(options, time_limit_s=max(limit - (time.perf_counter() - begun), 0.01))
            outcome = solve(flat_program(problem, k if objective is not None else None), "pulp", options)
            if outcome.values is None:
                return values
            values = outcome.values
            if objective is not None and k + 1 < len(self.objectives):
                problem = problem.keeping(k, values)
        return values

    def keeping(self, k: int, reached: Floats | Fraction, given_away: float = 0) -> Self:
        """The problem in which objective k is as good as a value and what that gave away, less its tolerance.

        Parameters
        ----------
        k
            Which objective.
        reached
            Its value, or (columns,) values of all variables.
        given_away
            How much worse these values are than the optimum.
        """
        objective = self.objectives[k]
        e = _objective_expression(self, objective)
        sign = -1.0 if objective.maximize else 1.0
        value: Any = reached
        if not isinstance(reached, Fraction):
            value = float(objective.cost(self.column_count) @ reached) + objective.offset - sign * float(given_away)
        allowed = float(objective.within) * (abs(value) if objective.relative else 1.0)
        side = value + sign * allowed if allowed else value
        rule = e >= side if objective.maximize else e <= side
        return self.with_constraint(f"{objective.name}{KEPT}", rule)

    def _solution(
        self,
        found: StagesOutcome,
        engine: str,
        options: SolveOptions,
        certify: bool,
        times: tuple[float, float, float],
        clock: float,
        leaves: bool,
    ) -> ProblemSolution:
        begun, compiled, solved = times
        answered = found.values is not None and found.status.has_answer
        program = exact_program(self)
        proof, verdict, trouble = Proof(), None, ""
        budget = Budget.remaining(options.time_limit_s, clock)
        exact = snapped(program, found.values) if answered and found.values is not None else None
        if certify:
            try:
                if found.status.claims:
                    proved, proof, verdict = proven(program, found, found.values if answered else None, budget)
                    exact = proved if proved is not None else exact
            except (Exception, KeyboardInterrupt) as error:  # whatever fails, the answer is not lost
                _log.warning("%s: the proof was not built: %s", self.name, error)
                proof, verdict = Proof(), judge(program, exact, Proof(), str(found.status))
                trouble = f"The proof was not built ({error or type(error).__name__}); the answer is the solver's."
            if verdict is not None and verdict.late:
                trouble = "The time limit passed before the whole proof was checked."
        elif leaves:
            proof = exact_proof(program, found, budget)
        stages = self._stages(found, exact, program, verdict)
        if leaves:
            for stage, result in zip(tuple(stages.values()), found.stages, strict=False):
                value = stage.exact[0]
                stages[stage.name] = replace(stage, exact=(value, value if result.proven else None))
        status, message = _verdict_words(self, found, verdict, stages)
        infeasibility = None
        if found.status is Status.INFEASIBLE:
            limit = options.time_limit_s
            left = None if limit is None else max(limit - (processor_seconds() - clock), 0.1 * limit)
            infeasibility = self._conflict(left)
            message = infeasibility.message
        for (name, stage), result in zip(stages.items(), found.stages, strict=False):
            words = "proven" if stage.proven else "not proven"
            _log.debug("%s: objective %s = %s, %s; %d leaves", self.name, name, stage.value, words, len(result.leaves))
        claimed = "" if verdict is None else f"; {verdict.certificate.summary}"
        _log.info("%s: %s%s", self.name, status, claimed)
        done = time.perf_counter()
        main = next(iter(stages.values()), None)
        duals = None
        if (
            found.stages
            and len(found.stages[0].leaves) == 1
            and self.objectives
            and not found.stages[0].leaves[0].branches
        ):
            duals = (
                found.stages[0].leaves[0].rows
                if found.stages[0].leaves[0].own and not found.stages[0].leaves[0].cuts.any()
                else None
            )
        sign = -1.0 if self.objectives and self.objectives[0].maximize else 1.0
        bound = main.bound if main is not None else None
        gap = None
        if main is not None and bound is not None:
            gap = abs(float(main.value) - float(bound)) / max(1.0, abs(float(main.value)))
        if not certify and not leaves:
            trouble = "not certified: solved with certify=False"
        return ProblemSolution(
            model="problem",
            engine="highs" if engine == "auto" else engine,
            source=ProblemSource(self),  # type: ignore[arg-type]
            status=status,
            objective=main.value if main is not None else 0 if answered else None,
            bound=bound,
            gap=gap,
            stages=stages,
            duals=duals_of(self, duals if answered else None, sign),  # type: ignore[arg-type]
            certificate=verdict.certificate if verdict is not None else None,
            seconds=Seconds(compiled - begun, solved - compiled, done - solved),
            message=f"{message} {trouble}".strip(),
            infeasibility=infeasibility,
            problem=self,
            numbers=exact.floats if exact is not None else None,
            exact=exact,
            program=program,
            found=proof,
        )

    def _stages(self, found: StagesOutcome, exact: Any, program: Any, verdict: Verdict | None) -> StageAnswers:
        answers = StageAnswers()
        if exact is None:
            return answers
        from flowlex.validation.proofs.checker import Checker

        checker = Checker(program)
        judged = {s.name: s for s in verdict.stages} if verdict is not None else {}
        for k, objective in enumerate(program.objectives):
            value = judged[objective.name].value if objective.name in judged else checker.value(objective, exact)
            stage = judged.get(objective.name)
            bound = stage.bound if stage is not None else None
            result = found.stages[k] if k < len(found.stages) else None
            quoted = None if result is None else result.quoted
            if quoted is None and result is not None and result.proven and not (stage is not None and stage.proven):
                quoted = result.bound  # in the solver's floating point
            offset = float(objective.constant * objective.unit)
            answers[objective.name] = StageAnswer(
                objective.name,
                plain_number(value),
                None if bound is None else plain_number(bound),
                None if quoted is None else objective.sign * quoted + offset,
                stage.proven if stage is not None else False,
                plain_number(stage.given_away) if stage is not None else 0,
                (value, bound),
            )
        return answers

    def _conflict(self, limit: float | None) -> Infeasibility:
        """Rows that cannot hold together, as formulas with numbers; those stated last come first."""
        from flowlex.formulations.engines.infeasibility_explanation import explained
        from flowlex.formulations.solver_outcome import Outcome

        try:
            outcome = explained(
                flat_program(self, None),
                Outcome(Status.INFEASIBLE, "highs"),
                SolveOptions(time_limit_s=min(limit, 10.0) if limit else 10.0),
            )
            reason = outcome.infeasibility
        except CoefficientError:  # in other units, the conflict is not looked for
            reason = None
        if reason is None or not (reason.constraints or reason.bounds):
            bounds = [(b, np.ceil(b.lower - 1e-9) > np.floor(b.upper + 1e-9)) for b in self.blocks.values()]
            for block, none in ((b, np.flatnonzero(gap & b.integer)) for b, gap in bounds):
                if len(none):
                    said = self.written_bounds(block.start + int(none[0]))
                    return Infeasibility(f"No integer lies within the bounds {said}.")
            names = ", ".join(self.rows)
            return Infeasibility(
                f"No values satisfy all rows ({names}); p.softened(name) shows by how much one must give."
            )
        places = {text: (block, k) for block in self.rows.values() for k, text in enumerate(block.names())}
        texts = [
            self.written_row(*places[name], most=_TERMS)
            for name in reversed(reason.constraints[:_NAMED])
            if name in places
        ]
        more = len(reason.constraints) - _NAMED
        listed = "; ".join(texts) + (f"; and {more} more" if more > 0 else "")
        columns = {text: b.start + k for b in self.blocks.values() for k, text in enumerate(b.names())}
        within = [self.written_bounds(columns[name]) for name in reason.bounds[:_NAMED] if name in columns]
        said = f"; with the bounds {', '.join(within)}" if within else ""
        return replace(reason, message=f"These rows cannot hold together: {listed}{said}.")

    def _start(self, start: Any) -> Floats:
        """Values of all columns from an answer or from values by name."""
        if isinstance(start, ProblemSolution):
            start.require_answer()
            found = np.zeros(self.column_count)
            for name in self.blocks:
                if name in start.problem.blocks:
                    block = start.problem.blocks[name]
                    mine = self.blocks[name]
                    assert start.numbers is not None
                    if block.index.count == mine.index.count and block.index.texts() == mine.index.texts():
                        found[mine.columns] = start.numbers[block.columns]
                    else:
                        raise StatementError(f"start: {name} has other labels in that answer; it is of another problem")
            if not set(start.problem.blocks) & set(self.blocks):
                raise StatementError("start: that answer has no variable of this problem")
            return found
        return self.read_values(start)

    def read_values(self, values: Any) -> Floats:
        """(columns,) values from a solved PuLP problem, a solution file, or values by variable and label.

        Raises `StatementError`: a name does not exist, or a value is missing or no number.

        Parameters
        ----------
        values
            A solved PuLP problem, the path of a ``.sol`` file, or values by variable and label.
        """
        from flowlex.models.problem_conversion import column_values

        if isinstance(values, np.ndarray):
            if values.shape != (self.column_count,) or values.dtype.kind not in "iuf" or not np.isfinite(values).all():
                raise StatementError(
                    f"values: {self.column_count} finite numbers expected, got {values.dtype} of shape {values.shape}"
                )
            return values.astype(np.float64)
        if isinstance(values, ProblemSolution):
            return self._start(values)
        if not isinstance(values, (str, Path)) and not isinstance(values, Mapping) and not hasattr(values, "variables"):
            raise StatementError(f"values: expected values by variable, an answer or a file, got {values!r:.60}")
        if not isinstance(values, Mapping):
            return column_values(values, program_of(self, None).column_names)
        found, flat = np.zeros(self.column_count), dict[str, float]()
        for name, given in values.items():
            if not isinstance(name, str):
                raise StatementError(f"values: expected the name of variables, got {name!r:.60}")
            block = self.blocks.get(name)
            if block is not None and (hasattr(given, "items") or not block.index.keys):
                self._fill(found, name, given)
            elif block is not None and name not in program_of(self, None).column_names:
                raise StatementError(f"values of {name}: expected values by label, got {given!r:.60}")
            else:
                flat[name] = self._finite(given, f"value of {name}")
        if flat:
            names = self.column_names()
            if not set(flat) <= set(names):
                names = list(program_of(self, None).column_names)
            found += column_values(flat, names)
        return found

    def _fill(self, found: Floats, name: str, given: Any) -> None:
        block = self.blocks[name]
        if not hasattr(given, "items"):
            if block.index.count != 1:
                raise StatementError(f"values of {name}: expected values by label, got {given!r:.60}")
            found[block.start] = self._finite(given, f"value of {name}")
            return
        labels = {label if len(label) != 1 else label[0]: k for k, label in enumerate(block.index.tuples())}
        texts: dict[str, int] | None = None
        for label, value in given.items():
            k = labels.get(label) if not isinstance(label, list) else None
            if k is None:
                if texts is None:
                    every = block.index.plain_texts(), block.index.texts()
                    texts = {text: k for names in every for k, text in enumerate(names)}
                k = texts.get(label) if isinstance(label, str) else None
            if k is None:
                raise StatementError(f"values of {name}: " + nearest("label", label, labels))
            found[block.start + k] = self._finite(value, f"value of {name}[{label}]")

    def interpret(self, values: Any) -> ProblemSolution:
        """Judge values: of a solved PuLP problem, of a solver's ``.sol`` file, or by variable and label.

        Returns a solution whose certificate says whether the values are feasible; no optimum is claimed.

        Parameters
        ----------
        values
            A solved PuLP problem, the path of a ``.sol`` file, or values by variable and label.
        """
        return self.judged(self.read_values(values), "given", "Values from outside; no optimum is claimed.")

    def judged(self, x: Floats, engine: str, message: str) -> ProblemSolution:
        """Values as an answer of which nothing is claimed but that it satisfies the problem.

        Parameters
        ----------
        x
            (columns,) the values.
        engine, message
            What the answer says of where it comes from.
        """
        program = exact_program(self)
        exact = snapped(program, x)
        verdict = judge(program, exact, Proof(), "feasible")
        found = StagesOutcome(Status.FEASIBLE, x)
        stages = self._stages(found, exact, program, verdict)
        main = next(iter(stages.values()), None)
        return ProblemSolution(
            model="problem",
            engine=engine,
            source=ProblemSource(self),  # type: ignore[arg-type]
            status=Status.FEASIBLE if verdict.certificate.ok else Status.ERROR,
            objective=main.value if main is not None else 0,
            stages=stages,
            certificate=verdict.certificate,
            message=message if verdict.certificate.ok else _faults(verdict.certificate),
            problem=self,
            numbers=exact.floats,
            exact=exact,
            program=program,
        )

    # ---- files

    def write(self, path: str | Path, *, force: bool = False) -> list[Path]:
        """Write the problem: ``.mps`` or ``.lp`` for other solvers, ``.problem.json`` for flowlex (all also ``.gz``).

        With several objectives, an MPS or LP file is written for the first, and one for each later objective by
        ``p.stage(name, answer).write(...)`` once the values of those before are known.

        Returns the files written.

        Parameters
        ----------
        path
            The file; its ending says the format.
        force
            Whether to overwrite a file that is there already.
        """
        from flowlex.instances.file_storage import refuse_existing, write_atomically

        if not isinstance(path, (str, Path)):
            raise StatementError(f"write: expected the path of a file, got {path!r:.60}")
        target = Path(path)
        name = target.name.lower().removesuffix(".gz")
        refuse_existing(target, force=force)
        if name.endswith(".json"):
            import json

            text = json.dumps(problem_document.to_document(self), allow_nan=False)
            write_atomically(target, text.encode() + b"\n")
            return [target]
        if not name.endswith((".mps", ".lp")):
            raise StatementError(f"{target}: expected a name that ends in .mps, .lp or .problem.json (also .gz)")
        if len(self.objectives) > 1:
            listed = ", ".join(o.name for o in self.objectives)
            raise StatementError(
                f"{target}: an MPS or LP file holds one objective, this problem has {len(self.objectives)} in strict "
                f"order ({listed}); write a .problem.json, or p.stage(name, values).write(...) for each"
            )
        from flowlex.formulations.program_files import write_program

        write_program(program_of(self, 0 if self.objectives else None), target)
        return [target]

    def stage(self, objective: str, values: Any = None) -> Self:
        """The problem of one objective alone, with those before it as rows at the values of an answer.

        Parameters
        ----------
        objective
            Its name.
        values
            An answer in which the objectives before are optimal: a solution, or values by variable and label.
        """
        names = [o.name for o in self.objectives]
        k = known("objective", objective, {name: k for k, name in enumerate(names)})
        fresh = self.copy()
        if k:
            if values is None:
                raise StatementError(f"stage {objective!r}: give an answer, for the values of the objectives before")
            x = values.numbers if isinstance(values, ProblemSolution) else self.read_values(values)
            assert x is not None
            for before in range(k):
                mine = values.stages.get(names[before]) if isinstance(values, ProblemSolution) else None
                fresh = fresh.keeping(before, x, mine.given_away if mine is not None else 0)
        fresh.objectives = [self.objectives[k]]
        return fresh

    def alone(self, objective: str | None = None, before: Mapping[str, Any] | None = None) -> Self:
        """The problem of one objective, with those before it as rows at given values.

        Parameters
        ----------
        objective
            Its name; the first when None.
        before
            Values of objectives before it; those without a value are left free.
        """
        names = [o.name for o in self.objectives]
        if objective is not None and objective not in names:
            raise StatementError(nearest("objective", objective, names))
        place = 0 if objective is None else names.index(objective)
        fresh = self.copy()
        for k, name in enumerate(names[:place]):
            if before and name in before:
                fresh = fresh.keeping(k, Fraction(before[name]))
        fresh.objectives = fresh.objectives[place : place + 1]
        return fresh

    @classmethod
    def of(cls, source: Any, name: str = "") -> Self:
        """A problem from elsewhere: a PuLP problem, a `highspy.Highs`, solver arrays or a parsed file.

        Parameters
        ----------
        source
            A PuLP problem, a `highspy.Highs`, solver arrays, or a parsed file.
        name
            Its name.
        """
        from flowlex.models.problem_conversion import problem_of

        made: Self = problem_of(cls, source, name)
        return made

    def to_pulp(self) -> pulp.LpProblem:
        """The problem of the first objective as a PuLP problem, with names of variables and rows."""
        from flowlex.formulations.pulp_adapter import to_pulp

        program = program_of(self, 0 if self.objectives else None)
        return to_pulp(program.arrays, self.name, program.column_names, program.row_names)[0]

    def structure(self) -> Any:
        """Whether the matrix is totally unimodular, with a proof or a witness named by rows and columns."""
        from flowlex.validation.unimodularity.check import check

        return check(flat_program(self, None))


def flat_program(problem: Statement, objective: int | None) -> LinearProgram:
    """The problem of one objective as a program with flat blocks, for engines and checkers."""
    from flowlex.formulations.linear_expression import Expression as Terms
    from flowlex.formulations.linear_program import ConstraintBlock, LinearProgram
    from flowlex.formulations.linear_program import VariableBlock as FlatVariables

    lp = LinearProgram(problem.name)
    for b in problem.blocks.values():
        labels = b.index.texts()
        mixed = len(b.integer) and bool(b.integer.any()) and not bool(b.integer.all())
        flags = b.integer if mixed else bool(b.integer.any())
        lp.variable_blocks[b.name] = FlatVariables(b.name, b.start, b.index.count, b.lower, b.upper, flags, labels)  # type: ignore[arg-type]
    start = 0
    for r in problem.rows.values():
        terms = Terms(r.rows, r.columns, to_floats(r.values, r.unit), np.zeros(r.index.count))
        labels = r.index.texts()
        relation: Any = r.relation
        lp.constraint_blocks[r.name] = ConstraintBlock(r.name, start, terms, relation, to_floats(r.rhs, r.unit), labels)
        start += r.index.count
    if objective is not None and problem.objectives:
        o = problem.objectives[objective]
        zeros = np.zeros(len(o.columns), np.int64)
        lp._objective = Terms(zeros, o.columns, to_floats(o.values, o.unit), np.array([o.offset]))
        lp.maximizing = o.maximize
    return lp


def _faults(certificate: Certificate) -> str:
    """What is wrong with an answer."""
    return "; ".join(f"not so: {check.name} ({check.detail})" for check in certificate.checks if not check.ok)


def _is_proven(solution: ProblemSolution) -> bool:
    """Whether a certificate proves what the status says, not only a bound or the solver's word."""
    certificate = solution.certificate
    return certificate is not None and certificate.claim == str(solution.status) and not solution.unproven


def _members_of(problem: Statement, block: RowBlock) -> Expression:
    n = block.index.count
    none = np.zeros(0, np.int64)
    return Expression(problem, block.index, none, none, np.zeros(0), np.zeros(n), Fraction(1), ("number", "0"))


def _row_expression(problem: Statement, block: RowBlock) -> Expression:
    """Left side minus right side of rows."""
    tokens = frozenset(b.token for b in problem.blocks.values())
    return Expression(
        problem,
        block.index,
        block.rows,
        block.columns,
        block.values,
        -block.rhs,
        block.unit,
        block.left,
        tokens,
    )


def _objective_expression(problem: Statement, objective: Objective) -> Expression:
    tokens = frozenset(b.token for b in problem.blocks.values())
    rows = np.zeros(len(objective.columns), np.int64)
    single = Index((), {}, {}, 1, True)
    constant = np.array([objective.constant])
    return Expression(
        problem,
        single,
        rows,
        objective.columns,
        objective.values,
        constant,
        objective.unit,
        objective.formula,
        tokens,
    )


def _step(objective: Objective, integrality: Any) -> float:
    """The unit of which values of an objective (without its constant) are multiples; 0 if they may be fractions."""
    if not len(objective.columns):
        return 1.0
    if objective.unit is None or not integrality[objective.columns].all():
        return 0.0
    return float(np.gcd.reduce(np.abs(objective.values).astype(np.int64)) * objective.unit)


def _verdict_words(
    problem: Statement, found: StagesOutcome, verdict: Verdict | None, stages: StageAnswers
) -> tuple[Status, str]:
    """Status and message of an outcome."""
    if not found.status.has_answer:
        words = {
            Status.UNBOUNDED: "An objective improves without end; give bounds to what it uses.",
            Status.TIME_LIMIT: "The limit came before any answer.",
        }
        return found.status, words.get(found.status, found.message)
    if verdict is None:
        return (Status.OPTIMAL if found.sure else found.status), found.message if not found.sure else ""
    if not verdict.certificate.ok:
        return Status.ERROR, f"The solver's values do not satisfy the problem: {_faults(verdict.certificate)}."
    if verdict.claim == "optimal":
        return Status.OPTIMAL, ""
    open_ = next(s for s in verdict.stages if not s.proven)
    quoted = stages[open_.name].quoted
    said = f"objective {open_.name!r}: {float(open_.value):g}"
    proven = (
        f"proven {'at most' if _maximizes(problem, open_.name) else 'at least'} {float(open_.bound):g}"
        if open_.bound is not None
        else "no bound is proven"
    )
    by_solver = f", {quoted:g} by the solver" if quoted is not None else ""
    status = Status.OPTIMAL if found.sure else Status.FEASIBLE
    word = "optimal by the solver's word, not proven" if found.sure else "feasible"
    return status, f"{word.capitalize()}: {said}; {proven}{by_solver}."


def _maximizes(problem: Statement, name: str) -> bool:
    return next(o.maximize for o in problem.objectives if o.name == name)


__all__ = ["LinearProgramArrays", "Problem", "ProblemSolution", "common_unit"]
