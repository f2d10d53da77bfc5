"""How long steps took, as a histogram."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["histogram"]


def histogram(milliseconds: Sequence[float], bins: int = 12) -> list[tuple[float, float, int]]:
    """(from ms, to ms, steps) on a logarithmic scale; empty without steps."""
    if not milliseconds:
        return []
    low, high = max(min(milliseconds), 1e-3), max(milliseconds)
    edges = np.geomspace(low, max(high, low * 1.001), bins + 1)
    edges[0], edges[-1] = 0.0, max(edges[-1], high * 1.0000001)
    counts, _ = np.histogram(milliseconds, edges)
    return [(float(a), float(b), int(n)) for a, b, n in zip(edges[:-1], edges[1:], counts, strict=True)]
