"""Network matrices, recognised exactly and in almost linear time.

A network matrix has a row per arc of a directed tree and a column per further arc: +1 where the tree path from
the arc's tail to its head runs along the tree arc, -1 where against it. They, and their transposes, are
totally unimodular (Tutte 1965).

`realise` finds a tree for the support, column by column. Signs come last: every column is a path by
then, and one two-colouring of rows and columns directs all arcs. By Camion's theorem the signs of a realisable
support are unique up to negating lines, so if they do not fit this tree they fit none, and the matrix is not
totally unimodular.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from flowlex.formulations.program_arrays import Integers
from flowlex.validation.unimodularity.network.orientation import orient
from flowlex.validation.unimodularity.network.realisation import realise
from flowlex.validation.unimodularity.time_limit import Clock, TimeIsUp


@dataclass(frozen=True)
class NetworkResult:
    """Answer of `network_matrix`."""

    #: ``"network"``; ``"no"``; or ``"wrong signs"`` (the support is realisable, the signs are not: not totally
    #: unimodular, and `camion.hole_through` finds the hole).
    status: str
    transposed: bool  # whether the transpose was asked for: then rows and columns change places below
    #: Ends of the tree arc of every row; nodes are 0..number of rows.
    tree_tail: Integers | None = None
    tree_head: Integers | None = None
    #: Ends of the arc of every column.
    arc_tail: Integers | None = None
    arc_head: Integers | None = None
    #: With wrong signs: the first column (row, if transposed) that does not fit those before it. With "no": the column
    #: refused.
    misfit: int = -1

    def data(self) -> dict[str, Any]:
        """Plain data for a certificate of a network matrix."""
        ends = ("tree_tail", "tree_head", "arc_tail", "arc_head")
        return {"transposed": self.transposed, **{key: getattr(self, key).tolist() for key in ends}}


def network_matrix(matrix: sp.csc_array, *, transposed: bool = False, clock: Clock | None = None) -> NetworkResult:
    """Recognise a network matrix (or the transpose of one) and return its tree and arcs.

    ``matrix``: canonical CSC array with entries -1, 0, 1, of any shape, connected or not.
    ``transposed``: look at the transpose.
    ``clock``: raises `TimeIsUp` when its limit passes.
    """
    clock = clock or Clock()
    work: Any = matrix.tocsr() if transposed else matrix
    rows = int(matrix.shape[int(transposed)])
    ptr, idx = work.indptr.astype(np.int64), work.indices.astype(np.int64)
    steps = 15 * (work.nnz + sum(work.shape))
    status, one, two, refused = clock.run(realise, rows, ptr, idx, clock.stop, steps=steps)
    if status == 1:
        raise TimeIsUp
    if status == 2:
        return NetworkResult("no", transposed, misfit=int(refused))
    if status == 3:
        raise AssertionError("the realisation found is no tree; please report this matrix")
    misfit, *arcs = clock.run(orient, rows, ptr, idx, work.data > 0, one, two, steps=steps)
    if misfit == -2:
        raise AssertionError("the realisation found is none; please report this matrix")
    if misfit >= 0:
        return NetworkResult("wrong signs", transposed, misfit=int(misfit))
    return NetworkResult("network", transposed, *arcs)
