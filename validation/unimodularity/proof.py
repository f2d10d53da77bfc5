"""What proves an answer: certificates and witnesses, plain frozen data with a JSON form.

Rows and columns in them are zero-based indices of the matrix they speak of.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from math import isfinite
from typing import Any

__all__ = [
    "Answer",
    "Certificate",
    "Number",
    "Step",
    "VerdictError",
    "Witness",
    "describe_certificate",
    "describe_witness",
    "indices",
    "listed",
    "plain_number",
    "read_certificate",
    "read_names",
    "read_number",
    "read_seconds",
    "read_step",
    "read_witness",
    "require_fields",
]

Number = int | Fraction


class VerdictError(ValueError):
    """A document that is no verdict: says where and why."""


class Answer(StrEnum):
    """The three honest answers."""

    TU = "tu"
    NOT_TU = "not_tu"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Witness:
    """A square submatrix whose determinant is not -1, 0 or 1.

    Attributes
    ----------
    rows, columns
        Zero-based indices, as many of one as of the other.
    determinant
        Exact; a `Fraction` only where the matrix has entries that are no integers.
    kind
        What it is: ``"entry"`` (1 x 1), ``"odd cycle"`` (two entries in each of its rows and columns, in one
        cycle) or ``"submatrix"``.
    """

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    determinant: Number
    kind: str
    row_names: tuple[str, ...] = ()
    column_names: tuple[str, ...] = ()

    def to_document(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "rows": list(self.rows),
            "columns": list(self.columns),
            "row_names": list(self.row_names),
            "column_names": list(self.column_names),
            "determinant": plain_number(self.determinant),
            "kind": self.kind,
        }


@dataclass(frozen=True)
class Certificate:
    """A proof of total unimodularity of the submatrix ``rows`` x ``columns``.

    ``kind`` names the argument, ``data`` holds what it needs (lists of integers and words), ``parts`` are the
    certificates of smaller matrices that it builds on. See `verify` for what each kind claims.
    """

    kind: str
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    data: Mapping[str, Any] = field(default_factory=dict)
    parts: tuple[Certificate, ...] = ()

    def count(self) -> dict[str, int]:
        """How often each kind of argument occurs in the whole proof."""
        total = {self.kind: 1}
        for part in self.parts:
            for kind, number in part.count().items():
                total[kind] = total.get(kind, 0) + number
        return total

    @property
    def method(self) -> str:
        """The arguments at the leaves, in words."""
        leaves = [kind for kind in self.count() if kind not in ("reduction", "blocks")]
        return " + ".join(kind.replace("_", " ") for kind in leaves) or "reduction"

    def to_document(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "kind": self.kind,
            "rows": list(self.rows),
            "columns": list(self.columns),
            "data": dict(self.data),
            "parts": [part.to_document() for part in self.parts],
        }


@dataclass(frozen=True)
class Step:
    """One thing that was tried, on what, for how long, and what came of it."""

    name: str
    rows: int
    columns: int
    nonzeros: int
    outcome: str
    seconds: float


def describe_witness(witness: Witness) -> str:
    """One sentence naming the submatrix."""
    size = len(witness.rows)
    rows = listed(witness.row_names or tuple(map(str, witness.rows)))
    columns = listed(witness.column_names or tuple(map(str, witness.columns)))
    return (
        f"witness: {size} x {size} submatrix of determinant {witness.determinant}, {witness.kind}; "
        f"rows {rows}; columns {columns}"
    )


def describe_certificate(certificate: Certificate) -> str:
    """One line: the arguments used and how often."""
    return ", ".join(f"{kind.replace('_', ' ')} x {number}" for kind, number in certificate.count().items())


def listed(names: tuple[str, ...], limit: int = 12) -> str:
    """The first names, and how many there are."""
    text = ", ".join(names[:limit])
    return text if len(names) <= limit else f"{text}, ... ({len(names)} in all)"


def plain_number(value: Number) -> int | str:
    """An exact number for JSON: integers as they are, fractions as text."""
    return value if isinstance(value, int) else str(value)


def read_number(value: Any) -> Number:
    """Read what `plain_number` wrote; floats and truth values are refused."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"{value!r} is no exact number")
    fraction = Fraction(value)
    return int(fraction) if fraction.denominator == 1 else fraction


def indices(values: Any) -> tuple[int, ...]:
    """Read a list of integers, exactly: 6.9 and true are refused."""
    if not isinstance(values, list | tuple) or any(type(value) is not int for value in values):
        raise ValueError("expected a list of integers")
    return tuple(values)


def read_names(values: Any) -> tuple[str, ...]:
    """Read a list of names."""
    if not isinstance(values, list) or any(type(value) is not str for value in values):
        raise ValueError("names must be a list of text")
    return tuple(values)


def read_seconds(value: Any) -> float:
    """Read a duration: a finite number that is at least 0."""
    if type(value) not in (int, float) or not isfinite(value) or value < 0:
        raise ValueError(f"seconds must be a number that is at least 0, got {value!r}")
    return float(value)


def read_step(document: Any) -> Step:
    """Read one entry of the list of what was tried."""
    require_fields(document, ("name", "rows", "columns", "nonzeros", "outcome", "seconds"))
    rows, columns, nonzeros = indices([document[key] for key in ("rows", "columns", "nonzeros")])
    name, outcome = read_names([document["name"], document["outcome"]])
    if min(rows, columns, nonzeros) < 0:
        raise ValueError("the sizes of a step must be at least 0")
    return Step(name, rows, columns, nonzeros, outcome, read_seconds(document["seconds"]))


def require_fields(document: Any, known: Collection[str]) -> None:
    """Raise unless the document is an object that holds these fields and no other."""
    if not isinstance(document, dict):
        raise TypeError(f"expected an object, got {type(document).__name__}")
    for odd in sorted(set(known) ^ document.keys()):
        raise ValueError(f"unknown field {odd!r}" if odd in document else f"field {odd!r} is missing")


def read_witness(document: Any) -> Witness:
    """Read what `Witness.to_document` wrote."""
    return Witness(
        rows=indices(document["rows"]),
        columns=indices(document["columns"]),
        determinant=read_number(document["determinant"]),
        kind=str(document["kind"]),
        row_names=read_names(document["row_names"]),
        column_names=read_names(document["column_names"]),
    )


def read_certificate(document: Any) -> Certificate:
    """Read what `Certificate.to_document` wrote."""
    if not isinstance(document["data"], dict) or not isinstance(document["parts"], list):
        raise ValueError("a certificate's data is an object and its parts are a list")
    return Certificate(
        kind=str(document["kind"]),
        rows=indices(document["rows"]),
        columns=indices(document["columns"]),
        data=document["data"],
        parts=tuple(read_certificate(part) for part in document["parts"]),
    )
