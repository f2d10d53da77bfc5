"""A small problem drawn at random: rows of all senses, free and integer columns, several objectives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

import flowlex as fx
from flowlex.formulations.language.expressions import Expression


def random_problem(rng: np.random.Generator, *, most: int = 4, bounded: bool = False) -> fx.Problem:
    """A problem of at most three blocks of variables and three objectives; it may be infeasible or unbounded.

    Parameters
    ----------
    rng
        Where the draws come from.
    most
        Most variables of a block.
    bounded
        Whether every variable has both bounds.

    Examples
    --------
    >>> import numpy as np
    >>> from flowlex.testing import random_problem
    >>> random_problem(np.random.default_rng(2)).solve().status in ("optimal", "infeasible", "unbounded")
    True
    """
    p = fx.Problem("random")
    blocks: list[Expression] = []
    for b in range(int(rng.integers(1, 4))):
        n = int(rng.integers(1, most + 1))
        low = int(rng.integers(-2, 1))
        high = low + int(rng.integers(0, 4))
        kind = rng.integers(4)
        integer = bool(kind in (1, 3))
        level: dict[str, Any] = {"i": range(n)} if b == 0 else {f"i{b}": range(n)}
        if kind == 0:
            blocks.append(p.variables(f"v{b}", binary=True, **level))
            continue
        lower = min(low / 2, high) if kind == 2 and rng.random() < 0.3 else low
        blocks.append(
            p.variables(
                f"v{b}",
                lower=lower if bounded or integer or rng.random() < 0.8 else None,
                upper=high if bounded or kind == 1 or rng.random() < 0.8 else None,
                integer=integer,
                **level,
            )
        )

    def total() -> Expression:
        parts = []
        for x in blocks:
            numbers = rng.integers(-3, 4, len(x)) / rng.choice([1, 1, 1, 2, 5])
            parts.append((x * pd.Series(numbers, index=x.index.to_pandas())).sum())
        found = parts[0]
        for part in parts[1:]:
            found = found + part
        return found

    for r in range(int(rng.integers(0, 6))):
        e, side = total(), int(rng.integers(-4, 8))
        rule = (e <= side, e >= side - 4, e == int(rng.integers(0, 3)))[int(rng.integers(3))]
        try:
            p.constrain(f"r{r}", rule)
        except fx.StatementError as error:  # a row without variables that cannot hold
            if "no variable" not in str(error):
                raise
    for k in range(int(rng.integers(1, 4))):
        within = 0 if rng.random() < 0.6 else [0.5, 1, "10 %"][int(rng.integers(3))]
        add = p.minimize if rng.random() < 0.5 else p.maximize
        add(f"o{k}", total() + int(rng.integers(-2, 3)), within=within)
    return p
