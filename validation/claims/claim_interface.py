"""A claim, and the result of checking it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Outcome(StrEnum):
    """Result of checking a claim."""

    HOLDS = "holds"
    FAILS = "fails"
    NOT_REPRODUCIBLE = "not reproducible"


@dataclass(frozen=True)
class Finding:
    """The outcome of checking a claim.

    Attributes
    ----------
    outcome
        *holds*, *fails* (then ``evidence`` names the witness) or *not reproducible* (then the reason).
    evidence
        One or two sentences with the figures found.
    data
        The figures, as plain data.
    """

    outcome: Outcome
    evidence: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Claim:
    """A statement, who made it, and the function that checks it.

    ``check`` takes no arguments, decides on the spot from our own code, and gives the same finding every time.
    """

    name: str
    statement: str
    source: str
    check: Callable[[], Finding]
