"""Changes of a model as a document: constraints added or dropped, variables fixed or added, bounds and costs changed.

A change names variables by their labels, such as ``{"variable": "x", "where": {"job": "A", "rack": "rack2"}}``, and
not by column number, so that models and, by separate code, the certificates can read it.

A file of changes is a JSON object::

    {"version": 1, "changes": [
        {"change": "constraint", "name": "quiet_rack", "relation": "<=", "rhs": 3,
         "terms": [{"variable": "x", "where": {"job": "A", "rack": "rack2"}}]},
        {"change": "drop", "name": "share"}]}
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, PlainSerializer, PlainValidator, StrictBool, ValidationError, WithJsonSchema

from flowlex.instances.exact_rationals import rational
from flowlex.instances.field_types import Name, Part
from flowlex.instances.input_errors import InstanceError, did_you_mean, place_in, plain_reason


def _exact(value: object) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, (int, float, str, Fraction)):
        raise ValueError("expected a number, or its text such as '3/2'")
    return rational(value)


def _written(value: Fraction) -> int | str:
    return int(value) if value.denominator == 1 else str(value)


#: An exact number: an integer, a decimal (read as written), or text such as ``"1/3"``.
Exact = Annotated[
    Fraction,
    PlainValidator(_exact),
    PlainSerializer(_written),
    WithJsonSchema({"type": ["number", "string"]}),
]
Label: TypeAlias = str | int | float


class Interval(Part):
    """Labels that are numbers, from ``at_least`` to ``at_most``, both included."""

    at_least: float | None = None
    """The smallest; none when absent."""
    at_most: float | None = None
    """The largest; none when absent."""


class Term(Part):
    """A sum of variables, one for each combination of the labels in ``by``."""

    variable: Name
    """Name of the variables."""
    where: dict[str, Label | tuple[Label, ...] | Interval] = Field(default_factory=dict)
    """Level to label, to several labels, or to an interval; all variables when empty."""
    by: tuple[str, ...] = ()
    """A row for each combination of these levels; a single row if empty."""
    coefficient: Exact = Fraction(1)
    """Coefficient of each variable."""


class Constraint(Part):
    """Additional rows: the sum of the terms, compared with a number."""

    change: Literal["constraint"] = "constraint"
    name: Name
    """Name of the rows, in duals and certificates."""
    terms: tuple[Term, ...] = Field(min_length=1)
    """The terms; one with fewer levels in ``by`` is in every row that its labels match."""
    relation: Literal["<=", ">=", "=="]
    """How the sum compares with ``rhs``."""
    rhs: Exact | dict[str, Exact] = Fraction(0)
    """Right-hand side: one number, or a number by label of the row (parts joined by commas)."""
    allow_empty: StrictBool = False
    """Whether rows without any variable are accepted."""


class Rows(Part):
    """Additional rows, each term named: what rules written with expressions become."""

    change: Literal["rows"] = "rows"
    name: Name
    """Name of the rows, in duals and certificates."""
    relation: Literal["<=", ">=", "=="]
    """How the sum of the terms compares with the right-hand side."""
    levels: dict[str, tuple[Any, ...]] = Field(default_factory=dict)
    """Labels of the levels of the rows."""
    members: dict[str, Any]
    """Keys of the rows and, unless they are all combinations, the place of each row's label in each level."""
    terms: tuple[tuple[int, str, str, Exact], ...]
    """Row, variable, label and coefficient."""
    rhs: tuple[Exact, ...]
    """Right-hand side of each row."""


class Drop(Part):
    """Rows of the model to drop."""

    change: Literal["drop"] = "drop"
    name: Name
    """Name of the rows."""
    rows: tuple[str, ...] | None = None
    """Labels of the rows; all when absent."""


class Fix(Part):
    """Variables fixed to a value."""

    change: Literal["fix"] = "fix"
    variables: Term
    """Which variables (``by`` and ``coefficient`` do not count)."""
    value: Exact
    """The value of each."""


class Bounds(Part):
    """New bounds of variables."""

    change: Literal["bounds"] = "bounds"
    variables: Term
    """Which variables (``by`` and ``coefficient`` do not count)."""
    lower: Exact | None = None
    """Smallest value; unchanged when absent."""
    upper: Exact | None = None
    """Largest value; unchanged when absent."""


class Cost(Part):
    """Terms added to the objective of a stage."""

    change: Literal["cost"] = "cost"
    stage: Name
    """Name of the stage."""
    terms: tuple[Term, ...] = Field(min_length=1)
    """The added terms, in the unit of the stage."""


