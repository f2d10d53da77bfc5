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

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from flowlex.formulations.engines import solve_options
from flowlex.formulations.language import mathematics, problem_document, sorted_and_convex
from flowlex.formulations.language.expressions import Expression, Rule, constants
from flowlex.formulations.language.labels import Index, StatementError, known, nearest
from flowlex.formulations.language.program_conversion import flat_program, program_of
from flowlex.formulations.language.statement import Objective, RowBlock, Statement, VariableBlock, _summed, whole_or_not
from flowlex.formulations.program_arrays import Floats
from flowlex.formulations.solver_outcome import EngineError, EngineName, OptionError, SolveOptions
from flowlex.models.problem_solution import ProblemSolution
from flowlex.models.problem_solving import SolvableStatement, Solving

if TYPE_CHECKING:
    import pulp

#: Ends the names of rows that keep an objective at its value.
KEPT = "_kept"


class Problem(SolvableStatement):
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
        sorted_and_convex.sorted_stages(self, name, entries, breakpoints, 1, words)

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
        sorted_and_convex.sorted_stages(self, name, entries, breakpoints, -1, words)

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
        return sorted_and_convex.convex_cost(self, name, amount, steps)

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
        members = constants(fresh, block.index, np.zeros(block.index.count))
        made = fresh.variables(f"{name}_violation", over=members, words=f"by how much {name} is violated")
        parts = [(made, 1.0 if block.relation == ">=" else -1.0)]
        if block.relation == "==":
            more = fresh.variables(f"{name}_shortfall", over=members, words=f"by how much {name} falls short")
            parts.append((more, 1.0))
        e = self.combined(block.index, (block.rows, block.columns, block.values), -block.rhs, block.unit, block.left)
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
        return Solving(self, chosen, engine, certify, first, report, strong, leaves).solve()

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
        k = known("objective", objective, {o.name: k for k, o in enumerate(self.objectives)})
        reached: dict[str, Any] = {}
        if k:
            if values is None:
                raise StatementError(f"stage {objective!r}: give an answer, for the values of the objectives before")
            x = values.numbers if isinstance(values, ProblemSolution) else self.read_values(values)
            for before in self.objectives[:k]:
                mine = values.stages.get(before.name) if isinstance(values, ProblemSolution) else None
                reached[before.name] = x, mine.given_away if mine is not None else 0
        return self._alone(k, reached)

    def alone(self, objective: str | None = None, before: Mapping[str, Any] | None = None) -> Self:
        """The problem of one objective, with those before it as rows at given values.

        Parameters
        ----------
        objective
            Its name; the first when None.
        before
            Values of objectives before it; those without a value are left free.
        """
        places = {o.name: k for k, o in enumerate(self.objectives)}
        place = 0 if objective is None else known("objective", objective, places)
        return self._alone(place, {name: (Fraction(value), 0) for name, value in (before or {}).items()})

    def _alone(self, place: int, reached: Mapping[str, tuple[Any, float]]) -> Self:
        """The problem of one objective; those before it that have a value are kept, given what it gives away."""
        fresh = self.copy()
        for k, each in enumerate(self.objectives[:place]):
            if each.name in reached:
                fresh = fresh.keeping(k, *reached[each.name])
        fresh.objectives = self.objectives[place : place + 1]
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


def _objective_expression(problem: Statement, objective: Objective) -> Expression:
    terms = np.zeros(len(objective.columns), np.int64), objective.columns, objective.values
    single = Index((), {}, {}, 1, True)
    return problem.combined(single, terms, np.array([objective.constant]), objective.unit, objective.formula)
