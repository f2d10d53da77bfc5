"""Small programs with all their vertices."""

from itertools import combinations
from typing import Any

import numpy as np

from flowlex.validation.unimodularity.named_matrix import NamedMatrix, Program, canonical

__all__ = ["QUADRATIC", "program", "vertices"]

QUADRATIC = """NAME Q
ROWS
 N  obj
 L  c1
COLUMNS
    MARKER                 'MARKER'                 'INTORG'
    x         obj         -1.0   c1           1.0
    y         obj         -1.0   c1           1.0
    MARKER                 'MARKER'                 'INTEND'
RHS
    RHS       c1         1.0
BOUNDS
 UP BND       x           4.0
 UP BND       y           4.0
QUADOBJ
    x x 2
    y y 2
ENDATA
"""


def program(matrix: Any, sides: Any, bounds: Any = (0, np.inf), integer: Any = True) -> NamedMatrix:
    """A program with (lower, upper) sides by row, and bounds and integrality by column or for all columns."""
    held = canonical(np.array(matrix))
    columns = int(held.shape[1])
    known = Program(
        sides=np.array(sides, dtype=float).reshape(-1, 2).T,
        bounds=np.broadcast_to(np.array(bounds, dtype=float), (columns, 2)).T,
        integer=np.broadcast_to(integer, columns),
        cost=np.zeros(columns),
    )
    return NamedMatrix(held, program=known)


def vertices(named: NamedMatrix) -> list[np.ndarray]:
    """All vertices: every choice of as many tight rows and bounds as there are columns."""
    assert named.program is not None
    dense, (low, high), (lower, upper) = named.matrix.toarray(), named.program.sides, named.program.bounds
    size = dense.shape[1]
    tight = [(row, b) for row, *ends in zip(dense, low, high, strict=True) for b in set(ends) if np.isfinite(b)]
    tight += [(unit, b) for unit, *ends in zip(np.eye(size), lower, upper, strict=True) for b in ends if np.isfinite(b)]
    found = []
    for chosen in combinations(tight, size):
        square = np.array([row for row, _ in chosen], dtype=float)
        if abs(np.linalg.det(square)) < 1e-9:
            continue
        point = np.linalg.solve(square, np.array([b for _, b in chosen], dtype=float))
        ax = dense @ point
        inside = np.all(ax >= low - 1e-9) and np.all(ax <= high + 1e-9)
        if inside and np.all(point >= lower - 1e-9) and np.all(point <= upper + 1e-9):
            found.append(point)
    return found
