"""What the models of all families do with their statement: change it, solve it, export it, read answers of any solver.

A model states itself in the language (`StatedModel.state`). Changes are documents
(`flowlex.instances.model_changes`): they apply to that problem here, and to its restatement in the verifiers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self

import numpy as np
from typing_extensions import TypeVar

from flowlex.formulations.flow_network import FlowNetwork
from flowlex.formulations.program_arrays import Floats
from flowlex.formulations.solver_outcome import EngineError, EngineName, Infeasibility, SolveOptions, Status
from flowlex.instances.file_storage import refuse_existing
from flowlex.instances.model_changes import Changes, Constraint, Cost, Drop, Rows, Term, Variable
from flowlex.models.changeable import Changeable
from flowlex.models.html_report import html_table
from flowlex.models.model_options import plain_options
from flowlex.models.problem_solution import stage_duals
from flowlex.models.solution import Dual, ModelError, Solution, Stated, plain
from flowlex.validation.certificates import CertificateError, verify
from flowlex.validation.proofs.exact_program import ExactProgram
from flowlex.validation.proofs.proof import number, to_document

if TYPE_CHECKING:
    import pulp

    from flowlex.formulations.language.statement import Statement
    from flowlex.formulations.linear_program import LinearProgram
    from flowlex.instances.instance_base import Instance
    from flowlex.models.labelled_variables import LabelledRows, LabelledVariables, Rule, Sum
    from flowlex.models.matrix_structure import Structure
    from flowlex.models.problem import Problem
    from flowlex.models.problem_solution import ProblemSolution

SolutionT = TypeVar("SolutionT", bound=Solution)
#: Tolerance for values of integer variables that come from outside.
_WHOLE = 1e-5


class StatedModel(Changeable, Generic[SolutionT]):
    """The methods of `flowlex.models.model_base.Model` that work on its statement."""

    if TYPE_CHECKING:
        name: ClassVar[str]
        instance: Instance
        changes: Changes

        @property
        def formulation(self) -> LinearProgram | FlowNetwork: ...

        title: ClassVar[str]

        @classmethod
        def declared(cls) -> frozenset[str]: ...

        def _own_goals(self) -> tuple[Any, ...]: ...

    #: What the site shows: caption, generator of the instance, options.
    examples: ClassVar[tuple[tuple[str, str, Mapping[str, Any]], ...]] = ()
    #: Rows that no change may drop, and why.
    needed: ClassVar[Mapping[str, str]] = {}
    #: The objective that is that of the solution; empty: the last.
    main_stage: ClassVar[str] = ""
    #: The class that declares the problem, and whether a subclass states another one.
    _family: ClassVar[type | None] = None
    _restated: ClassVar[bool] = False

    def state(self, p: Problem) -> None:
        """State the unchanged model; a subclass may override it, and its own statement is then solved.

        Parameters
        ----------
        p
            The problem to state.
        """
        raise ModelError(f"{type(self).__name__} has no statement, so that it takes no changes")

    @cached_property
    def unchanged_problem(self) -> Problem:
        """The model before any change, stated in the language."""
        return self._unchanged()

    def _unchanged(self) -> Problem:
        from flowlex.models.problem import Problem

        p = Problem(self.instance.name)
        self.state(p)
        return p

    @cached_property
    def problem(self) -> Problem:
        """The model with all changes, stated in the language."""
        return self._applied(self.unchanged_problem, self.all_changes)

    @property
    def all_changes(self) -> Changes:
        """The changes of the instance, then those of the model."""
        own = self.instance.changes
        return self.changes if own is None else own.also(*self.changes)

    @property
    def unchangeable(self) -> str:
        """Why the model takes no changes; empty if it does."""
        return ""

    def _applied(self, problem: Problem, changes: Changes) -> Problem:
        """A problem after these changes, which are the last ones of the model."""
        if changes and (why := self.unchangeable):
            raise ModelError(f"{type(self).__name__} takes no changes: {why}")
        every = self.all_changes
        taken = {each.name for each in every if isinstance(each, Variable)}
        taken |= {f"stage_{o.name}" for o in problem.objectives}
        for each in changes:
            if isinstance(each, Constraint) and each.name in taken:
                raise ModelError(
                    f"rule {each.name!r}: rows, a stage or own variables of that name exist already in the model; "
                    "choose another name"
                )
            if isinstance(each, Rows):
                raise ModelError(
                    f"rows {each.name!r}: changes of kind 'rows' are of models of one's own; write a 'constraint'"
                )
        from flowlex.formulations.language.labels import StatementError
        from flowlex.models.problem_changes import apply_changes

        try:
            return apply_changes(problem, changes, self.needed)
        except StatementError as error:
            raise ModelError(str(error)) from error

    def _inherit(self, before: StatedModel[SolutionT], changes: Sequence[Any]) -> None:
        """Take the problem of a model with fewer changes, and apply the last ones."""
        self.__dict__["unchanged_problem"] = before.unchanged_problem
        self.__dict__["problem"] = self._applied(before.problem, Changes(changes=tuple(changes)))

    @property
    def objective_stage(self) -> str:
        """Name of the stage whose value is the objective."""
        return self.main_stage or self.unchanged_problem.objectives[-1].name

    @property
    def variables(self) -> Mapping[str, LabelledVariables]:
        """The variables by name; ``model.variables["x"].sel(...)`` selects by label."""
        from flowlex.models.labelled_variables import LabelledVariables, Named

        each = {name: LabelledVariables(name, block.index, {}) for name, block in self.problem.blocks.items()}
        return Named("variables named", each)

    @property
    def constraints(self) -> Mapping[str, LabelledRows]:
        """The rows by name."""
        from flowlex.models.labelled_variables import LabelledRows, Named

        own = {each.name for each in self.all_changes if isinstance(each, Constraint)}
        each = {name: LabelledRows(block, name in own) for name, block in self.problem.rows.items()}
        return Named("rows named", each)

    def _with(self, *changes: Any) -> Self:
        changed: Self = replace(self, changes=self.changes.also(*changes))  # type: ignore[type-var]
        changed._inherit(self, changes)
        return changed

    def _terms(self, variables: LabelledVariables) -> tuple[Term, ...]:
        self._owned(variables)
        return (variables.term,)

    def with_constraint(self, name: str, rule: Rule, *, allow_empty: bool = False) -> Self:
        """Add user-defined rows.

        Parameters
        ----------
        name
            Name of the rows, in duals and certificates.
        rule
            Such as ``x.sel(job="A").sum() <= 3`` or ``x.sum(by=["job", "node"]) <= 2``.
        allow_empty
            Accept rows over no variable.

        Raises
        ------
        ModelError
            The name is taken, the rule is over no variable, or its labels are of another model.

        Examples
        --------
        >>> from flowlex import generate, model_for
        >>> model = model_for(generate("network-random"))
        >>> flow = model.variables["flow"]
        >>> changed = model.with_constraint("little_from_0", flow.sel(tail="0").sum() <= 20)
        >>> changed.solve().status.value
        'optimal'
        """
        from flowlex.models.labelled_variables import Rule

        if not isinstance(rule, Rule):
            raise ModelError(f"with_constraint({name!r}): expected a rule such as x.sum() <= 3, got {rule!r:.80}")
        self._owned(rule.expression)
        terms, relation, rhs = rule.expression.terms, rule.relation, rule.rhs
        fields = {"name": name, "terms": terms, "relation": relation, "rhs": rhs, "allow_empty": allow_empty}
        return self._made(f"rule {name!r}", Constraint, [fields])

    def without(self, name: str, rows: str | Sequence[str] | None = None) -> Self:
        """Drop rows of the model: all of a name, or those with these labels.

        Raises
        ------
        ModelError
            There are no such rows, or the model has no meaning without them.
        """
        labels = None if rows is None else (rows,) if isinstance(rows, str) else tuple(rows)
        return self._with(Drop(name=name, rows=labels))

    def with_cost(self, cost: Sum | LabelledVariables, stage: str | None = None) -> Self:
        """Add a cost to a stage (the main one when None), in its unit.

        Raises
        ------
        ModelError
            There is no such stage.
        """
        from flowlex.models.labelled_variables import LabelledVariables

        self._owned(cost)
        total = cost.sum() if isinstance(cost, LabelledVariables) else cost
        return self._with(Cost(stage=stage or self.objective_stage, terms=total.terms))

    def _owned(self, expression: Sum | LabelledVariables) -> None:
        """Raise `ModelError` where an expression was made from the variables of another model."""
        from flowlex.models.labelled_variables import Sum

        indices = expression.indices if isinstance(expression, Sum) else {expression.name: expression.labels}
        mine = self.variables
        for name, index in indices.items():
            known = mine[name].labels if name in mine else None
            if known is index:
                continue
            same = known is not None and [(k, v.labels) for k, v in known.levels.items()] == [
                (k, v.labels) for k, v in index.levels.items()
            ]
            if not same:
                raise ModelError(f"{name} belongs to another model; take it from this model's variables")

    # ---- solving

    @property
    def as_stated(self) -> bool:
        """Whether the statement itself is solved: the model is changed, or a subclass states another problem."""
        return bool(self.all_changes) or self._restated

    @property
    def method(self) -> str:
        """How the model is solved, and why."""
        if self._restated:
            return "integer or linear program, stage by stage: a subclass states another problem"
        if self.all_changes:
            count = len(self.all_changes.changes)
            return f"integer or linear program, stage by stage: the model has {count} change{'s' if count > 1 else ''}"
        return "the quickest method of the unchanged model"

    def structure(self, time_limit: float = 10.0) -> Structure:
        """Classify the rows: network, totally unimodular, integers implied or integer program, with what was lost.

        Parameters
        ----------
        time_limit
            Processor seconds of each call of the checker.
        """
        from flowlex.models.matrix_structure import structure_of

        own = [each.name for each in self.all_changes if isinstance(each, Constraint)]
        return structure_of(self.problem, [name for name in own if name in self.problem.rows], time_limit)

    def compile(self, stage: str | None = None, before: Mapping[str, Any] | None = None) -> pulp.LpProblem:
        """The model as a PuLP problem, to read, to export, or to solve with any PuLP solver (see `interpret`).

        For a changed model, or with ``stage`` or ``before``, the program of that stage of the statement.

        Parameters
        ----------
        stage
            Name of the stage; the first when None.
        before
            Values at which earlier stages are fixed, such as ``solution.stages``; later stages are ignored.
        """
        return self._stage_program(stage, before).to_pulp()

    def _stage_program(self, stage: str | None, before: Mapping[str, Any] | None) -> LinearProgram:
        """The program that `compile` and `write` state."""
        if stage is None and before is None and not self.as_stated:
            formulation = self.formulation
            return formulation.to_linear_program() if isinstance(formulation, FlowNetwork) else formulation
        from flowlex.formulations.language.program_conversion import flat_program

        return flat_program(self.stage_problem(stage, before), 0)

    def stage_problem(self, stage: str | None = None, before: Mapping[str, Any] | None = None) -> Problem:
        """The problem of one objective (the first when None), with those before it at their values.

        Parameters
        ----------
        stage
            Name of the objective.
        before
            Values of objectives before it, such as ``solution.stages``; others are left free.
        """
        from flowlex.formulations.language.labels import StatementError

        try:
            return self.problem.alone(stage, before)
        except StatementError as error:
            raise ModelError(str(error)) from error

    def interpret(self, values: Mapping[str, Any] | str | Path | pulp.LpProblem) -> SolutionT:
        """Convert the answer of any solver to a solution of the model.

        Parameters
        ----------
        values
            A solved PuLP problem that `compile` made of the statement, or values of its columns: by variable and label
            (``{"x": {"t1,g1": 1}}``) or by name (``{"x[t1,g1]": 1}``), also as `write` spells it; columns that are not
            named are 0. Or the path of a solution file of HiGHS, SCIP, Gurobi or CBC.

        Returns
        -------
        Solution
            With a certificate of every row and of the value of each stage. It claims no optimum.

        Raises
        ------
        ModelError
            A name does not exist, or a value is missing from the problem.
        CertificateError
            The values break a row; names it.
        """
        from flowlex.formulations.language.labels import StatementError

        try:
            x = self.problem.read_values(values)
            self._check_integers(x)
            found = self.problem.judged(x, "given", "")
        except StatementError as error:
            raise ModelError(str(error)) from error
        words = "Values from outside; no optimum is claimed."
        solution = self._read(replace(found, status=Status.FEASIBLE, message=words))  # the verifier judges them
        certificate = verify(solution.to_dict(), self.instance, goals=self._own_goals())
        if failed := "; ".join(f"{c.name}: {c.detail or c.worst}" for c in certificate.checks if not c.ok):
            raise CertificateError(f"{self.name}: {self.instance.name}: the values are no answer ({failed})")
        return replace(solution, certificate=certificate)

    def _check_integers(self, x: Floats) -> None:
        for block in self.problem.blocks.values():
            mine = x[block.columns]
            apart = block.integer & (np.abs(mine - np.rint(mine)) > _WHOLE)
            if apart.any():
                k = int(np.argmax(apart))
                raise ModelError(
                    f"{block.names(np.array([k]))[0]} is integer, its value is {mine[k]:g}; solve the integer program, "
                    "or use model.relaxed()"
                )

    def write(
        self,
        path: str | Path,
        stage: str | None = None,
        before: Mapping[str, Any] | None = None,
        *,
        force: bool = False,
    ) -> Path:
        """Write the program of a stage (see `compile`) for other solvers, with its sense, constant and names.

        Parameters
        ----------
        path
            Target file, ``.lp`` or ``.mps``, also ``.gz``.
        stage, before
            See `compile`.
        force
            Whether to overwrite a file that is there already.

        Raises
        ------
        ProgramFileError
            The name ends otherwise, or the format cannot state the program.
        FileExistsError
            The file is there already; use ``force=True``.
        """
        from flowlex.formulations.program_files import program_format, write_program

        target = Path(path)
        program_format(target)
        refuse_existing(target, force=force)
        write_program(self._stage_program(stage, before).named(), target)
        return target

    def _prepare_statement(self) -> None:
        """Build what solving the statement needs."""
        _ = self.problem

    def _run_statement(
        self, engine: EngineName, options: SolveOptions, start: Solution | None, certify: bool
    ) -> ProblemSolution:
        """Solve the statement, from an earlier solution if given."""
        from flowlex.models.incumbents import offer

        self._check_engine(engine, options)
        return self.problem.solve_with(
            replace(options, offer=None),
            certify=certify,
            leaves=not certify,  # `flowlex verify` can still judge the file
            first=self._start_values(start),
            report=None if options.offer is None else lambda found: offer(options, lambda: found, often=True),
        )

    def _start_values(self, start: Solution | None) -> Floats | None:
        """Values of an earlier answer for the variables that still exist; None if it holds no values."""
        if start is None or start.stated is None or start.stated.values is None:
            return None
        found = np.zeros(self.problem.column_count)
        for name, block in self.problem.blocks.items():
            given = start.stated.values.get(name, {})
            if given:
                found[block.columns] = [float(given.get(text, 0)) for text in block.index.plain_texts()]
        return found

    @staticmethod
    def _check_engine(engine: EngineName, options: SolveOptions) -> None:
        """Raise `EngineError` for an engine that cannot solve changed models."""
        if engine == "network":
            raise EngineError("engine 'network' solves unchanged networks; use 'highs' or 'pulp' for a changed model")
        if options.solver is not None:
            raise EngineError(
                "a changed model is solved stage by stage by HiGHS; hand model.compile() to your solver, and what it "
                "solved to model.interpret()"
            )

    def _read(self, found: ProblemSolution) -> SolutionT:
        """The solution of the model for that of its problem."""
        stages = {name: stage.exact[0] for name, stage in found.stages.items()}
        proven = found.certificate is None or found.certificate.claim == found.status
        facts = self._stated_facts(
            stages,
            {name: stage.exact[1] for name, stage in found.stages.items()},
            status=Status.FEASIBLE if found.status is Status.OPTIMAL and not proven else found.status,
            message=found.message,
            reason=self._reason(found),
        )
        answered = found.status.has_answer and found.numbers is not None
        values = None
        if answered and found.numbers is not None:
            values = {name: found.numbers[block.columns] for name, block in found.problem.blocks.items()}
        return replace(
            self._solution_of(values, facts),
            changes=self.changes,
            stated=self._stated_answer(found, answered),
            stages={name: plain(value) for name, value in stages.items()},
            duals=duals_of_stage(found, self.objective_stage),
        )

    def _reason(self, found: ProblemSolution) -> Infeasibility | None:
        """Why there is no answer: rules of one's own come first; all of them if the linear program has an answer."""
        reason = found.infeasibility
        if reason is None:
            return None
        own = [each.name for each in self.all_changes if isinstance(each, Constraint)]
        if not reason.constraints and not reason.bounds:
            needed = tuple(name for name in own if name in found.problem.rows)
            text = f"No answer satisfies all rows; own rules: {', '.join(needed) or 'none'}."
            return Infeasibility(text, needed)
        names = sorted(reason.constraints, key=lambda name: name.partition("[")[0] not in own)
        return replace(reason, constraints=tuple(names))

    def _stated_facts(
        self,
        stages: Mapping[str, Fraction],
        bounds: Mapping[str, Fraction | None],
        *,
        status: Status,
        message: str,
        reason: Infeasibility | None,
    ) -> dict[str, Any]:
        """The fields that every solution takes; values and bounds of stages are in their units."""
        main = self.objective_stage
        objective = bound = gap = None
        if main in stages:
            objective = self._objective_of(stages)
            if (reached := bounds.get(main)) is not None:
                bound = self._objective_of({**stages, main: reached})
                gap = float(abs(objective - bound) / max(Fraction(1), abs(objective)))
        return {
            "model": self.name,
            "source": self.instance,
            "options": plain_options(type(self), self),
            "engine": "highs",
            "status": status,
            "objective": None if objective is None else plain(objective),
            "bound": None if bound is None else plain(bound),
            "gap": gap,
            "message": message,
            "infeasibility": reason,
        }

    def _stated_answer(self, found: ProblemSolution, answered: bool) -> Stated:
        """Values, proof and slack by name and label."""
        blocks, exact = found.problem.blocks, found.exact
        values: dict[str, dict[str, Any]] = {}
        for name, block in blocks.items():
            if not answered or exact is None:
                break
            used = np.flatnonzero(exact.numbers[block.columns])
            if len(used):
                each = (int(v) * exact.unit for v in exact.numbers[block.columns][used].tolist())
                values[name] = dict(zip(block.index.plain_texts(used), each, strict=True))
        proof: dict[str, Any] = {}
        if found.program is not None:
            written = to_document(found.found, in_plain_labels(found.program, found.problem))
            proof = written if len(written) > 1 else {}  # the format alone is no proof
        slack = {}
        if answered:
            slack = {
                name: Dual(series.to_numpy(), found.problem.rows[name].index.plain_texts)
                for name, series in found.slack.items()
            }
        plain_values = {name: {k: plain(v) for k, v in each.items()} for name, each in values.items()}
        as_text = {name: {k: number(v) for k, v in each.items()} for name, each in values.items()}
        return Stated(self.method, plain_values if answered else None, proof, slack, as_text)

    def _objective_of(self, stages: Mapping[str, Fraction]) -> Fraction:
        """The objective as the unchanged model measures it: the main stage's value, unless a family overrides this."""
        return stages[self.objective_stage]

    @property
    def _main_cost_changed(self) -> bool:
        """Whether a change adds costs to the main stage; its value is then not the unchanged model's objective."""
        main = self.objective_stage
        return any(isinstance(change, Cost) and change.stage == main for change in self.all_changes)

    def _solution_of(self, values: Mapping[str, Floats] | None, facts: dict[str, Any]) -> SolutionT:
        """The domain solution for values of the statement's variables by name; None: a solution without answer."""
        raise NotImplementedError(f"{type(self).__name__} does not read answers of its statement")

    # ---- mathematics

    def to_latex(self) -> str:
        """The model as LaTeX, derived from its statement."""
        return self.problem.to_latex()

    def _repr_latex_(self) -> str:
        try:
            return f"$$\n{self.to_latex()}\n$$"
        except ModelError:  # `_repr_html_` says why
            return ""

    def _repr_html_(self) -> str:
        try:
            return self.problem._repr_html_()
        except ModelError as error:  # too large for a statement, or more than it can say
            return html_table(f"{self.title}: {self.instance.name}", {"mathematics": str(error)})


def duals_of_stage(found: ProblemSolution, stage: str) -> dict[str, Dual]:
    """Duals of an objective by name of the rows, where one linear program proves it."""
    place = next((k for k, o in enumerate(found.problem.objectives) if o.name == stage), None)
    if place is None or found.numbers is None:
        return {}
    duals = stage_duals(found.problem, place, found.found) or {}
    return {name: Dual(y, found.problem.rows[name].index.plain_texts) for name, y in duals.items()}


def in_plain_labels(program: ExactProgram, problem: Statement) -> ExactProgram:
    """The program of a problem with labels as solution files of our models hold them."""
    columns = [
        replace(each, texts=block.index.plain_texts)
        for each, block in zip(program.columns, problem.blocks.values(), strict=True)
    ]
    rows = {name: replace(block, texts=problem.rows[name].index.plain_texts) for name, block in program.rows.items()}
    return replace(program, columns=columns, rows=rows)
