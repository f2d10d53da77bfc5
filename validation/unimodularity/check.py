"""Is it totally unimodular? The steps in order, cheap first, until one settles it.

>>> from flowlex.validation.unimodularity.check import check
>>> verdict = check([[1, 1, 0], [0, 1, 1], [1, 0, 1]])
>>> verdict.answer, verdict.witness.determinant
(<Answer.NOT_TU: 'not_tu'>, 2)

The steps live in modules of their own (`reductions`, `heller_tompkins`, `consecutive_ones`, `network_matrix`,
`camion`, `ghouila_houri`, `sums`, `eulerian_program`, `cmr`), each a function that can be called alone.
"""

from __future__ import annotations

import time
from typing import Any

from flowlex.validation.unimodularity.matrix import NamedMatrix, fingerprint, matrix_of
from flowlex.validation.unimodularity.parts import Found, TimeIsUp
from flowlex.validation.unimodularity.search import METHODS, Search
from flowlex.validation.unimodularity.verdict import Answer, Certificate, Verdict, Witness

__all__ = ["METHODS", "check"]


def check(
    source: Any,
    *,
    method: str = "auto",
    time_limit: float = 60.0,
    orders: int = 200,
    seed: int = 0,
    bounds: bool = False,
) -> Verdict:
    """Decide whether a matrix is totally unimodular, with a proof.

    Parameters
    ----------
    source
        Anything `flowlex.validation.unimodularity.matrix.matrix_of` takes: SciPy sparse, NumPy,
        `LinearProgram`, `FlowNetwork`, a model, ``pulp.LpProblem``.
    method
        ``"auto"``: all steps of our own. ``"full"``: then also CMR (the ``tu`` extra). Or one of `METHODS`
        to try that step alone, on the matrix as given.
    time_limit
        Seconds; steps that may take long stop by then and the verdict is undecided.
    orders
        Random orders of Camion's signing.
    seed
        Of everything random; the same seed gives the same verdict (times apart).
    bounds
        With programs: test the matrix with the variables' bounds as rows.

    Raises
    ------
    MatrixError
        If the source is no matrix of finite real numbers.
    ValueError
        Unknown method, or a limit that is not positive.
    """
    if method not in METHODS:
        raise ValueError(f"unknown method {method!r}; one of: {', '.join(METHODS)}")
    if not time_limit > 0 or orders < 1:
        raise ValueError("time_limit must be positive and orders at least 1")
    start = time.perf_counter()
    named = matrix_of(source, bounds=bounds)
    search = Search(named, deadline=start + time_limit, orders=orders, seed=seed)
    try:
        found = search.run(method)
    except TimeIsUp:
        found = None
    return _verdict(named, search, found, method, time.perf_counter() - start)


def _verdict(named: NamedMatrix, search: Search, found: Found | None, method: str, seconds: float) -> Verdict:
    witness, certificate = search.proof(found)
    answer = Answer.UNDECIDED
    if witness is not None:
        answer = Answer.NOT_TU
    elif certificate is not None:
        answer = Answer.TU
    return Verdict(
        answer=answer,
        method=_method(search, witness, certificate, method),
        shape=named.shape,
        nonzeros=int(named.matrix.nnz),
        fingerprint=fingerprint(named.matrix),
        seconds=seconds,
        certificate=certificate,
        witness=witness,
        steps=tuple(search.steps),
        conclusion=_conclusion(named, search, witness, certificate),
    )


def _method(search: Search, witness: Witness | None, certificate: Certificate | None, asked: str) -> str:
    if witness is not None:
        return search.steps[-1].name
    if certificate is not None:
        leaves = [kind for kind in certificate.count() if kind not in ("reduction", "blocks", "divided_rows")]
        return " + ".join(kind.replace("_", " ") for kind in leaves) or "reduction"
    return asked


def _conclusion(named: NamedMatrix, search: Search, witness: Witness | None, certificate: Certificate | None) -> str:
    if certificate is not None:
        return _meaning(named, search)
    if witness is not None:
        return "Some integral right-hand sides give fractional vertices: integer declarations may be needed."
    tried = ", ".join(dict.fromkeys(step.name for step in search.steps)) or "nothing"
    return (
        f"Tried: {tried}. To settle it: a longer time limit, or method='full' with the 'tu' extra "
        "(pip install 'flowlex[tu]')."
    )


def _meaning(named: NamedMatrix, search: Search) -> str:
    """What total unimodularity buys for this input."""
    text = "With integral bounds and right-hand sides every vertex is integral"
    if search.divisors:
        rows = "a row" if len(search.divisors) == 1 else f"{len(search.divisors)} rows"
        text = (
            f"TU after dividing {rows} by a constant. With integral bounds and right-hand sides (divided as well) "
            "every vertex is integral"
        )
    integral = named.integral_data(search.divisors)
    if integral is False:
        return text + "; but this program has fractional bounds or right-hand sides."
    if integral:
        text += ", and those of this program are integral"
    if named.integer_columns:
        text += f": its {named.integer_columns} integer declaration(s) are not needed"
    return text + "."
