"""Solve the statement of a model stage by stage, read answers of any solver, and write the statement to files.

What only some methods need is imported when they are called: models solve most instances by their own methods.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from typing_extensions import TypeVar

from flowlex.formulations.flow_network import FlowNetwork
from flowlex.formulations.program_arrays import Floats
from flowlex.formulations.solver_outcome import EngineError, EngineName, SolveOptions
from flowlex.instances.file_storage import refuse_existing
from flowlex.instances.model_changes import Cost
from flowlex.models.model_options import plain_options
from flowlex.models.solution import Solution, Stated, plain
from flowlex.models.statement.changeable_model import Changeable
from flowlex.validation.certificates import CertificateError, verify

if TYPE_CHECKING:
    import pulp

    from flowlex.formulations.linear_program import LinearProgram
    from flowlex.models.statement.matrix_structure import Structure
    from flowlex.models.statement.solve_statement import StatementRun

SolutionT = TypeVar("SolutionT", bound=Solution)


class StatedModel(Changeable, Generic[SolutionT]):
    """The methods of `flowlex.models.model_base.Model` that work on its statement."""

    if TYPE_CHECKING:
        name: ClassVar[str]

        @property
        def formulation(self) -> LinearProgram | FlowNetwork: ...

    #: The class that declares the problem, and whether a subclass states another one.
    _family: ClassVar[type | None] = None
    _restated: ClassVar[bool] = False

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
        from flowlex.models.statement.matrix_structure import structure_of

        return structure_of(self.statement, time_limit)

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
        order = [each.name for each in self.statement.stages]
        earlier = order[: order.index(self.statement.stage(stage).name)] if stage is not None else []
        kept = {name: Fraction(before[name]) for name in earlier if name in before} if before else {}
        return self.statement.stage_program(stage, kept)

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
        from flowlex.models.statement.solve_statement import feasible_run, read_values

        x = read_values(self.statement, values)
        solution = self._read(feasible_run(self.statement, x))
        certificate = verify(solution.to_dict(), self.instance)
        if failed := "; ".join(f"{c.name}: {c.detail or c.worst}" for c in certificate.checks if not c.ok):
            raise CertificateError(f"{self.name}: {self.instance.name}: the values are no answer ({failed})")
        return replace(solution, certificate=certificate)

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

    def _run_statement(self, engine: EngineName, options: SolveOptions, start: Solution | None) -> StatementRun:
        """Solve the statement, from an earlier solution if given."""
        from flowlex.models.statement.solve_statement import run_statement, start_values

        self._check_engine(engine, options)
        values = None if start is None else start_values(self.statement, start)
        return run_statement(self.statement, options, main=self.objective_stage, start=values)

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

    def _read(self, run: StatementRun) -> SolutionT:
        """The solution of a solved statement."""
        main = self.objective_stage
        objective, bound = run.stages.get(main), run.bounds.get(main)
        if objective is not None:
            bound = None if bound is None else self._objective_of({**run.stages, main: bound})
            objective = self._objective_of(run.stages)
        gap = None
        if objective is not None and bound is not None:
            gap = float(abs(objective - bound) / max(Fraction(1), abs(objective)))
        facts = {
            "model": self.name,
            "source": self.instance,
            "options": plain_options(type(self), self),
            "engine": run.outcome.engine,
            "status": run.outcome.status,
            "objective": None if objective is None else plain(objective),
            "bound": None if bound is None else plain(bound),
            "gap": gap,
            "message": run.outcome.message,
            "infeasibility": run.outcome.infeasibility,
        }
        answered = run.answered
        values, slack = (run.document(), run.slack()) if answered else (None, {})
        return replace(
            self._solution_of(run.values if answered else None, facts),
            changes=self.changes,
            stated=Stated(run.method, values, run.proof, slack),
            stages={name: plain(value) for name, value in run.stages.items()},
            duals=run.duals,
        )

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
