"""The checker's answer: plain, frozen data with a JSON form and a proof.

A `Verdict` is about the matrix as given: TU with a `Certificate`, not TU with a `Witness`, or undecided with advice.
`Verdict.scaled` holds for the matrix with divided rows; `Verdict.senses` takes the senses of the rows into account.
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flowlex.validation.unimodularity.integrality_conclusion import Line, conclude
from flowlex.validation.unimodularity.json_documents import read, write
from flowlex.validation.unimodularity.matrix_adapters import constraints_of
from flowlex.validation.unimodularity.named_matrix import NamedMatrix, fingerprint
from flowlex.validation.unimodularity.network.largest_network_part import (
    Extent,
    NetworkPart,
    check_extent,
    check_network_part,
)
from flowlex.validation.unimodularity.proof_checks import Judged, Standing, judged, require
from flowlex.validation.unimodularity.proof_plots import plot_proof
from flowlex.validation.unimodularity.proof_types import (
    Answer,
    Certificate,
    Number,
    Step,
    VerdictError,
    Witness,
    describe_certificate,
    describe_witness,
)
from flowlex.validation.unimodularity.row_scaling import check_divisors, divided
from flowlex.validation.unimodularity.unimodular_equations import Senses, check_line, check_senses
from flowlex.validation.unimodularity.verify_proof import check_certificate, check_witness

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: How the reason starts when the verdict is about another matrix.
OTHER_MATRIX = "the verdict is for another matrix"

_TITLE = {Answer.TU: "totally unimodular", Answer.NOT_TU: "not totally unimodular", Answer.UNDECIDED: "undecided"}


@dataclass(frozen=True)
class Scaled:
    """What holds once rows are divided by a constant."""

    divisors: Mapping[int, Number]  # constant of each row divided, exact
    #: Of the divided matrix.
    answer: Answer = field(metadata={"key": "verdict"})
    certificate: Certificate | None = None
    witness: Witness | None = None


@dataclass(frozen=True)
class Verdict:
    """The checker's answer with its proof.

    Attributes
    ----------
    answer
        `Answer.TU`, `Answer.NOT_TU` or `Answer.UNDECIDED`, of the matrix as given.
    shape, nonzeros, fingerprint
        Of the tested matrix; for a program, without free rows and fixed columns.
    certificate, witness
        The proof; one of them, or none when undecided.
    scaled
        What holds after dividing rows, if that changes the matrix.
    senses
        Whether equations and free variables make the program unimodular, when the matrix is not TU.
    line
        A line in the polyhedron, which then has no vertices; None without one.
    network
        The largest part of a program that is a network, by rows, when the matrix is not TU.
    steps
        What was tried, with the sizes after each reduction.
    conclusion
        What it means for the model, or what would settle it.
    """

    answer: Answer = field(metadata={"key": "verdict"})
    shape: tuple[int, int]
    nonzeros: int
    fingerprint: str
    seconds: float
    certificate: Certificate | None = None
    witness: Witness | None = None
    scaled: Scaled | None = None
    senses: Senses | None = None
    line: Line | None = None
    network: NetworkPart | None = None
    steps: tuple[Step, ...] = ()
    conclusion: str = ""

    @property
    def is_tu(self) -> bool:
        """Whether the matrix as given is proven totally unimodular."""
        return self.answer is Answer.TU

    @property
    def method(self) -> str:
        """The argument that proves the answer."""
        if self.witness is not None:
            return self.witness.kind
        return "" if self.certificate is None else self.certificate.method

    def verify(self, source: Any) -> bool:
        """Re-check the proof against the matrix, independently of how it was found.

        An undecided verdict has nothing to check and gives False.
        """
        return verification_error(self, source) == ""

    def plot(self, source: Any, ax: Axes | None = None) -> Axes:
        """Draw the proof on the sparsity pattern (see `proof_plots.plot_proof`)."""
        proof = self.scaled or self
        title = f"{_TITLE[proof.answer]}{' once rows are divided' if self.scaled else ''}: {self.method}"
        return plot_proof(proof.certificate, proof.witness, constraints_of(source), title, ax=ax)

    def to_document(self) -> dict[str, Any]:
        """Return the JSON document of this verdict."""
        return {**write(self), "method": self.method}

    def to_json(self) -> str:
        """Return the verdict as one JSON object."""
        return json.dumps(self.to_document())

    @staticmethod
    def from_json(text: str) -> Verdict:
        """Read what `to_json` wrote.

        Raises `VerdictError` if the text is not a verdict.
        """
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise VerdictError(f"not JSON ({error})") from error
        return Verdict.from_document(document)

    @staticmethod
    def from_document(document: Any) -> Verdict:
        """Read the parsed document of `to_document`; its method must be the one its proof shows."""
        if not isinstance(document, dict) or "verdict" not in document:
            raise VerdictError("not a verdict: it has no field 'verdict'; write one with `flowlex tu -o`")
        try:
            verdict = read(Verdict, {key: value for key, value in document.items() if key != "method"})
        except (ValueError, RecursionError) as error:
            raise VerdictError(f"not a verdict: {error}") from error
        if document.get("method") != verdict.method:
            raise VerdictError(f"it says method {document.get('method')!r}, but its proof is by {verdict.method!r}")
        return verdict

    def __str__(self) -> str:
        by = f"{self.method}; " if self.method else ""
        lines = [
            f"{_TITLE[self.answer]} ({self.shape[0]} x {self.shape[1]}, {self.nonzeros} nonzeros; {by}"
            f"{self.seconds:.3f} s)"
        ]
        if self.scaled is not None:
            lines += [*_proof_lines(self), f"once {_rows_divided(self.scaled)}: {_TITLE[self.scaled.answer]}"]
        lines += [*_proof_lines(self.scaled or self), "" if self.senses is None else str(self.senses), self.conclusion]
        lines += [] if self.network is None or not self.network.rest else [str(self.network)]
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


def judge(verdict: Verdict, source: Any) -> tuple[Judged, ...]:
    """Judge every statement of a verdict about this matrix or program.

    Proofs are re-checked by `verify`, the extent of the network part is searched again, and the conclusion is drawn
    again from what is proven. An undecided verdict without any proof is ``quoted``.
    """
    named = constraints_of(source)
    found = [judged("matrix", lambda: _check_matrix(named, verdict))]
    if found[0].standing is Standing.REFUSED:
        return tuple(found)
    found.append(judged("answer", lambda: _check_answer(named, verdict)))
    scaled, senses, part, line = verdict.scaled, verdict.senses, verdict.network, verdict.line
    if scaled is not None:
        found.append(judged("answer after dividing rows", lambda: _check_scaled(named, scaled)))
    if senses is not None:
        found.append(judged("equations and free variables", lambda: _check_equations(named, verdict, senses)))
    if line is not None:
        found.append(judged("no vertices", lambda: check_line(named, line)))
    if part is not None:
        found.append(judged("network part", lambda: check_network_part(named, part)))
        if found[-1].standing is Standing.PROVEN and part.extent is not Extent.FOUND:
            found.append(judged("extent of the network part", lambda: check_extent(named, part)))
    if not any(one.standing is Standing.REFUSED for one in found):
        found.append(judged("conclusion", lambda: _check_conclusion(named, verdict)))
    return (*found, Judged("seconds and steps", Standing.REPORTED, "how the answer was found; nothing rests on it"))


def verification_error(verdict: Verdict, source: Any) -> str:
    """Return why the verdict is not proven for this matrix; empty when all of it is."""
    bad = [one for one in judge(verdict, source) if one.standing in (Standing.REFUSED, Standing.QUOTED)]
    return min(bad, key=lambda one: one.standing is not Standing.REFUSED).detail if bad else ""


def conclusion_of(named: NamedMatrix, verdict: Verdict) -> str:
    """Draw the conclusion from the verdict's (proven) answers."""
    scaled = None if verdict.scaled is None else (verdict.scaled.divisors, verdict.scaled.answer)
    senses = None if verdict.senses is None else verdict.senses.answer
    return conclude(named, verdict.answer, scaled, senses, verdict.line, verdict.steps)


