"""Durations of steps, and the counts of a replay of events, for every scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass(kw_only=True)
class Replayed:
    """Result of a replay; the subclass of a scheduler adds what its steps decided."""

    #: How many.
    steps: int = 0
    events: int = 0
    milliseconds: list[float] = field(default_factory=list)  # time of every step
    #: Events that did not fit, with their number in the log and the reason; they were left out.
    refused: list[tuple[int, str]] = field(default_factory=list)

    def histogram(self, bins: int = 12) -> list[tuple[float, float, int]]:
        """(from ms, to ms, steps) on a logarithmic scale."""
        return histogram(self.milliseconds, bins)

    def latencies(self) -> dict[str, float]:
        """Median, 99th percentile and longest step, in milliseconds."""
        ms = np.array(self.milliseconds or [0.0])
        return {
            "median_step_ms": float(np.median(ms)),
            "p99_step_ms": float(np.percentile(ms, 99)),
            "longest_step_ms": float(ms.max()),
        }


def histogram(milliseconds: Sequence[float], bins: int = 12) -> list[tuple[float, float, int]]:
    """(from ms, to ms, steps) on a logarithmic scale, no more rows than steps; empty without steps.

    >>> [(low, steps) for low, _, steps in histogram([8.0])]
    [(0.0, 1)]
    """
    if not milliseconds:
        return []
    bins = min(bins, len(milliseconds))
    low, high = max(min(milliseconds), 1e-3), max(milliseconds)
    edges = np.geomspace(low, max(high, low * 1.001), bins + 1)
    edges[0], edges[-1] = 0.0, max(edges[-1], high * 1.0000001)
    counts, _ = np.histogram(milliseconds, edges)
    return [(float(a), float(b), int(n)) for a, b, n in zip(edges[:-1], edges[1:], counts, strict=True)]
