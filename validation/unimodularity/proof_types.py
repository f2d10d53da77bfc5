"""What proves an answer: certificates and witnesses, plain frozen data.

Rows and columns in them are zero-based indices of the matrix they speak of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import Any

from flowlex.errors import FlowlexError

Number = int | Fraction


def in_digits(value: Number) -> str:
    """A determinant as text for a person: in full, or its size where it has more than 60 digits.

    Examples
    --------
    >>> in_digits(-2), in_digits(2**20_000)
    ('-2', 'about 2^20000')
    """
    if max(value.numerator.bit_length(), value.denominator.bit_length()) <= 200:
        return str(value)
    size = value.numerator.bit_length() - value.denominator.bit_length()
    return f"about {'-' if value < 0 else ''}2^{size}"


class VerdictError(FlowlexError, ValueError):
    """A document that is not a verdict; the message states where and why."""


class Answer(StrEnum):
    """The three honest answers."""

    TU = "tu"
    NOT_TU = "not_tu"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Witness:
    """A square submatrix whose determinant is not -1, 0 or 1."""

    #: Zero-based indices, as many of one as of the other.
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    determinant: Number  # exact; a `Fraction` only where the matrix has entries that are no integers
    #: What it is: ``"entry"`` (1 x 1), ``"odd cycle"`` (two entries in each of its rows and columns, in one cycle) or
    #: ``"submatrix"``.
    kind: str
    row_names: tuple[str, ...] = ()
    column_names: tuple[str, ...] = ()


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


@dataclass(frozen=True)
class Step:
    """One step that was tried: on what, for how long, and with what result."""

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
        f"witness: {size} x {size} submatrix of determinant {in_digits(witness.determinant)}, {witness.kind}; "
        f"rows {rows}; columns {columns}"
    )


def describe_certificate(certificate: Certificate) -> str:
    """One line: the arguments used and how often."""
    return ", ".join(f"{kind.replace('_', ' ')} x {number}" for kind, number in certificate.count().items())


def listed(names: tuple[str, ...], limit: int = 12) -> str:
    """The first names, and how many there are."""
    text = ", ".join(names[:limit])
    return text if len(names) <= limit else f"{text}, ... ({len(names)} in all)"


def indices(values: Any) -> tuple[int, ...]:
    """Read a list of integers, exactly: 6.9 and true are refused."""
    if not isinstance(values, list | tuple) or any(type(value) is not int for value in values):
        raise ValueError("expected a list of integers")
    return tuple(values)
