"""Changes that models of all kinds take alike: each returns a new model, and stands in its file as a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Self, TypeAlias

from pydantic import ValidationError

from flowlex.instances.field_types import Part
from flowlex.instances.input_errors import first_fault
from flowlex.instances.model_changes import Bounds, Changes, Fix, Relaxed, Term, Variable, read_changes
from flowlex.models.solution import ModelError

Number: TypeAlias = float | int | Fraction | str


class Changeable:
    """A model whose problem can be changed.

    Changes return a new model and leave the old one unchanged. Each is checked when it is made: a name or label that
    does not exist raises an error that names it.
    """

    def _with(self, *changes: Any) -> Self:
        """The model with more changes, applied to its problem."""
        raise NotImplementedError

    def _terms(self, variables: Any) -> Sequence[Term]:
        """Variables of this model as a change names them; an error if they are of another."""
        raise NotImplementedError

    def _made(self, what: str, kind: type[Part], fields: Sequence[Mapping[str, Any]]) -> Self:
        """The model with more changes of a kind; `ModelError` names a field that is wrong."""
        try:
            changes = [kind(**each) for each in fields]
        except ValidationError as error:
            raise ModelError(f"{what}: {': '.join(first_fault(error))}") from error
        return self._with(*changes)

    def with_changes(self, changes: Changes | Mapping[str, Any] | str | Path) -> Self:
        """The model with more changes: a document, plain data, or a file of them.

        Parameters
        ----------
        changes
            The changes, in their order.

        Raises
        ------
        InstanceError
            The input is no document of changes.
        FlowlexError
            A change names something that does not exist.
        """
        more = read_changes(dict(changes) if isinstance(changes, Mapping) else changes)
        return self._with(*more) if more else self

    def with_fixed(self, variables: Any, value: Number) -> Self:
        """Fix variables to a value.

        Parameters
        ----------
        variables
            Variables of one name, such as ``x.sel(worker="ann")``.
        value
            The number at which each is fixed.

        Raises
        ------
        FlowlexError
            The value lies outside the bounds of one of them.
        """
        return self._made("with_fixed", Fix, [{"variables": term, "value": value} for term in self._terms(variables)])

    def with_bounds(self, variables: Any, lower: Number | None = None, upper: Number | None = None) -> Self:
        """Give variables other bounds.

        Parameters
        ----------
        variables
            Variables of one name, such as ``x.sel(worker="ann")``.
        lower, upper
            Smallest and largest value; a side that is not given stays.

        Raises
        ------
        FlowlexError
            A lower bound is above an upper one; names both.
        """
        sides = {"lower": lower, "upper": upper}
        return self._made("with_bounds", Bounds, [{"variables": term, **sides} for term in self._terms(variables)])

    def with_variable(
        self, name: str, *, upper: Number, lower: Number = 0, integer: bool = False, **levels: Sequence[Any]
    ) -> Self:
        """Add variables of one's own, one for each combination of the labels, for own rows and costs.

        Parameters
        ----------
        name
            Their name.
        lower, upper
            Smallest and largest value, both finite.
        integer
            Whether they take whole numbers only.
        **levels
            Labels by level.

        Raises
        ------
        FlowlexError
            The name is taken, or the bounds contradict each other.
        """
        labels = {level: tuple(values) for level, values in levels.items()}
        fields = {"name": name, "levels": labels, "lower": lower, "upper": upper, "integer": integer}
        return self._made(f"with_variable({name!r})", Variable, [fields])

    def relaxed(self, *names: str) -> Self:
        """Drop the integrality of the variables with these names, or of all if none is given.

        Parameters
        ----------
        *names
            Names of variables; all when omitted.
        """
        return self._made("relaxed", Relaxed, [{"variables": names or None}])
