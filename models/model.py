"""A reusable model: data and a statement. From these follow files, solving, proof, changes, mathematics and batch.

The whole of a model of one's own::

    class Shifts(fx.Model):
        '''Who works when?'''

        kind = "shifts"
        data: ShiftData                        # an `fx.Instance`: the file, its schema, its messages

        def state(self, p: fx.Problem) -> None:
            x = p.variables("x", worker=self.data.workers, shift=self.data.shifts, binary=True)
            ...
"""

from __future__ import annotations

import dataclasses
import sys
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, dataclass_transform

from pydantic import BaseModel

from flowlex.formulations.language import mathematics
from flowlex.formulations.language.expressions import Expression, Rule
from flowlex.formulations.language.program_conversion import flat_program
from flowlex.instances.extensions import register_kind
from flowlex.instances.instance_base import Instance
from flowlex.instances.model_changes import Changes, Cost, Drop, Term, read_changes
from flowlex.models.changeable import Changeable
from flowlex.models.model_options import check_option, option_types, plain_options
from flowlex.models.models_by_kind import MODELS
from flowlex.models.problem import Problem
from flowlex.models.problem_changes import apply_changes, rows_document, terms_document
from flowlex.models.problem_solution import ProblemSolution
from flowlex.models.solution import ModelError
from flowlex.validation.certificates.certificate import Certificate
from flowlex.validation.certificates.proof_time_budget import Budget
from flowlex.validation.certificates.verifier_interface import register_judge
from flowlex.validation.proofs.solution_file import verify_solution

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


