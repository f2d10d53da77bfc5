r"""Blocks: columns that are sums over identical copies, each an integer vector with rows of its own.

With reduced costs r of the columns of a block, every answer has

.. math:: \sum_j r_j x_j \ge n \min \{r z : z \text{ a copy}\}

for n copies, whose least cost the checker finds itself (Dantzig and Wolfe, 1960). In a file, a leaf names its blocks:
``{"rows": ..., "blocks": ["card"]}``. Their columns are then bounded by the copies, not by their own bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from flowlex.validation.proofs.exact_program import Block, Whole

#: Steps of the search for the best filling; then a bound by the best value per size has to do.
_STEPS = 50_000


def without_blocks(blocks: Sequence[Block], reduced: Whole, unit: Fraction) -> tuple[Whole, Fraction | None]:
    """The reduced costs with 0 for the columns of blocks, and the least that all copies cost; None: no bound is known.

    ``blocks`` share no column; ``reduced``: (n,) of all columns, as integers times a unit.
    """
    total, reduced = Fraction(0), reduced.copy()
    for block in blocks:
        costs = reduced[block.columns]
        if (costs == 0).all():
            continue
        least = block.least(costs, unit)
        if least is None:
            return reduced, None
        total += block.count * least
        reduced[block.columns] = 0
    return reduced, total


def best_filling(sizes: Sequence[int], values: Sequence[int], room: int) -> int:
    """Upper bound on the value of pieces, any number of each, in a room; exact if the search is short.

    Examples
    --------
    >>> best_filling([3, 2], [5, 3], 7)
    11
    """
    useful = [(s, v) for s, v in zip(sizes, values, strict=True) if v > 0 and s <= room]
    if not useful:
        return 0
    if any(s <= 0 for s, _ in useful):
        raise ArithmeticError("pieces of no size have a value: there is no largest filling")
    useful.sort(key=lambda each: Fraction(-each[1], each[0]))
    best, steps = 0, 0
    stack = [(0, room, 0)]
    while stack:
        k, left, value = stack.pop()
        steps += 1
        if steps > _STEPS:
            return useful[0][1] * room // useful[0][0]
        best = max(best, value)
        if k < len(useful):
            size, worth = useful[k]
            if value + worth * left // size > best:
                stack += [(k + 1, left - many * size, value + many * worth) for many in range(left // size + 1)]
    return best
