"""Seeds of random cases: the first few in every run, the others in the slow one."""

from __future__ import annotations

from typing import Any

import pytest


def seeds(first: int, count: int) -> list[Any]:
    """Seeds 0 to ``count`` - 1, those from ``first`` on marked slow."""
    return [*range(first), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(first, count))]
