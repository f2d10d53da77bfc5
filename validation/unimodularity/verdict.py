"""What the checker answers: plain, frozen data with a JSON form, and a proof inside.

A `Verdict` is TU with a `Certificate`, not TU with a `Witness`, or undecided with advice. Rows and columns in
certificates and witnesses are always zero-based indices of the matrix that was given, never of a reduced one.
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from flowlex.validation.unimodularity.matrix import MatrixError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Answer", "Certificate", "Step", "Verdict", "VerdictError", "Witness"]


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
    found_by
        What it is: ``"entry"``, ``"odd cycle"``, ``"hole"``, ``"uncolourable rows"``, ...
    row_divisors
        Constants the rows were divided by before the test, row by row; empty when none were.
    """

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    determinant: int | Fraction
    found_by: str
    row_names: tuple[str, ...] = ()
    column_names: tuple[str, ...] = ()
    row_divisors: tuple[int | Fraction, ...] = ()


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


@dataclass(frozen=True)
class Step:
    """One thing that was tried, on what, for how long, and what came of it."""

    name: str
    rows: int
    columns: int
    nonzeros: int
    outcome: str
    seconds: float


@dataclass(frozen=True)
class Verdict:
    """The checker's answer with its proof.

    Attributes
    ----------
    answer
        `Answer.TU`, `Answer.NOT_TU` or `Answer.UNDECIDED`.
    method
        The step (or steps) that settled it.
    shape, nonzeros, fingerprint
        Of the matrix given.
    certificate, witness
        The proof; one of them, or none when undecided.
    steps
        What was tried, with the sizes after each reduction.
    conclusion
        What it means for the model, or what would settle it.
    """

    answer: Answer
    method: str
    shape: tuple[int, int]
    nonzeros: int
    fingerprint: str
    seconds: float
    certificate: Certificate | None = None
    witness: Witness | None = None
    steps: tuple[Step, ...] = ()
    conclusion: str = ""

    @property
    def is_tu(self) -> bool:
        """Whether it is proven totally unimodular."""
        return self.answer is Answer.TU

    def verify(self, source: Any) -> bool:
        """Re-check the proof against the matrix, independently of how it was found.

        An undecided verdict has nothing to check and gives False.
        """
        from flowlex.validation.unimodularity.verify import verification_error

        return verification_error(self, source) == ""

    def plot(self, source: Any, ax: Axes | None = None) -> Axes:
        """Draw the proof on the sparsity pattern (see `plotting.plot_verdict`)."""
        from flowlex.validation.unimodularity.plotting import plot_verdict

        return plot_verdict(self, source, ax=ax)

    def to_document(self) -> dict[str, Any]:
        """Return the JSON document of this verdict."""
        return {
            "verdict": self.answer.value,
            "method": self.method,
            "shape": list(self.shape),
            "nonzeros": self.nonzeros,
            "seconds": self.seconds,
            "fingerprint": self.fingerprint,
            "witness": None if self.witness is None else _witness_document(self.witness),
            "certificate": None if self.certificate is None else _certificate_document(self.certificate),
            "steps": [vars(step).copy() for step in self.steps],
            "conclusion": self.conclusion,
        }

    def to_json(self) -> str:
        """Return the verdict as one JSON object."""
        return json.dumps(self.to_document())

    @staticmethod
    def from_json(text: str) -> Verdict:
        """Read what `to_json` wrote.

        Raises
        ------
        VerdictError
            If the text is not a verdict.
        """
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise VerdictError(f"not JSON ({error})") from error
        return Verdict.from_document(document)

    @staticmethod
    def from_document(document: Any) -> Verdict:
        """Read the parsed document of `to_document`."""
        if not isinstance(document, dict) or "verdict" not in document:
            raise VerdictError("not a verdict: it has no field 'verdict'; write one with `flowlex tu -o`")
        try:
            witness, certificate = document["witness"], document["certificate"]
            rows, columns = document["shape"]
            return Verdict(
                answer=Answer(document["verdict"]),
                method=str(document["method"]),
                shape=(int(rows), int(columns)),
                nonzeros=int(document["nonzeros"]),
                fingerprint=str(document["fingerprint"]),
                seconds=float(document["seconds"]),
                certificate=None if certificate is None else _read_certificate(certificate),
                witness=None if witness is None else _read_witness(witness),
                steps=tuple(Step(**step) for step in document["steps"]),
                conclusion=str(document["conclusion"]),
            )
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError, MatrixError) as error:
            raise VerdictError(f"not a verdict: {type(error).__name__} {error}") from error

    def __str__(self) -> str:
        title = {Answer.TU: "totally unimodular", Answer.NOT_TU: "not totally unimodular"}
        lines = [
            f"{title.get(self.answer, 'undecided')} ({self.shape[0]} x {self.shape[1]}, "
            f"{self.nonzeros} nonzeros; {self.method}; {self.seconds:.3f} s)"
        ]
        if self.witness is not None:
            lines.append(describe_witness(self.witness))
        if self.certificate is not None:
            lines.append("proof: " + describe_certificate(self.certificate))
        lines.append(self.conclusion)
        return "\n".join(line for line in lines if line)

    def _repr_html_(self) -> str:
        head, *rest = str(self).splitlines()
        body = "".join(f"<div>{html.escape(line)}</div>" for line in rest)
        cells = "".join(
            f"<tr><td>{html.escape(step.name)}</td><td>{step.rows} x {step.columns}</td>"
            f"<td>{step.nonzeros}</td><td>{html.escape(step.outcome)}</td><td>{step.seconds:.3f}</td></tr>"
            for step in self.steps
        )
        table = "<tr><th>step</th><th>size</th><th>nonzeros</th><th>outcome</th><th>seconds</th></tr>" + cells
        return f"<b>{html.escape(head)}</b>{body}<table>{table}</table>"