class Variable(Part):
    """Additional variables, one for each combination of labels; they have finite bounds."""

    change: Literal["variable"] = "variable"
    name: Name
    """Name of the variables."""
    levels: dict[str, tuple[Label, ...]]
    """Labels by level; a single variable when empty."""
    lower: Exact = Fraction(0)
    """Smallest value."""
    upper: Exact
    """Largest value."""
    integer: StrictBool = False
    """Whether the variables are integer."""


class Relaxed(Part):
    """Integrality dropped, of some variables or of all."""

    change: Literal["relaxed"] = "relaxed"
    variables: tuple[str, ...] | None = None
    """Names of the variables; all when absent."""


Change = Annotated[
    Constraint | Rows | Drop | Fix | Bounds | Cost | Variable | Relaxed,
    Field(discriminator="change"),
]


class Changes(Part):
    """Changes of a model, in the order in which they apply."""

    version: Literal[1] = 1
    """Version of this format."""
    changes: tuple[Change, ...] = ()
    """The changes."""

    def __bool__(self) -> bool:
        return bool(self.changes)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        return iter(self.changes)

    def also(self, *more: Any) -> Changes:
        """These changes, then more."""
        return Changes(changes=(*self.changes, *more))

    def plain(self) -> dict[str, Any]:
        """Plain data, as in a file."""
        return self.model_dump(mode="json", exclude_defaults=True) | {
            "version": self.version,
            "changes": [
                {"change": each.change, **each.model_dump(mode="json", exclude_defaults=True)} for each in self
            ],
        }


def in_words(change: Any) -> str:
    """What a change does, short: the name of its rule, or the variables that it touches."""
    if isinstance(change, Constraint):
        side = change.rhs if isinstance(change.rhs, Fraction) else "a number by row"
        by = max((term.by for term in change.terms), key=len)
        return f"{change.name} ({change.relation} {side}{' by ' + ', '.join(by) if by else ''})"
    if isinstance(change, Drop):
        return f"without {change.name}{'' if change.rows is None else '[' + '; '.join(change.rows) + ']'}"
    if isinstance(change, Fix):
        return f"{_chosen(change.variables)} = {change.value}"
    if isinstance(change, Bounds):
        low = "" if change.lower is None else f"{change.lower} <= "
        return f"{low}{_chosen(change.variables)}{'' if change.upper is None else f' <= {change.upper}'}"
    if isinstance(change, Cost):
        return f"cost of {', '.join(_chosen(term) for term in change.terms)} in {change.stage}"
    if isinstance(change, Variable):
        return f"variables {change.name}"
    return f"relaxed {', '.join(change.variables or ('all variables',))}"


def _chosen(term: Term) -> str:
    where = ", ".join(f"{level}={label}" for level, label in term.where.items())
    return f"{term.variable}[{where}]" if where else term.variable


def read_changes(source: str | Path | dict[str, Any] | Changes) -> Changes:
    """Read a file of changes, or plain data."""
    if isinstance(source, Changes):
        return source
    path = None if isinstance(source, dict) else Path(source)
    try:
        return Changes.model_validate(json.loads(path.read_text(encoding="utf-8")) if path is not None else source)
    except FileNotFoundError as error:
        raise InstanceError("file not found", path=path) from error
    except ValidationError as error:
        raise _explained(error).at(path) if path is not None else _explained(error) from error
    except (OSError, ValueError, RecursionError) as error:  # not text, or not JSON
        raise InstanceError(f"cannot be read as JSON: {error}", path=path) from error


def _explained(error: ValidationError) -> InstanceError:
    """The first fault, an unknown field before others, with its place in the file and the fields that exist there."""
    faults = error.errors(include_url=False)
    first = min(faults, key=lambda each: each["type"] != "extra_forbidden")
    place = tuple(first["loc"])
    kind = next((step for step in place[:3] if step in _KINDS), None)
    while kind is not None and isinstance(place[-1], str) and _ALTERNATIVE.fullmatch(place[-1]):
        place = place[:-1]
    shown = place_in(step for k, step in enumerate(place) if not (k == 2 and step == kind))
    if first["type"] != "extra_forbidden":
        return InstanceError(plain_reason(first), place=shown or "changes")
    owner = Changes if kind is None else _KINDS[kind]
    if {"terms", "variables"} & set(place[3:-1]):
        owner = Term
    fields = list(owner.model_fields)
    near = did_you_mean(str(place[-1]), fields) or f"; the fields are {', '.join(fields)}"
    return InstanceError(f"unknown field{near}", place=shown)


#: What pydantic calls the alternatives of a field that takes several types.
_ALTERNATIVE = re.compile(r"str|int|float|Interval|(tuple|dict|function-plain)\[.*")
#: Kinds of changes, by the word in their field ``change``.
_KINDS: dict[int | str, type[Part]] = {
    kind.model_fields["change"].default: kind for kind in (Constraint, Rows, Drop, Fix, Bounds, Cost, Variable, Relaxed)
}
