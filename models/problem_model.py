"""Problem and model files in the machinery of models: solved, shown, exported, changed and verified like instances."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, ClassVar, Self

from flowlex.formulations.language.program_conversion import statement_of_content
from flowlex.formulations.solver_outcome import EngineError
from flowlex.instances.input_errors import InstanceError
from flowlex.instances.instance_base import Instance
from flowlex.instances.model_changes import read_changes
from flowlex.instances.problem import ProblemInstance
from flowlex.models.model import Model
from flowlex.models.problem import Problem
from flowlex.models.problem_changes import apply_changes
from flowlex.models.problem_solution import ProblemSolution
from flowlex.models.solution import ModelError
from flowlex.validation.certificates.certificate import Certificate
from flowlex.validation.certificates.proof_time_budget import Budget
from flowlex.validation.proofs.solution_file import verify_solution


class ProblemModel(Model):
    r"""A problem of one's own, as its file states it.

    Parameters
    ----------
    data
        A problem file, or a model file (``.mps``, ``.lp``).
    changes
        Rules of one's own and other changes, made after the statement.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from flowlex import solve
    >>> path = Path(tempfile.mkdtemp(), "small.lp")
    >>> _ = path.write_text("Maximize\n gain: 3 x + 2 y\nSubject To\n room: x + y <= 4\nEnd\n")
    >>> solve(path)["x"].to_dict()
    {'x': 4.0}
    """

    kind: ClassVar[str] = "problem"
    title: ClassVar[str] = "A problem of one's own"
    data: ProblemInstance

    @cached_property
    def problem(self) -> Problem:
        """The problem, with all changes.

        Raises `InstanceError`: the file states none; names file, place and reason.
        """
        given = self.data
        try:
            stated = statement_of_content(Problem, given.format, given.content, given.name)
        except ValueError as error:
            reason, place = getattr(error, "reason", str(error)), getattr(error, "place", "")
            raise InstanceError(str(reason), place=str(place), path=given.file or None) from error
        every = self.changes if given.changes is None else given.changes.also(*self.changes)
        return apply_changes(stated, every)

    def solve(
        self,
        engine: str = "auto",
        *,
        certify: bool = True,
        start: Any = None,
        report: Callable[[ProblemSolution], None] | None = None,
        **options: Any,
    ) -> ProblemSolution:
        """Solve to a proven optimum; see `flowlex.Problem.solve`.

        ``engine``: ``auto`` and ``highs`` call HiGHS; so does ``pulp``, unless ``solver`` names a PuLP solver.

        Raises
        ------
        EngineError
            The engine solves no problems, or an option does not exist.
        """
        if engine == "network":
            raise EngineError("engine 'network' solves networks of kind min-cost-flow; use 'highs' or 'pulp'")
        direct = engine == "pulp" and options.get("solver") is None
        return super().solve("auto" if direct else engine, certify=certify, start=start, report=report, **options)

    @classmethod
    def of_document(cls, document: Mapping[str, Any], instance: ProblemInstance) -> Self:
        """The problem of a file with the changes that a solution file states.

        Parameters
        ----------
        document
            Content of the solution file.
        instance
            The problem file.
        """
        if document.get("options"):
            raise ModelError("options: a problem has none")
        return cls(instance, changes=read_changes(dict(document.get("changes") or {"changes": []})))

    @classmethod
    def verify_document(
        cls, document: Mapping[str, Any], instance: Instance, budget: Budget | None = None
    ) -> Certificate:
        """Prove or refuse a solution file from the problem's file; changes are those that the solution states."""
        assert isinstance(instance, ProblemInstance)
        return verify_solution(
            document,
            cls.of_document(document, instance).problem,
            kind="problem",
            name=None,
            fingerprint=instance.fingerprint,
            stated_in=instance.file or "this file",
            budget=budget,
        )