def describe_witness(witness: Witness) -> str:
    """One sentence naming the submatrix."""
    size = len(witness.rows)
    rows = _listed(witness.row_names or tuple(map(str, witness.rows)))
    columns = _listed(witness.column_names or tuple(map(str, witness.columns)))
    divided = " (rows divided by their constants first)" if witness.row_divisors else ""
    return (
        f"witness: {size} x {size} submatrix of determinant {witness.determinant}{divided}, "
        f"{witness.found_by}; rows {rows}; columns {columns}"
    )


def describe_certificate(certificate: Certificate) -> str:
    """One line: the arguments used and how often."""
    counted = certificate.count()
    return ", ".join(f"{kind.replace('_', ' ')} x {number}" for kind, number in counted.items())


def _listed(names: tuple[str, ...], limit: int = 12) -> str:
    text = ", ".join(names[:limit])
    return text if len(names) <= limit else f"{text}, ... ({len(names)} in all)"


def _number(value: int | Fraction) -> int | str:
    return value if isinstance(value, int) else str(value)


def _read_number(value: Any) -> int | Fraction:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"{value!r} is no exact number")
    fraction = Fraction(value)
    return int(fraction) if fraction.denominator == 1 else fraction


def _indices(values: Any) -> tuple[int, ...]:
    if not isinstance(values, list) or any(type(value) is not int for value in values):
        raise ValueError("indices must be a list of integers")
    return tuple(values)


def _witness_document(witness: Witness) -> dict[str, Any]:
    return {
        "rows": list(witness.rows),
        "columns": list(witness.columns),
        "row_names": list(witness.row_names),
        "column_names": list(witness.column_names),
        "determinant": _number(witness.determinant),
        "found_by": witness.found_by,
        "row_divisors": [_number(value) for value in witness.row_divisors],
    }


def _read_witness(document: Any) -> Witness:
    return Witness(
        rows=_indices(document["rows"]),
        columns=_indices(document["columns"]),
        determinant=_read_number(document["determinant"]),
        found_by=str(document["found_by"]),
        row_names=tuple(map(str, document["row_names"])),
        column_names=tuple(map(str, document["column_names"])),
        row_divisors=tuple(_read_number(value) for value in document["row_divisors"]),
    )


def _certificate_document(certificate: Certificate) -> dict[str, Any]:
    return {
        "kind": certificate.kind,
        "rows": list(certificate.rows),
        "columns": list(certificate.columns),
        "data": dict(certificate.data),
        "parts": [_certificate_document(part) for part in certificate.parts],
    }


def _read_certificate(document: Any) -> Certificate:
    if not isinstance(document["data"], dict) or not isinstance(document["parts"], list):
        raise ValueError("a certificate's data is an object and its parts are a list")
    return Certificate(
        kind=str(document["kind"]),
        rows=_indices(document["rows"]),
        columns=_indices(document["columns"]),
        data=document["data"],
        parts=tuple(_read_certificate(part) for part in document["parts"]),
    )
