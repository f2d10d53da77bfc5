"""Classify the matrix of a model: network, totally unimodular, with implied integers, or an integer program.

The checker of total unimodularity decides; if own rows destroy the structure, its witness names rows and columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from flowlex.formulations.language.program_conversion import flat_program
from flowlex.formulations.linear_program import LinearProgram
from flowlex.models.problem import Problem

if TYPE_CHECKING:
    from flowlex.validation.unimodularity.verdict import Verdict

Kind = Literal["network", "totally unimodular", "integers implied", "integer program", "linear program", "undecided"]


@dataclass(frozen=True, eq=False)
class Structure:
    """The structure of a model's matrix.

    Attributes
    ----------
    kind
        ``network`` (rows of a flow network) and ``totally unimodular``: every vertex of the linear program is integer.
        ``integers implied``: integrality of some variables follows from the others. ``integer program``: of none.
        ``linear program``: no variable must be integer. ``undecided``: the checker ran out of time.
    verdict
        The checker's answer with its proof or witness.
    lost
        The first own rows that destroy the structure, with the witness in words; empty if nothing is lost.
    """

    kind: Kind
    verdict: Verdict
    lost: str = ""

    def __str__(self) -> str:
        return f"{self.kind}; {self.lost}" if self.lost else self.kind


def structure_of(problem: Problem, own: Sequence[str], time_limit: float = 10.0) -> Structure:
    """Classify the rows of a model, those of its changes (``own``) included."""
    from flowlex.validation.unimodularity.check import check

    kind, verdict = _kind(flat_program(problem, None), time_limit)
    if kind in ("network", "totally unimodular", "linear program") or not own:
        return Structure(kind, verdict)
    for count in range(len(own) + 1):
        fewer = problem.copy()
        fewer.rows = {name: block for name, block in problem.rows.items() if name not in own[count:]}
        found = check(flat_program(fewer, None), time_limit=time_limit)
        if found.answer == "not_tu":
            blame = f"with {own[count - 1]!r} no longer totally unimodular: " if count else "already without own rows: "
            return Structure(kind, verdict, blame + _witness(found))
    return Structure(kind, verdict)


def _kind(program: LinearProgram, time_limit: float) -> tuple[Kind, Verdict]:
    from flowlex.validation.unimodularity.check import check
    from flowlex.validation.unimodularity.implied_integers.search import implied_integers

    verdict = check(program, time_limit=time_limit)
    answer: Any = verdict.answer.value
    if not program.is_mip:
        return "linear program", verdict
    if answer == "tu":
        return ("network" if _incidence(program) else "totally unimodular"), verdict
    if answer == "undecided":
        return "undecided", verdict
    dropped = implied_integers(program, time_limit=time_limit).dropped
    return ("integers implied" if dropped else "integer program"), verdict


def _incidence(program: LinearProgram) -> bool:
    """Whether every column has at most one 1 and one -1, as arcs have in the rows of their ends."""
    matrix = program.arrays().matrix
    entries, ends = np.diff(matrix.indptr), np.asarray(matrix.sum(axis=0)).ravel()
    return bool((np.abs(matrix.data) == 1).all() and (entries <= 2).all() and (ends[entries == 2] == 0).all())


def _witness(verdict: Verdict) -> str:
    from flowlex.validation.unimodularity.proof_types import in_digits

    witness = verdict.witness
    if witness is None:
        return "no witness"
    rows = ", ".join(map(str, witness.row_names or witness.rows))
    return f"rows {rows}, determinant {in_digits(witness.determinant)}"
