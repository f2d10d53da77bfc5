"""Minimal column generation for max-min fairness with space sharing: arrays and HiGHS, without certificate."""

from __future__ import annotations

import highspy
import numpy as np

from flowlex.formulations.program_arrays import Floats, Integers


def plain_max_min(speed: Floats, pairs: Floats, scale: Integers, count: Integers, few: int = 3) -> tuple[float, int]:
    """Return the least normalised throughput and the number of generated columns.

    ``speed`` (n, J) alone, ``pairs`` (J, n, n) of the row's job with the column's, ``scale`` (n,), ``count`` (J,).
    """
    n, types = speed.shape
    gain = scale / (speed @ count / count.sum())
    highs, inf = highspy.Highs(), highspy.kHighsInf
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("threads", 1)
    highs.addVar(0, inf)
    highs.changeColCost(0, -1.0)
    none = np.zeros(0, np.int32), np.zeros(0)
    for side in [*np.ones(n), *count.astype(float)]:
        highs.addRow(-inf, side, 0, *none)
    for _ in range(n):
        highs.addRow(0, inf, 1, np.zeros(1, np.int32), np.array([-1.0]))

    def add(gpu: Integers, members: list[Integers], speeds: list[Floats]) -> None:
        rows = [n + gpu, *members, *(n + types + m for m in members)]
        values = [scale[members[0]], *(np.ones(len(gpu)) for _ in members)]
        values += [s * gain[m] for m, s in zip(members, speeds, strict=True)]
        index, value = np.column_stack(rows).astype(np.int32), np.column_stack(values).astype(float)
        k, start = len(gpu), np.arange(0, index.size, index.shape[1], dtype=np.int32)
        highs.addCols(k, np.zeros(k), np.zeros(k), np.full(k, inf), index.size, start, index.ravel(), value.ravel())

    job, gpu = np.nonzero(speed)
    add(gpu, [job], [speed[job, gpu]])
    left = (pairs > 0) & (pairs.transpose(0, 2, 1) > 0) & np.triu(np.ones((n, n), bool), 1)
    while True:
        highs.run()
        dual = np.array(highs.getSolution().row_dual)
        time, rent, level = -dual[:n], -dual[n : n + types], dual[n + types :]
        half = (level * gain)[:, None] * pairs - time[:, None]
        worth = np.where(left, half + half.transpose(0, 2, 1) - scale[:, None] * rent[:, None, None], -np.inf)
        partner = np.argpartition(-worth, few - 1, axis=2)[:, :, :few]
        j, a, _ = np.indices(partner.shape)
        found = np.stack([j, a, partner])[:, worth[j, a, partner] > 1e-9]
        order = np.lexsort((-worth[tuple(found)], found[1]))
        found = found[:, order]
        j, a, b = found[:, np.arange(len(order)) - np.searchsorted(found[1], found[1]) < few]
        if not len(a):
            return -float(highs.getInfo().objective_function_value), int(highs.getNumCol()) - 1
        left[j, a, b] = False
        add(j, [a, b], [pairs[j, a, b], pairs[j, b, a]])
        highs.setOptionValue("simplex_strategy", 4)
