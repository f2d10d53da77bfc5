"""Bandwidths of a cluster estimated from reported transfers: of a disk, within a rack, between racks.

The rate of a kind of link is the total size of its last transfers divided by their total time (the size-weighted
harmonic mean), so that many short ones do not outweigh a long one. Until enough are reported, the given rate is used.

Source: the bandwidth managers of Tang et al. 2022 estimate B_r and B_s from measured delays; the method is ours.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

#: Kinds of links: a node's own disk, two nodes of a rack, two racks.
LINKS = ("disk", "rack", "between_racks")
#: Largest and smallest number of transfers of an estimate.
_WINDOW, _FEWEST = 64, 5


class Bandwidths:
    """Rates by kind of link in MB/s.

    >>> rates = Bandwidths({"disk": 500.0, "rack": 125.0, "between_racks": 125.0})
    >>> for _ in range(5):
    ...     rates.note("rack", 100.0, 2.0)
    >>> rates.rates()
    {'disk': 500.0, 'rack': 50.0, 'between_racks': 125.0}
    """

    def __init__(self, given: Mapping[str, float]) -> None:
        self.given: dict[str, float] = dict(given)
        self._seen: dict[str, deque[tuple[float, float]]] = {link: deque(maxlen=_WINDOW) for link in LINKS}

    def note(self, link: str, size_mb: float, seconds: float) -> None:
        """Record a transfer; both numbers must be positive."""
        self._seen[link].append((size_mb, seconds))

    def rates(self) -> dict[str, float]:
        """Return the present rates to six digits, about the precision of the measurements."""
        return {link: self._rate(link) for link in LINKS}

    def _rate(self, link: str) -> float:
        seen = self._seen[link]
        if len(seen) < _FEWEST:
            return self.given[link]
        return float(f"{sum(size for size, _ in seen) / sum(seconds for _, seconds in seen):.6g}")

    def document(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {"given": self.given, "seen": {link: list(map(list, seen)) for link, seen in self._seen.items()}}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Bandwidths:
        """Restore from plain data."""
        made = cls(document["given"])
        for link, seen in document["seen"].items():
            made._seen[link].extend((size, seconds) for size, seconds in seen)
        return made
