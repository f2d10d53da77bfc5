"""Limits of the methods of both phases, which decide when the next method is used."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SearchLimits:
    """Limits of sizes and counted steps, independent of time."""

    # Largest number of columns (pod on node) for which an integer program closes the gap of admission
    admission: int = 4_000
    admitted_kinds: int = 400  # largest number of kinds of pods for which admission uses node patterns
    # Largest number of columns (pod on node) for which an integer program balances loads; beyond, node patterns do
    direct: int = 150
    # Largest number of kinds of pods for which node patterns bound the balance; beyond, only the relaxation does
    kinds: int = 400
    # per_pod, least, most: steps of one run of a search: per pod, least and most; `max_steps` reduces them
    per_pod: int = 3_000
    least: int = 20_000
    most: int = 2_000_000
    # bounding, longest: steps of bounding, as a factor of the steps of a run, and their largest number
    bounding: int = 120
    longest: int = 200_000_000
    intervals: int = 300  # largest number of intervals of the mean

    def steps(self, pods: int, max_steps: int | None) -> int:
        """Steps of one run of a search for balanced loads."""
        usual = min(max(self.per_pod * pods, self.least), self.most)
        return min(usual, max_steps or usual)
