"""Random streams by purpose: draws for one purpose do not affect the others."""

from __future__ import annotations

import hashlib

import numpy as np


class Streams:
    """One generator per name, all from one seed.

    Examples
    --------
    >>> a, b = Streams(7), Streams(7)
    >>> _ = b.of("failures").random(100)
    >>> int(a.of("arrivals").integers(1000)) == int(b.of("arrivals").integers(1000))
    True
    """

    def __init__(self, seed: int) -> None:
        if seed < 0:
            raise ValueError(f"the seed must not be negative (got {seed})")
        self.seed = seed
        self._made: dict[str, np.random.Generator] = {}

    def of(self, purpose: str) -> np.random.Generator:
        """Return the generator of a purpose, created on first use."""
        if purpose not in self._made:
            words = np.frombuffer(hashlib.sha256(purpose.encode()).digest(), np.uint32)
            self._made[purpose] = np.random.default_rng([self.seed, *words.tolist()])
        return self._made[purpose]
