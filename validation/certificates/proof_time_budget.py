"""The processor seconds that proofs may take. Checks that do not fit in are quoted and marked so."""

from __future__ import annotations

import math
from typing import Self

from flowlex.formulations.processor_clock import coarse_seconds, processor_seconds
from flowlex.validation.certificates.certificate import Check

#: Share of a time limit that the certificate may always take, even if solving took all of it.
_LEAST_SHARE = 0.1
#: Limits below are read from the exact clock.
_COARSE_FROM_S = 0.1


class Budget:
    """Processor seconds of this process, counted from now.

    A verifier always recomputes the facts of an answer (feasibility, figures). Before each expensive part of a proof it
    looks at `spent`; from then on it reports what is left with `quoted`, and claims no optimum.

    Parameters
    ----------
    seconds
        The limit; infinite by default.
    """

    def __init__(self, seconds: float = math.inf) -> None:
        self._end = processor_seconds() + seconds
        self._clock = coarse_seconds if seconds > _COARSE_FROM_S else processor_seconds
        #: Whether anything was quoted because the limit had passed.
        self.quoting = False

    @classmethod
    def remaining(cls, limit_s: float | None, started: float) -> Self:
        """What is left of a time limit that began at ``started`` (`processor_seconds`), at least a tenth of it.

        Parameters
        ----------
        limit_s
            The whole limit in processor seconds; None: no limit.
        started
            What `processor_seconds` gave at the start of the limit, in seconds.
        """
        if limit_s is None:
            return cls()
        return cls(max(limit_s - (processor_seconds() - started), _LEAST_SHARE * limit_s))

    @property
    def spent(self) -> bool:
        """Whether the limit has passed."""
        return self._clock() >= self._end

    def quoted(self, name: str) -> Check:
        """A check that was not made because the limit had passed; it supports ``bounded`` at most.

        Parameters
        ----------
        name
            The statement that was to be checked. The attribute ``quoting`` becomes True.
        """
        self.quoting = True
        return Check(name, True, detail="not recomputed: the time limit has passed", how="quoted")