@dataclass_transform(frozen_default=True, kw_only_default=False)
@dataclass(frozen=True, eq=False, repr=False)
class Model(Changeable):
    """A model: subclass it, name its ``kind``, declare ``data`` and state the problem.

    Further annotated fields with defaults are options; ``flowlex solve --set name=value`` sets them.

    Parameters
    ----------
    data
        The instance.
    changes
        Rules of one's own and other changes, made after the statement.

    Raises
    ------
    ModelError
        The instance is of another kind, or an option is wrong.
    """

    changes: Changes = field(default_factory=Changes, kw_only=True)

    if TYPE_CHECKING:
        data: Any

    kind: ClassVar[str] = ""
    title: ClassVar[str] = ""
    data_type: ClassVar[type[Instance]] = Instance
    #: The kind, as records of a batch name the model.
    name: ClassVar[str] = ""
    #: Models of one's own have no table of baselines.
    comparison: ClassVar[str] = ""
    as_stated: ClassVar[bool] = False

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        dataclass(frozen=True, eq=False, repr=False)(cls)
        if "kind" not in cls.__dict__:
            return
        if not cls.title:
            cls.title = (cls.__doc__ or cls.__name__).strip().partition("\n")[0]
        wanted = _declared(cls, "data")
        if not (isinstance(wanted, type) and issubclass(wanted, BaseModel)):
            raise TypeError(f"{cls.__name__}: declare data: MyData, with class MyData(fx.Instance)")
        if not issubclass(wanted, Instance):
            raise TypeError(
                f"{cls.__name__}: {wanted.__name__} must be a subclass of fx.Instance, which reads and checks files"
            )
        if "data" in cls.__annotations__:
            cls.__annotations__["data"] = wanted  # its name may be known only where the class is made
        register_kind(cls.kind, wanted)
        register_judge(cls.kind, cls.verify_document)
        cls.data_type, cls.name = wanted, cls.kind
        MODELS[cls.kind] = cls

    def __post_init__(self) -> None:
        wanted = self.data_type
        if not isinstance(self.data, wanted):
            raise ModelError(
                f"{type(self).__name__} takes a {wanted.__name__}, got {self.data!r:.80}; fx.read(path) reads a file"
            )
        object.__setattr__(self, "changes", read_changes(self.changes))
        for name in self.options():
            object.__setattr__(self, name, check_option(type(self), name, getattr(self, name)))

    # ---- what a subclass says

    def state(self, p: Problem) -> None:
        """State the problem of the data: variables, rows and objectives of ``p``.

        Parameters
        ----------
        p
            The problem to state, empty so far.
        """
        raise NotImplementedError(f"{type(self).__name__} states nothing; define state(self, p)")

    def answer(self, solution: ProblemSolution) -> pd.DataFrame | None:
        """The answer as a table in the user's words; None: the values that are not 0.

        Parameters
        ----------
        solution
            A solution, or for `verify` also its document or the path of its file.
        """
        return None

    def plot(self, solution: ProblemSolution, ax: Axes | None = None) -> Axes | None:
        """The answer as a picture; None: a general one.

        Parameters
        ----------
        solution
            A solution, or for `verify` also its document or the path of its file.
        ax
            Axes of matplotlib to draw on; None: those of a new figure.
        """
        return None

    # ---- what follows

    @classmethod
    def options(cls) -> dict[str, Any]:
        """Options by name, with their declared types."""
        kind: Any = cls
        return dict(option_types(kind))

    @cached_property
    def problem(self) -> Problem:
        """The statement of the data, with all changes."""
        p = Problem(self.data.name)
        self.state(p)
        every = self.changes if self.data.changes is None else self.data.changes.also(*self.changes)
        return apply_changes(p, every)

    @property
    def instance(self) -> Instance:
        """The data."""
        found: Instance = self.data
        return found

    def __getitem__(self, name: str) -> Expression:
        """Variables by name, for rules: ``model["x"].sum(by="worker") <= 3``."""
        return self.problem[name]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.kind} {self.data.name!r}>"

    def _repr_html_(self) -> str:
        return mathematics.to_html(self.problem)

    def to_latex(self) -> str:
        """The mathematics as LaTeX."""
        return self.problem.to_latex()

    def details(self) -> list[tuple[str, dict[str, Any]]]:
        """Tables for ``flowlex show`` beside the sizes: none."""
        return []

    @property
    def formulation(self) -> Any:
        """The first objective's program, for ``flowlex tu`` and ``export``."""
        return flat_program(self.problem, 0 if self.problem.objectives else None)

    def sizes(self) -> dict[str, Any]:
        """Sizes of the program."""
        p = self.problem
        return {"variables": p.column_count, "rows": p.row_count, "objectives": ", ".join(o.name for o in p.objectives)}

    def solve(
        self,
        engine: str = "auto",
        *,
        certify: bool = True,
        start: Any = None,
        report: Callable[[ProblemSolution], None] | None = None,
        **options: Any,
    ) -> ProblemSolution:
        """Solve to a certified answer; parameters as in `flowlex.Problem.solve`.

        Parameters
        ----------
        engine
            As in `flowlex.Problem.solve`.
        certify
            False: prove nothing.
        start
            An answer to begin with.
        report
            Called with the best answer so far.
        **options
            Further options, by name.
        """
        found = self.problem.solve(engine, certify=certify, start=start, report=report, **options)
        return replace(
            found,
            model=self.kind,
            source=self.data,
            options=plain_options(type(self), self),
            changes=self.changes,
            of_model=self,
        )

    def verify(
        self, solution: ProblemSolution | str | Path | Mapping[str, Any], *, budget: Budget | None = None
    ) -> Certificate:
        """Prove or refuse a solution or its file, from the data and this statement.

        Parameters
        ----------
        solution
            A solution, or for `verify` also its document or the path of its file.
        budget
            Time for the proof; what is not recomputed within it is quoted.
        """
        from flowlex.instances.files import read_json

        if isinstance(solution, (str, Path)):
            document: Any = read_json(solution)
        else:
            document = solution.to_dict() if isinstance(solution, ProblemSolution) else solution
        return verify_solution(
            document,
            self.problem,
            kind=self.kind,
            name=self.data.name,
            fingerprint=self.data.fingerprint,
            stated_in=f"the model {type(self).__name__}",
            budget=budget,
        )

    @classmethod
    def verify_document(
        cls, document: Mapping[str, Any], instance: Instance, budget: Budget | None = None
    ) -> Certificate:
        """Prove or refuse a solution file; options and changes are those that the file states.

        Parameters
        ----------
        document
            Content of a solution file.
        instance
            The instance that it is said to solve.
        budget
            Time for the proof.
        """
        options = document.get("options", {})
        if not isinstance(options, dict) or (odd := set(options) - set(cls.options())):
            raise ModelError(
                f"options of {cls.kind}: {sorted(odd)[0]!r} does not exist" if isinstance(options, dict) else "options"
            )
        changes = read_changes(dict(document.get("changes") or {"changes": []}))
        make: Any = cls
        found: Certificate = make(instance, changes=changes, **options).verify(document, budget=budget)
        return found

    # ---- changes: each returns a new model

    def _terms(self, variables: Expression) -> tuple[Term, ...]:
        self.problem._plain(variables, "variables")
        return terms_document(self.problem, variables.sum())

    def _with(self, *more: Any) -> Self:
        fresh = dataclasses.replace(self, changes=self.changes.also(*more))
        # From this model's problem, so that its variables are those of the changed model too.
        fresh.__dict__["problem"] = apply_changes(self.problem, more)
        return fresh

    def with_constraint(self, name: str, rule: Rule) -> Self:
        """The model with more rows: ``model.with_constraint("rest", model["x"].sum(by="worker") <= 5)``.

        Parameters
        ----------
        name
            Its name.
        rule
            ``left <= right``, ``>=`` or ``==``: a row for each member.
        """
        changed = self.problem.with_constraint(name, rule)
        added = [block for block in changed.rows.values() if block.name not in self.problem.rows]
        return self._with(*(rows_document(changed, block) for block in added))

    def without(self, name: str, **labels: Any) -> Self:
        """The model without rows of a name: all, or those with these labels.

        Parameters
        ----------
        name
            Its name.
        **labels
            Level to label or labels; all rows of the name when omitted.
        """
        changed = self.problem.without(name, **labels)
        if name not in changed.rows:
            return self._with(Drop(name=name))
        left = set(changed.rows[name].index.texts())
        gone = tuple(text for text in self.problem.rows[name].index.texts() if text not in left)
        return self._with(Drop(name=name, rows=gone))

    def with_cost(self, objective: str, cost: Expression) -> Self:
        """The model with something added to an objective.

        Parameters
        ----------
        objective
            Name of the objective.
        cost
            One expression, in the unit of the objective.
        """
        self.problem.with_cost(objective, cost)
        return self._with(Cost(stage=objective, terms=terms_document(self.problem, cost)))


def _declared(cls: type, name: str) -> Any:
    """The type that a class declares for a field, also where class and type are made inside a function."""
    try:
        return typing.get_type_hints(cls).get(name)
    except NameError:
        written = cls.__annotations__.get(name)
        frame = sys._getframe(2)
        while frame is not None and isinstance(written, str):
            if written in frame.f_locals:
                return frame.f_locals[written]
            frame = frame.f_back  # type: ignore[assignment]
        return written
