"""Means over seeds with their 95 % confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Estimate:
    """Mean of independent runs, and half the width of its 95 % confidence interval (Student's t).

    ``half`` is infinite for a single run: nothing is known about its spread.
    """

    mean: float
    half: float
    runs: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Estimate:
        """Estimate from one value per run; values that are not finite are an error."""
        from scipy.stats import t

        array = np.asarray(values, np.float64)
        if not len(array) or not np.isfinite(array).all():
            raise ValueError(f"an estimate needs at least one finite value, got {list(values)}")
        runs = len(array)
        spread = float(array.std(ddof=1)) if runs > 1 else math.inf
        half = float(t.ppf(0.975, runs - 1)) * spread / math.sqrt(runs) if runs > 1 else math.inf
        return cls(float(array.mean()), half, runs)

    @property
    def low(self) -> float:
        """Lower end of the interval."""
        return self.mean - self.half

    @property
    def high(self) -> float:
        """Upper end of the interval."""
        return self.mean + self.half

    def __str__(self) -> str:
        return f"{self.mean:.4g}" + (f" ± {self.half:.2g}" if math.isfinite(self.half) else " (one run)")
