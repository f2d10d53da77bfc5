"""How far each way of solving both phases goes before the next one takes over."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SearchLimits"]


@dataclass(frozen=True)
class SearchLimits:
    """Limits in sizes and counted work, never in seconds.

    Attributes
    ----------
    admission
        Up to so many columns (pod on node) an integer program proves what search and bounds leave open of admission.
    admitted_kinds
        Up to so many kinds of pods, whole patterns of nodes are put together for admission.
    direct
        Up to so many columns (pod on node) the integer program evens loads out; above, patterns of nodes do.
    kinds
        Kinds of pods beyond which patterns of nodes are too many, so that the bound is that of the relaxation.
    per_pod, least, most
        Steps of one run of a search, by pods, within limits; `max_steps` makes them fewer.
    bounding, longest
        How many times as many steps a bound may take, and at most.
    intervals
        Intervals of the mean.
    """

    admission: int = 4_000
    admitted_kinds: int = 400
    direct: int = 150
    kinds: int = 400
    per_pod: int = 3_000
    least: int = 20_000
    most: int = 2_000_000
    bounding: int = 120
    longest: int = 200_000_000
    intervals: int = 300

    def steps(self, pods: int, max_steps: int | None) -> int:
        """Steps of one run of a search for even loads; the bound takes `bounding` times as many."""
        usual = min(max(self.per_pod * pods, self.least), self.most)
        return min(usual, max_steps or usual)
