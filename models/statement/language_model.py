"""The part of a model that is stated in the language: its problem, from which changes and mathematics follow."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from flowlex.models.model_equations import html_table
from flowlex.models.solution import ModelError
from flowlex.models.statement.rows_and_objectives import Statement

if TYPE_CHECKING:
    from flowlex.models.problem import Problem


class LanguageModel:
    """A model with ``state(p)``; the class comes before `flowlex.models.model_base.Model` among the bases."""

    #: What the site shows: caption, generator of the instance, options.
    examples: ClassVar[tuple[tuple[str, str, Mapping[str, Any]], ...]] = ()
    #: Rows that no change may drop, and why.
    needed: ClassVar[Mapping[str, str]] = {}

    def state(self, p: Problem) -> None:
        """State the unchanged model.

        Parameters
        ----------
        p
            The problem to state.
        """
        raise NotImplementedError

    @cached_property
    def problem(self) -> Problem:
        """The unchanged model, stated in the language."""
        from flowlex.models.problem import Problem

        p = Problem(self.instance.name)  # type: ignore[attr-defined]
        self.state(p)
        return p

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
            return html_table(f"{self.title}: {self.instance.name}", {"mathematics": str(error)})  # type: ignore[attr-defined]

    def _state(self) -> Statement:
        from flowlex.models.statement.from_language import statement_of

        return statement_of(self.problem, self.needed)