def _check_matrix(named: NamedMatrix, verdict: Verdict) -> None:
    mine, theirs = (f"{rows} x {columns}" for rows, columns in (named.shape, verdict.shape))
    require(named.shape == verdict.shape, f"{OTHER_MATRIX}: it speaks of {theirs}, this is {mine}")
    same = fingerprint(named.matrix) == verdict.fingerprint and named.matrix.nnz == verdict.nonzeros
    require(same, f"{OTHER_MATRIX} of the same shape: the entries differ")


def _check_answer(named: NamedMatrix, verdict: Verdict) -> str | None:
    _check(named, verdict)
    if verdict.answer is Answer.UNDECIDED and verdict.senses is None:
        return "the verdict is undecided: there is no proof to check"
    return None


def _check_scaled(named: NamedMatrix, scaled: Scaled) -> None:
    check_divisors(named.matrix, scaled.divisors)
    matrix = divided(named.matrix, scaled.divisors)
    _check(NamedMatrix(matrix, named.row_names, named.column_names), scaled)


def _check_equations(named: NamedMatrix, verdict: Verdict, senses: Senses) -> None:
    require(verdict.answer is not Answer.TU, "a totally unimodular matrix needs no look at its senses")
    require(verdict.line is None, "without vertices there is no basis")
    check_senses(named, {} if verdict.scaled is None else verdict.scaled.divisors, senses)


def _check_conclusion(named: NamedMatrix, verdict: Verdict) -> None:
    true = conclusion_of(named, verdict)
    require(verdict.conclusion == true, f"what follows is: {true}")


def _check(named: NamedMatrix, said: Verdict | Scaled) -> None:
    if said.answer is Answer.NOT_TU:
        require(said.witness is not None and said.certificate is None, "'not_tu' carries a witness and nothing else")
        assert said.witness is not None
        check_witness(named, said.witness)
    elif said.answer is Answer.TU:
        require(said.certificate is not None and said.witness is None, "'tu' carries a certificate and nothing else")
        assert said.certificate is not None
        check_certificate(named.matrix, said.certificate)
    else:
        require(said.certificate is None and said.witness is None, "'undecided' carries no proof")


def _proof_lines(said: Verdict | Scaled) -> list[str]:
    lines = [] if said.witness is None else [describe_witness(said.witness)]
    return lines + ([] if said.certificate is None else ["proof: " + describe_certificate(said.certificate)])


def _rows_divided(scaled: Scaled) -> str:
    some = ", ".join(f"{row} by {value}" for row, value in list(scaled.divisors.items())[:6])
    more = ", ..." if len(scaled.divisors) > 6 else ""
    return f"row {some}{more} {'is' if len(scaled.divisors) == 1 else 'are'} divided"
