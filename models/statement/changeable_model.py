"""The part of every model that changes it: variables and rows by name, and changes that return a new model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import ValidationError

from flowlex.instances.field_types import Part
from flowlex.instances.input_errors import first_fault
from flowlex.instances.model_changes import (
    Bounds,
    Changes,
    Constraint,
    Cost,
    Drop,
    Fix,
    Relaxed,
    Variable,
    read_changes,
)
from flowlex.models.solution import ModelError
from flowlex.models.statement.apply_changes import apply_changes
from flowlex.models.statement.rows_and_objectives import LabelledRows, Statement
from flowlex.models.statement.user_expressions import LabelledVariables, Rule, Sum

if TYPE_CHECKING:
    from flowlex.instances.instance_base import Instance


class Changeable:
    """Changes of a model: each call returns a new model and leaves the old one unchanged.

    Every change is checked when it is made: a name or label that does not exist raises `ModelError`.
    """

    if TYPE_CHECKING:
        instance: Instance
        changes: Changes
    #: The stage whose value is the objective of the solution; empty: the last stage.
    main_stage: ClassVar[str] = ""

    def _state(self) -> Statement:
        """The unchanged statement; a subclass may override it, and its own statement is then solved."""
        raise ModelError(f"{type(self).__name__} has no statement, so that it takes no changes")

    @property
    def all_changes(self) -> Changes:
        """The changes of the instance, then those of the model."""
        own = self.instance.changes
        return self.changes if own is None else own.also(*self.changes)

    @cached_property
    def unchanged_statement(self) -> Statement:
        """Variables, rows and stages of the model before any change."""
        return self._state()

    @cached_property
    def statement(self) -> Statement:
        """Variables, rows and stages after all changes."""
        return self._applied(self.unchanged_statement, self.all_changes)

    def _applied(self, statement: Statement, changes: Changes) -> Statement:
        """The statement after these changes, which are the last ones of the model."""
        return apply_changes(statement, changes)

    @property
    def objective_stage(self) -> str:
        """Name of the stage whose value is the objective."""
        return self.main_stage or self.unchanged_statement.stages[-1].name

    @property
    def variables(self) -> Mapping[str, LabelledVariables]:
        """The variables by name; ``model.variables["x"].sel(...)`` selects by label."""
        return self.statement.labelled

    @property
    def constraints(self) -> Mapping[str, LabelledRows]:
        """The rows by name."""
        return self.statement.labelled_rows()

    def with_changes(self, changes: Changes | Mapping[str, Any] | str | Path) -> Self:
        """The model with more changes: a document, plain data, or a file of them.

        Raises
        ------
        InstanceError
            The input is no document of changes.
        ModelError
            A change names something that does not exist.
        """
        more = read_changes(dict(changes) if isinstance(changes, Mapping) else changes)
        return self._with(*more) if more else self

    def _with(self, *changes: Any) -> Self:
        changed: Self = replace(self, changes=self.changes.also(*changes))  # type: ignore[type-var]
        changed.__dict__["unchanged_statement"] = self.unchanged_statement
        changed.__dict__["statement"] = changed._applied(self.statement, Changes(changes=changes))
        return changed

    def _made(self, what: str, kind: type[Part], **fields: Any) -> Self:
        """The model with one more change of a kind; `ModelError` names a field that is wrong."""
        try:
            change = kind(**fields)
        except ValidationError as error:
            raise ModelError(f"{what}: {': '.join(first_fault(error))}") from error
        return self._with(change)

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
        if not isinstance(rule, Rule):
            raise ModelError(f"with_constraint({name!r}): expected a rule such as x.sum() <= 3, got {rule!r:.80}")
        self._owned(rule.expression)
        terms, relation, rhs = rule.expression.terms, rule.relation, rule.rhs
        return self._made(
            f"rule {name!r}", Constraint, name=name, terms=terms, relation=relation, rhs=rhs, allow_empty=allow_empty
        )

    def without(self, name: str, rows: str | Sequence[str] | None = None) -> Self:
        """Drop rows of the model: all of a name, or those with these labels.

        Raises
        ------
        ModelError
            There are no such rows, or the model has no meaning without them.
        """
        labels = None if rows is None else (rows,) if isinstance(rows, str) else tuple(rows)
        return self._with(Drop(name=name, rows=labels))

    def with_fixed(self, variables: LabelledVariables, value: float | int | Fraction | str) -> Self:
        """Fix variables to a value.

        Raises
        ------
        ModelError
            The value lies outside the bounds of one of them.
        """
        self._owned(variables)
        return self._made("with_fixed", Fix, variables=variables.term, value=value)

    def with_bounds(
        self,
        variables: LabelledVariables,
        lower: float | int | Fraction | str | None = None,
        upper: float | int | Fraction | str | None = None,
    ) -> Self:
        """Give variables other bounds.

        Raises
        ------
        ModelError
            A lower bound is above an upper one; names both.
        """
        self._owned(variables)
        return self._made("with_bounds", Bounds, variables=variables.term, lower=lower, upper=upper)

    def with_cost(self, cost: Sum | LabelledVariables, stage: str | None = None) -> Self:
        """Add a cost to a stage (the main one when None), in its unit.

        Raises
        ------
        ModelError
            There is no such stage.
        """
        self._owned(cost)
        total = cost.sum() if isinstance(cost, LabelledVariables) else cost
        return self._with(Cost(stage=stage or self.objective_stage, terms=total.terms))

    def with_variable(
        self,
        name: str,
        *,
        upper: float | int | Fraction | str,
        lower: float | int | Fraction | str = 0,
        integer: bool = False,
        **levels: Sequence[str | int | float],
    ) -> Self:
        """Add user-defined variables, one for each combination of the labels, for own rows and costs.

        Raises
        ------
        ModelError
            The name is taken, or the bounds contradict each other.
        """
        labels = {level: tuple(values) for level, values in levels.items()}
        return self._made(
            f"with_variable({name!r})", Variable, name=name, levels=labels, lower=lower, upper=upper, integer=integer
        )

    def relaxed(self, *names: str) -> Self:
        """Drop the integrality of the variables with these names, or of all if none is given."""
        return self._with(Relaxed(variables=names or None))

    def _owned(self, expression: Sum | LabelledVariables) -> None:
        """Raise `ModelError` where an expression was made from the variables of another model."""
        indices = expression.indices if isinstance(expression, Sum) else {expression.name: expression.labels}
        for name, index in indices.items():
            mine = self.statement.columns.get(name)
            if mine is not index and (mine is None or mine.levels != index.levels):
                raise ModelError(f"{name} belongs to another model; take it from this model's variables")
