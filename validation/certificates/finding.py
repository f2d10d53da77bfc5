"""What a verifier found: checks, the claim they support, and the figures it recomputed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from flowlex.validation.certificates.certificate import Check, Claim

__all__ = ["Finding"]


@dataclass(frozen=True)
class Finding:
    """What a verifier found.

    Attributes
    ----------
    claim
        What the checks support, if all hold.
    objective, bound
        Recomputed; None where the document may state none. The bound is one that the checks prove or quote.
    stages, metrics
        Recomputed figures by name.
    unjudged, words
        Metrics that the answer does not decide, such as how it was found: numbers of at least 0, and texts. All others
        must be recomputed.
    tolerance, gap
        Relative difference accepted of figures, 0 where all is exact; the gap where the problem has its own measure.
    """

    claim: Claim
    checks: tuple[Check, ...]
    objective: Fraction | int | None = None
    bound: Fraction | int | None = None
    stages: Mapping[str, Fraction | int] = field(default_factory=dict)
    metrics: Mapping[str, float | int | Fraction | str] = field(default_factory=dict)
    unjudged: Collection[str] = ()
    words: Collection[str] = ()
    tolerance: float = 0.0
    gap: float | None = None
