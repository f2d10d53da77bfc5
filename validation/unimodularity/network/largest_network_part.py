"""The largest part of a program, by rows, whose matrix is a network matrix.

Such a program is a network with side constraints (solved by Lagrangian relaxation or basis partitioning), so it helps
to know which rows are in the way. To leave out as few rows as possible is NP-hard. A greedy search adds rows in halves
as long as they form a network matrix. Then, for small programs, a minimal set of rows that is no network matrix must
lose one of them; trying each in turn, to the depth that the greedy answer allows, either finds a larger part or proves
that there is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from flowlex.formulations.program_arrays import Booleans
from flowlex.validation.unimodularity.matrix_adapters import matrix_of
from flowlex.validation.unimodularity.named_matrix import NamedMatrix, canonical, ternary
from flowlex.validation.unimodularity.network.network_matrix import network_matrix
from flowlex.validation.unimodularity.proof_checks import require, submatrix
from flowlex.validation.unimodularity.proof_types import Certificate, indices, listed
from flowlex.validation.unimodularity.time_limit import Clock, TimeIsUp
from flowlex.validation.unimodularity.verify_proof import prove

#: Most nonzeros scanned in all trials, and most trials, in the greedy search and then for the proof.
MOST_WORK, MOST_TRIALS = 10_000_000, 400


class Extent(StrEnum):
    """How large the part is. The certificate proves that it is a network; this is searched again by `check_extent`."""

    LARGEST = "largest"
    MAXIMAL = "maximal"
    FOUND = "found"


_EXTENT = {
    Extent.LARGEST: "no larger part is a network",
    Extent.MAXIMAL: "none of these rows could be put back; that no other choice leaves out fewer was not proven",
    Extent.FOUND: "the search ended early: fewer rows may do",
}


@dataclass(frozen=True)
class NetworkPart:
    """A part of a program that is a network: all rows but a few."""

    #: The rows left out.
    rest: tuple[int, ...]
    rest_names: tuple[str, ...]
    extent: Extent  # what is known of how few they are
    certificate: Certificate  # that the other rows, each divided by its content, are a network matrix

    def __str__(self) -> str:
        kept = len(self.certificate.rows)
        if not self.rest:
            return "a network"
        if len(self.rest) <= kept:
            return f"a network but for {listed(self.rest_names)} ({_EXTENT[self.extent]})"
        return f"{kept} of {kept + len(self.rest)} rows are a network ({_EXTENT[self.extent]})"


def network_part(source: Any, *, clock: Clock | None = None) -> NetworkPart | None:
    """Return the largest part by rows that is a network, as far as it can be found; None when no row is part of one.

    ``source``: a program or a matrix.
    ``clock``: ends the search; then the part found so far is the answer.
    """
    named = matrix_of(source)
    signs, usable = unit_rows(named.matrix)
    search = _Search(signs, clock or Clock())
    kept, extent = search.greedy(usable)
    if not kept.any():
        return None
    if extent is Extent.MAXIMAL:
        kept, extent = search.improved(usable, kept)
    rows, rest = np.flatnonzero(kept), np.flatnonzero(~kept).tolist()
    data = network_matrix(ternary(canonical(signs[rows]))).data()
    proof = Certificate("network", tuple(rows.tolist()), tuple(range(named.shape[1])), data)
    return NetworkPart(tuple(rest), named.names_of_rows(rest), extent, proof)


def unit_rows(matrix: sp.csc_array) -> tuple[sp.csr_array, Booleans]:
    """The signs of the matrix by row, and the rows whose entries are all of one size."""
    by_row = sp.csr_array(matrix)
    rows = np.repeat(np.arange(by_row.shape[0]), np.diff(by_row.indptr))
    size = np.zeros(by_row.shape[0])
    size[rows] = np.abs(by_row.data)  # any of them will do
    even = np.ones(by_row.shape[0], dtype=bool)
    even[rows[np.abs(by_row.data) != size[rows]]] = False
    signs = np.sign(by_row.data).astype(np.int8)
    return sp.csr_array((signs, by_row.indices, by_row.indptr), shape=by_row.shape), even


def check_network_part(named: NamedMatrix, part: NetworkPart) -> None:
    """Raise `ProofError` unless the rows named leave a network matrix."""
    require(part.rest_names == named.names_of_rows(indices(part.rest)), "the rows left out have other names")
    rows, columns = part.certificate.rows, part.certificate.columns
    require(sorted([*rows, *part.rest]) == list(range(named.shape[0])), "rows are missing or named twice")
    require(sorted(columns) == list(range(named.shape[1])), "a network has all columns")
    signs, usable = unit_rows(named.matrix)
    require(bool(usable[list(rows)].all()), "a row of the network has entries of several sizes")
    whole = sp.csc_array(signs).astype(np.int64)
    require(part.certificate.kind == "network" and part.certificate.data["transposed"] is False, "that is no network")
    require(submatrix(whole, rows, columns).nnz == sum(np.diff(signs.indptr)[list(rows)]), "entries are missing")
    prove(whole, part.certificate)


def check_extent(named: NamedMatrix, part: NetworkPart) -> str | None:
    """Raise `ProofError` if a larger part is a network although the extent denies it; return why that stays open."""
    signs, usable = unit_rows(named.matrix)
    kept = np.zeros_like(usable)
    kept[list(part.certificate.rows)] = True
    search = _Search(signs, Clock())
    if part.extent is Extent.MAXIMAL:
        for row in np.flatnonzero(usable & ~kept).tolist():
            if search.over():
                return "too many rows to try each again"
            larger = _with(kept, np.array([row], dtype=np.intp))
            require(not search.is_network(larger), f"with row {named.names_of_rows([row])[0]!r} it is a network, too")
    if part.extent is Extent.LARGEST:
        found, extent = search.improved(usable, kept)
        names = named.names_of_rows(np.flatnonzero(~found).tolist())
        require(bool(np.array_equal(found, kept)), f"a larger part is a network: all rows but {listed(names)}")
        return None if extent is Extent.LARGEST else "the search for a larger part takes too long"
    return None


class _Search:
    """Trials of row sets, counted."""

    def __init__(self, signs: sp.csr_array, clock: Clock) -> None:
        self.signs, self.clock = signs, clock
        self.length = np.diff(signs.indptr)
        self.trials, self.work = 0, 0

    def over(self) -> bool:
        """Whether a limit of trials is reached."""
        return self.trials >= MOST_TRIALS or self.work > MOST_WORK or self.clock.left() <= 0

    def is_network(self, kept: Booleans) -> bool:
        """Whether these rows are a network matrix."""
        self.trials += 1
        self.work += int(self.length[kept].sum())
        return network_matrix(ternary(canonical(self.signs[np.flatnonzero(kept)])), clock=self.clock).status == (
            "network"
        )

    def greedy(self, usable: Booleans) -> tuple[Booleans, Extent]:
        """Add rows in halves, short ones first."""
        kept = np.zeros_like(usable)
        order = np.flatnonzero(usable)
        waiting = [order[np.argsort(self.length[order], kind="stable")]] if len(order) else []
        self.clock.doing = "the network part"
        while waiting:
            chunk = waiting.pop()
            kept[chunk] = True
            try:
                fits = not self.over() and self.is_network(kept)
            except TimeIsUp:
                fits = False
            if fits:
                continue
            kept[chunk] = False
            if self.over():
                return kept, Extent.FOUND
            if len(chunk) > 1:
                half = len(chunk) // 2
                waiting += [chunk[half:], chunk[:half]]
        return kept, Extent.MAXIMAL

    def improved(self, usable: Booleans, kept: Booleans) -> tuple[Booleans, Extent]:
        """Look for a part that leaves out fewer rows."""
        self.trials = 0
        fewest = int((usable & ~kept).sum())
        try:
            for most in range(fewest):
                found = self._without(usable, most)
                if found is not None:
                    return found, Extent.LARGEST
        except TimeIsUp:
            return kept, Extent.MAXIMAL
        return kept, Extent.LARGEST

    def _without(self, rows: Booleans, most: int) -> Booleans | None:
        """A network of these rows without at most ``most`` of them, or None if there is none."""
        if self.over():
            raise TimeIsUp
        if self.is_network(rows):
            return rows
        if most == 0:
            return None
        for row in self._obstruction(rows):
            fewer = rows.copy()
            fewer[row] = False
            found = self._without(fewer, most - 1)
            if found is not None:
                return found
        return None

    def _obstruction(self, rows: Booleans) -> list[int]:
        """A minimal set of rows that is no network (Junker 2004, QuickXplain)."""

        def needed(base: Booleans, rows: NDArray[np.intp], tried: bool) -> list[int]:
            if self.over():
                raise TimeIsUp
            if tried and not self.is_network(base):
                return []
            if len(rows) == 1:
                return [int(rows[0])]
            one, two = np.array_split(rows, 2)
            late = needed(_with(base, one), two, bool(len(one)))
            return needed(_with(base, np.array(late, dtype=np.intp)), one, bool(late)) + late

        return needed(np.zeros_like(rows), np.flatnonzero(rows), False)


def _with(rows: Booleans, more: NDArray[np.intp]) -> Booleans:
    both = rows.copy()
    both[more] = True
    return both
