"""Sums of rows to which mixed-integer rounding is applied, with the scale that cuts the vertex off deepest.

A sum begins with a tight row. Continuous columns away from their bounds are replaced by the integer column of a row
that bounds them (``x <= M y``), or eliminated by another tight row. What is left is divided by the coefficient of an
integer column, whose bounds are complemented where the vertex is nearer to the upper one.
Source: Marchand and Wolsey 2001.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from flowlex.formulations.program_arrays import Booleans, Floats, LinearProgramArrays

#: Rows that are added to a first one, scales tried for a sum, tight rows tried in a round.
_STEPS, _SCALES, _ROWS = 5, 8, 400
#: By which a scale is divided as well.
_PARTS = (1.0, 0.5, 0.25, 0.125)
#: A column or row this near to its side lies there.
_NEAR = 1e-6


@dataclass(eq=False)
class Rounding:
    """The rows of a program by which sums are made."""

    arrays: LinearProgramArrays

    @cached_property
    def by_row(self) -> Any:
        """The matrix in rows."""
        return self.arrays.matrix.tocsr()

    @cached_property
    def bounding(self) -> dict[int, list[tuple[int, float]]]:
        """Of each continuous column the rows of it and one integer column, with its coefficient."""
        a, rows = self.arrays, self.by_row
        found: dict[int, list[tuple[int, float]]] = {}
        for i in np.flatnonzero(np.diff(rows.indptr) == 2).tolist():
            columns = rows.indices[rows.indptr[i] : rows.indptr[i + 1]]
            whole = a.integrality[columns]
            if whole.sum() == 1:
                place = int(np.argmin(whole))
                found.setdefault(int(columns[place]), []).append((i, float(rows.data[rows.indptr[i] + place])))
        return found

    def sums(self, x: Floats) -> Iterator[tuple[Floats, float, Floats, Floats]]:
        """Multipliers of rows, the right side, and at which sides columns and rows are measured: 1 lower, -1 upper.

        ``x``: the vertex.
        """
        a, matrix = self.arrays, self.by_row
        activity = np.asarray(matrix @ x)
        below, above = activity - a.row_lower, a.row_upper - activity
        row_state = np.where(np.isfinite(below) & (below <= above), 1.0, np.where(np.isfinite(above), -1.0, 0.0))
        slack = np.where(row_state > 0, below, above)
        down, up = x - a.column_lower, a.column_upper - x
        state = np.where(np.isfinite(down) & (down <= up), 1.0, np.where(np.isfinite(up), -1.0, 0.0))
        apart = np.maximum(np.where(state > 0, down, np.where(state < 0, up, np.inf)), 0.0)
        tight = (row_state != 0) & (slack <= _NEAR * (1 + np.abs(activity)))
        base = np.where(state > 0, a.column_lower, np.where(state < 0, a.column_upper, 0.0))
        side = np.where(row_state > 0, a.row_lower, np.where(row_state < 0, a.row_upper, 0.0))
        open_ = ~a.integrality & (apart > _NEAR)
        loose = (apart > _NEAR).astype(float)
        worth = tight & (np.asarray(abs(matrix) @ loose) > 0)
        for first in np.flatnonzero(worth)[:_ROWS].tolist():
            rho: dict[int, float] = {first: 1.0}
            for _ in range(_STEPS + 1):
                row = self._sum(rho)
                whole = self._bounded(rho, row, open_, apart, slack, row_state)
                summed = row if len(whole) == len(rho) else self._sum(whole)
                made = self._scaled(whole, summed, state, apart, base, row_state, slack, side)
                if made is not None:
                    yield (*made, state, row_state)
                    break
                if not self._extended(rho, row, open_, apart, tight):
                    break

    def _sum(self, rho: dict[int, float]) -> Floats:
        matrix, row = self.by_row, np.zeros(len(self.arrays.cost))
        for i, times in rho.items():
            part = slice(matrix.indptr[i], matrix.indptr[i + 1])
            row[matrix.indices[part]] += times * matrix.data[part]
        row[np.abs(row) < 1e-12 * max(1.0, float(np.abs(row).max(initial=0)))] = 0.0
        return row

    def _bounded(
        self, rho: dict[int, float], row: Floats, open_: Booleans, apart: Floats, slack: Floats, row_state: Floats
    ) -> dict[int, float]:
        """The sum with continuous columns replaced by integer ones that bound them more tightly."""
        found = dict(rho)
        for column in np.flatnonzero((row != 0) & open_).tolist():
            ways = [
                (float(slack[i]), i, by)
                for i, by in self.bounding.get(column, ())
                if i not in rho and row_state[i] and slack[i] < apart[column] - _NEAR
            ]
            if ways:
                _, i, by = min(ways)
                found[i] = found.get(i, 0.0) - float(row[column]) / by
        return found

    def _extended(self, rho: dict[int, float], row: Floats, open_: Booleans, apart: Floats, tight: Booleans) -> bool:
        """Add a tight row that eliminates a continuous column; False if there is none."""
        matrix = self.arrays.matrix
        for column in sorted(np.flatnonzero((row != 0) & open_).tolist(), key=lambda c: -apart[c])[:3]:
            part = slice(matrix.indptr[column], matrix.indptr[column + 1])
            for i, by in zip(matrix.indices[part].tolist(), matrix.data[part].tolist(), strict=True):
                if i not in rho and tight[i] and abs(by) > 1e-6:
                    rho[i] = -float(row[column]) / by
                    return True
        return False

    def _scaled(
        self,
        rho: dict[int, float],
        row: Floats,
        state: Floats,
        apart: Floats,
        base: Floats,
        row_state: Floats,
        slack: Floats,
        side: Floats,
    ) -> tuple[Floats, float] | None:
        """The sum divided so that its rounding cuts the vertex off deepest; None if no scale does."""
        a, used = self.arrays, np.flatnonzero(row)
        if not len(used) or (state[used] == 0).any() or len(used) > 2000:
            return None
        rows = np.array(list(rho), np.int64)
        times = np.array(list(rho.values()))
        beta = float(times @ side[rows]) - float(row[used] @ base[used])
        alpha, distance, whole = row[used] * state[used], apart[used], a.integrality[used]
        whole = whole & (np.rint(base[used]) == base[used])
        one_sided = a.row_lower[rows] != a.row_upper[rows]
        of_slack, slacks = (-times * row_state[rows])[one_sided], slack[rows][one_sided]
        moved = whole & (distance > _NEAR)
        if not moved.any() or not abs(beta) < 1e9:
            return None
        scales = np.unique(np.abs(alpha[moved]).round(12))[::-1][:_SCALES]
        scales = np.outer(scales, _PARTS).ravel()
        depths = _depths(scales[scales > 1e-9], alpha, beta, whole, distance, of_slack, slacks)
        best, scale = (float(depths.max()), float(scales[np.argmax(depths)])) if len(depths) else (0.0, 1.0)
        if best < 1e-3:
            return None
        multipliers = np.zeros(len(a.row_lower))
        multipliers[rows] = times / scale
        return multipliers, beta / scale


def _depths(
    scales: Floats, alpha: Floats, beta: float, whole: Booleans, distance: Floats, of_slack: Floats, slacks: Floats
) -> Floats:
    """How far the roundings of ``alpha t + of_slack s = beta``, divided by each scale, cut the vertex off."""
    b = beta / scales
    f = (b - np.floor(b))[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        each = alpha / scales[:, None]
        part = each - np.floor(each)
        rest = np.where(whole, np.where(part <= f, part, part - 1), each)
        gamma = np.maximum(rest / f, -rest / (1 - f))
        mine = of_slack / scales[:, None]
        violation = 1 - gamma @ distance - np.maximum(mine / f, -mine / (1 - f)) @ slacks
        found: Floats = violation / np.maximum(np.linalg.norm(gamma, axis=1), 1e-9)
    return np.where((f[:, 0] > 0.01) & (f[:, 0] < 0.99), found, 0.0)
