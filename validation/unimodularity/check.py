"""Is it totally unimodular? The steps in order, cheap first, until one settles it.

>>> from flowlex import check
>>> verdict = check([[1, 1, 0], [0, 1, 1], [1, 0, 1]])
>>> verdict.answer, verdict.witness.determinant
(<Answer.NOT_TU: 'not_tu'>, 2)

The steps live in modules of their own (`network`, `reductions`, `camion`, `ghouila_houri`, `two_and_three_sums`,
`three_separations`), each a function that can be called alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import scipy.sparse as sp

from flowlex.validation.unimodularity.matrix_adapters import constraints_of
from flowlex.validation.unimodularity.named_matrix import NamedMatrix, fingerprint, ternary
from flowlex.validation.unimodularity.network.largest_network_part import network_part
from flowlex.validation.unimodularity.proof_search import METHODS, Search
from flowlex.validation.unimodularity.proof_types import Answer, Certificate, Step, Witness
from flowlex.validation.unimodularity.reductions import bad_entry
from flowlex.validation.unimodularity.row_scaling import divided, divisors_of
from flowlex.validation.unimodularity.time_limit import Clock
from flowlex.validation.unimodularity.unimodular_equations import line_of, senses_of
from flowlex.validation.unimodularity.verdict import Scaled, Verdict, conclusion_of
from flowlex.validation.unimodularity.violating_submatrix import Found, whole, witness_of

__all__ = ["METHODS", "SMALL_NONZEROS", "check"]

#: Nonzeros up to which the network part is searched without being asked for.
SMALL_NONZEROS = 5_000


def check(
    source: Any,
    *,
    method: str = "auto",
    time_limit: float = 60.0,
    orders: int = 200,
    seed: int = 0,
    network_part: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Verdict:
    """Decide whether a matrix is totally unimodular, with a proof.

    Parameters
    ----------
    source
        Anything `flowlex.validation.unimodularity.matrix_adapters.matrix_of` takes: matrices (SciPy, NumPy, lists),
        DataFrames, `LinearProgram`, `FlowNetwork`, models and instances, ``pulp.LpProblem``, ``highspy.Highs``,
        networkx graphs, and paths (.mps, .lp, .npz, .mtx, CMR, DIMACS and instance files).
    method
        ``"auto"``: all steps. Or one of `METHODS` to try that step alone, on the matrix as given.
    time_limit
        Processor seconds (loading and compiling loops not counted); when they are over the verdict is undecided.
    orders
        Random orders of Camion's signing.
    seed
        Seed of all random choices; the same seed gives the same verdict (except times).
    network_part
        With programs that are not proven totally unimodular: find the rows without which they are a network
        (`Verdict.network`), however large the program. False: only up to 5000 nonzeros, where that takes no time.
    progress
        Called with a line about the current step, once a second after two seconds.

    Raises
    ------
    MatrixError
        If the source is no matrix of finite real numbers.
    InstanceError
        If a file cannot be read, or holds no matrix.
    ValueError
        Unknown method, or a limit that is not positive.
    """
    if method not in METHODS:
        raise ValueError(f"unknown method {method!r}; one of: {', '.join(METHODS)}")
    if not time_limit > 0 or orders < 1:
        raise ValueError("time_limit must be positive and orders at least 1")
    start = time.perf_counter()
    named = constraints_of(source)
    with Clock(time_limit, progress) as clock:
        return _Check(named, clock, method, orders, seed, network_part).verdict(start)


class _Check:
    """One run: the matrix as given, the divided one, the row senses."""

    def __init__(
        self, named: NamedMatrix, clock: Clock, method: str, orders: int, seed: int, network_part: bool
    ) -> None:
        self.named, self.clock, self.method, self.orders, self.seed = named, clock, method, orders, seed
        self.network_part = network_part or (method == "auto" and named.matrix.nnz <= SMALL_NONZEROS)
        self.steps: list[Step] = []

    def verdict(self, start: float) -> Verdict:
        """Combine the answers into a verdict."""
        answer, certificate, witness = self.answer(self.named)
        scaled = None
        divisors = divisors_of(self.named.matrix) if answer is Answer.NOT_TU else {}
        divided_matrix = divided(self.named.matrix, divisors) if divisors else self.named.matrix
        if divisors:
            scaled = Scaled(divisors, *self.answer(replace(self.named, matrix=divided_matrix)))
        senses = None
        line = line_of(self.named, self.clock)
        program = self.named.program
        proven = answer is Answer.TU or (scaled is not None and scaled.answer is Answer.TU)
        if not proven and line is None and program is not None and (program.equations.any() or program.free.any()):
            senses = senses_of(self.named, divided_matrix, self.clock, self.decide)
        part = None
        if not proven and program is not None and self.network_part:
            part = network_part(self.named, clock=self.clock)
        verdict = Verdict(
            answer=answer,
            shape=self.named.shape,
            nonzeros=int(self.named.matrix.nnz),
            fingerprint=fingerprint(self.named.matrix),
            seconds=time.perf_counter() - start,
            certificate=certificate,
            witness=witness,
            scaled=scaled,
            senses=senses,
            line=line,
            network=part,
            steps=tuple(self.steps),
        )
        return replace(verdict, conclusion=conclusion_of(self.named, verdict))

    def answer(self, named: NamedMatrix) -> tuple[Answer, Certificate | None, Witness | None]:
        """Decide one matrix."""
        if 0 in named.shape:
            return Answer.TU, whole(named.matrix).prove("reduction", {"operations": []}).certificate, None
        place = bad_entry(named.matrix)
        found = Found(None, (place[0],), (place[1],)) if place is not None else self._search(named.matrix)
        if found is None:
            return Answer.UNDECIDED, None, None
        if found.certificate is not None:
            return Answer.TU, found.certificate, None
        return Answer.NOT_TU, None, witness_of(found, named)

    def decide(self, matrix: sp.csc_array) -> Certificate | Witness | None:
        """Decide a tableau."""
        _, certificate, witness = self.answer(NamedMatrix(matrix))
        return certificate or witness

    def _search(self, matrix: sp.csc_array) -> Found | None:
        search = Search(self.clock, self.steps, orders=self.orders, seed=self.seed)
        return search.run(whole(ternary(matrix)), self.method)
