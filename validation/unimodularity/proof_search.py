"""The search behind `check`: which step is tried on which part of the matrix, and how proofs are assembled."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import scipy.sparse as sp

from flowlex.formulations.program_arrays import Integers
from flowlex.validation.unimodularity.camion import camion, hole_through
from flowlex.validation.unimodularity.ghouila_houri import LIMIT, square_part, uncolourable_rows
from flowlex.validation.unimodularity.network.network_matrix import network_matrix
from flowlex.validation.unimodularity.proof_types import Certificate, Step
from flowlex.validation.unimodularity.reductions import REASONS, reduce_matrix, split_blocks
from flowlex.validation.unimodularity.three_separations import find_core, three_sum_parts
from flowlex.validation.unimodularity.time_limit import Clock, TimeIsUp
from flowlex.validation.unimodularity.two_and_three_sums import Separation, operands, two_sum_parts
from flowlex.validation.unimodularity.violating_submatrix import Found, Part, whole

#: Orders tried before the network tests and before the search for sums; how deep blocks are reduced and split again.
FIRST_ORDERS, MORE_ORDERS, DEEPEST = 4, 40, 60
#: Cells up to which blocks are searched for 3-sums.
THREE_SUM_CELLS = 4_000_000
#: Steps recorded one by one; a matrix of thousands of blocks would drown the reader.
MOST_STEPS = 200


class Search:
    """One run of the checker on one {-1, 0, 1} matrix; ``steps`` receives what is tried."""

    def __init__(self, clock: Clock, steps: list[Step], *, orders: int, seed: int) -> None:
        self.clock = clock
        self.orders = orders
        self.seed = seed
        self.steps = steps

    def run(self, part: Part, method: str) -> Found | None:
        """Try one method, or all of them; None when undecided."""
        try:
            if method != "auto":
                return self._try(method, part, lambda piece: STEPS[method](self, piece))
            return self._decide(part, 0)
        except TimeIsUp:
            return None

    def _note(self, name: str, matrix: sp.csc_array, outcome: str, start: float) -> None:
        step = Step(
            name,
            int(matrix.shape[0]),
            int(matrix.shape[1]),
            int(matrix.nnz),
            outcome,
            round(time.perf_counter() - start, 6),
        )
        if len(self.steps) < MOST_STEPS:
            self.steps.append(step)
        else:
            self.steps[-1] = step

    def _try(self, name: str, part: Part, attempt: Callable[[Part], Found | None]) -> Found | None:
        start = time.perf_counter()
        self.clock.check(f"{name} on {part.matrix.shape[0]} x {part.matrix.shape[1]}")
        found = attempt(part)
        outcome = "nothing"
        if found is not None:
            outcome = "totally unimodular" if found.certificate is not None else "not totally unimodular"
        self._note(name, part.matrix, outcome, start)
        return found

    def _decide(self, part: Part, depth: int) -> Found | None:
        """Settle one part: easy proofs, reductions, blocks, then the harder steps.

        The whole is tried as a network first: other matrices are mostly refused after a few columns, and a network
        needs no reduction.
        """
        found = self._try("network", part, self.try_networks) if depth == 0 else None
        if found is not None:
            return found
        if depth < DEEPEST:
            smaller = self._reduce(part)
            if smaller is not None:
                return self._after_reduction(part, *smaller, depth)
            blocks = split_blocks(part.matrix)
            if len(blocks) > 1:
                return self._each(part, blocks, depth)
        return self._hard(part, networks=depth > 0)

    def _reduce(self, part: Part) -> tuple[Integers, Integers, list[list[Any]]] | None:
        start = time.perf_counter()
        reduction = reduce_matrix(part.matrix, seed=self.seed, clock=self.clock)
        if len(reduction.line) == 0:
            return None
        rows = len(part.rows)

        def name(line: int) -> tuple[str, int]:
            return ("row", int(part.rows[line])) if line < rows else ("column", int(part.columns[line - rows]))

        operations = [
            [*name(line), REASONS[why], name(other)[1] if other >= 0 else -1]
            for line, why, other in zip(
                reduction.line.tolist(), reduction.why.tolist(), reduction.other.tolist(), strict=True
            )
        ]
        left = f"{len(reduction.rows)} x {len(reduction.columns)} left"
        self._note("reduction", part.matrix, left, start)
        return reduction.rows, reduction.columns, operations

    def _after_reduction(
        self, part: Part, rows: Integers, columns: Integers, operations: list[list[Any]], depth: int
    ) -> Found | None:
        if len(rows) == 0 or len(columns) == 0:
            return part.prove("reduction", {"operations": operations})
        found = self._decide(part.cut(rows, columns), depth + 1)
        if found is None or found.certificate is None:
            return found
        return part.prove("reduction", {"operations": operations}, (found.certificate,))

    def _each(self, part: Part, blocks: list[tuple[Integers, Integers]], depth: int) -> Found | None:
        """Settle every block; one refutation refutes the whole, even if other blocks stay open."""
        self._note("blocks", part.matrix, f"{len(blocks)} blocks", time.perf_counter())
        quick = self._glance(part, networks=True)
        if quick is not None:
            return quick
        proofs: list[Certificate] = []
        late = False
        for rows, columns in sorted(blocks, key=lambda block: len(block[0]) + len(block[1])):
            try:
                found = self._decide(part.cut(rows, columns), depth + 1)
            except TimeIsUp:
                late = True
                break
            if found is not None and found.certificate is None:
                return found
            if found is not None and found.certificate is not None:
                proofs.append(found.certificate)
        if late:
            raise TimeIsUp
        return part.prove("blocks", {}, tuple(proofs)) if len(proofs) == len(blocks) else None

    def _hard(self, part: Part, *, networks: bool) -> Found | None:
        """Settle a part that is connected and has no simple lines; ``networks``: it was not tried as one."""
        if min(part.matrix.shape) <= 8:
            return self._try("ghouila-houri", part, self.try_ghouila_houri)
        found = self._glance(part, networks=networks)
        if found is not None:
            return found
        if min(part.matrix.shape) <= LIMIT:
            return self._try("ghouila-houri", part, self.try_ghouila_houri)
        split = two_sum_parts(part.matrix, self.clock)
        if split is not None:
            return self._try("sums", part, lambda piece: self._split(piece, split)) or self._refute(part, self.orders)
        found = self._refute(part, MORE_ORDERS)  # refuting is cheap; looking for 3-sums is not
        if found is None and self.clock.left() > 1:
            found = self._try("sums", part, self._three_sum)
        return found or self._refute(part, self.orders)

    def _refute(self, part: Part, orders: int, visits: int = 500_000_000) -> Found | None:
        def attempt(part: Part) -> Found | None:
            left = max(0.01, (self.clock.left()) / 4)
            hole = camion(part.matrix, orders=orders, seed=self.seed, seconds=left, visits=visits, clock=self.clock)
            return None if hole is None else part.refute(hole.rows, hole.columns)

        return self._try("camion", part, attempt)

    def _glance(self, part: Part, *, networks: bool) -> Found | None:
        """A few orders of Camion's signing, in time linear in the nonzeros, then network matrices."""
        quick = self._refute(part, FIRST_ORDERS, 1_000_000 + 5 * part.matrix.nnz)
        return quick or (self._try("network", part, self.try_networks) if networks else None)

    def try_networks(self, part: Part) -> Found | None:
        """Recognise a network matrix or the transpose of one."""
        for transposed in (False, True):
            result = network_matrix(part.matrix, transposed=transposed, clock=self.clock)
            if result.status == "wrong signs":
                # The lines before the misfit are a network matrix, and the support is regular: one search suffices.
                hole = hole_through(part.transposed if transposed else part.matrix, result.misfit, self.clock)
                if hole is None:
                    raise AssertionError("wrong signs without a hole; please report this matrix")
                return part.refute(*((hole.columns, hole.rows) if transposed else (hole.rows, hole.columns)))
            if result.status == "network":
                return part.prove("network", result.data())
        return None

    def try_camion(self, part: Part) -> Found | None:
        """Look for a violating hole in random orders."""
        return self._refute(part, self.orders)

    def try_ghouila_houri(self, part: Part) -> Found | None:
        """List all sign vectors of the short side."""
        if min(part.matrix.shape) > LIMIT:
            return None
        by_rows = part.matrix.shape[0] <= part.matrix.shape[1]
        work = part.matrix if by_rows else part.transposed
        lines = uncolourable_rows(work)
        if lines is None:
            return part.prove("ghouila_houri", {"by": "rows" if by_rows else "columns"})
        across = square_part(work, lines)
        return part.refute(*((lines, across) if by_rows else (across, lines)))

    def try_sums(self, part: Part) -> Found | None:
        """Find a 2-sum or 3-sum and settle its operands; else a small core may violate by itself."""
        split = two_sum_parts(part.matrix, self.clock)
        return self._three_sum(part) if split is None else self._split(part, split)

    def _three_sum(self, part: Part) -> Found | None:
        if part.matrix.shape[0] * part.matrix.shape[1] > THREE_SUM_CELLS:
            return None
        core = find_core(part.matrix, self.clock, seed=self.seed)
        if core is None:
            return None
        split = three_sum_parts(part.matrix, core, self.clock)
        found = None if split is None else self._split(part, split)
        if found is None:
            violation = self.try_ghouila_houri(core)
            if violation is not None and violation.certificate is None:
                return part.refute(violation.rows, violation.columns)
        return found

    def _split(self, part: Part, split: Separation) -> Found | None:
        """Settle the operands of a sum, which have indices of their own."""
        two_sum = split.other_row < 0
        for sign in (1,) if two_sum else (1, -1):
            try:
                pieces = operands(part.matrix, split, sign)
            except ValueError:
                return None  # the supports separate but the signs do not: a refuter will find out
            proofs: list[Certificate] = []
            for piece, (rows, columns) in zip(pieces, split.places(), strict=True):
                found = self._decide(whole(piece), 0)
                if found is None or (found.certificate is None and not two_sum):
                    break
                if found.certificate is None:  # the operands of a 2-sum are submatrices
                    return part.refute(rows[list(found.rows)], columns[list(found.columns)])
                proofs.append(found.certificate)
            if len(proofs) == len(pieces):
                return part.prove("two_sum" if two_sum else "three_sum", split.data(sign), tuple(proofs))
        return None


#: Steps by name, each to be tried alone.
STEPS: dict[str, Callable[[Search, Part], Found | None]] = {
    "network": Search.try_networks,
    "camion": Search.try_camion,
    "ghouila-houri": Search.try_ghouila_houri,
    "sums": Search.try_sums,
}
#: ``auto`` runs them all.
METHODS: tuple[str, ...] = ("auto", *STEPS)
