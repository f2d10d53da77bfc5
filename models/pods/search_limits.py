"""How far each way of solving both phases goes before the next one takes over."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SearchLimits"]


@dataclass(frozen=True)
class SearchLimits:
    """Limits in sizes and counted work, never in seconds."""

    # Up to so many columns (pod on node) an integer program proves what search and bounds leave open of admission
    admission: int = 4_000
    admitted_kinds: int = 400  # up to so many kinds of pods, whole patterns of nodes are put together for admission
    # Up to so many columns (pod on node) the integer program evens loads out; above, patterns of nodes do
    direct: int = 150
    # Kinds of pods beyond which patterns of nodes are too many, so that the bound is that of the relaxation
    kinds: int = 400
    # per_pod, least, most: steps of one run of a search, by pods, within limits; `max_steps` makes them fewer
    per_pod: int = 3_000
    least: int = 20_000
    most: int = 2_000_000
    # bounding, longest: how many times as many steps a bound may take, and at most
    bounding: int = 120
    longest: int = 200_000_000
    intervals: int = 300  # intervals of the mean

    def steps(self, pods: int, max_steps: int | None) -> int:
        """Steps of one run of a search for even loads; the bound takes `bounding` times as many."""
        usual = min(max(self.per_pod * pods, self.least), self.most)
        return min(usual, max_steps or usual)
