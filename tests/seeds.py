"""Seeds of random cases: the first few in every run, the others in the slow one."""

from typing import Any

import pytest


def seeds(first: int, count: int) -> list[Any]:
    """Seeds 0 to ``count`` - 1, those from ``first`` on marked slow."""
    return [*range(first), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(first, count))]


def blocks_of_seeds(first: int, count: int, size: int = 100) -> list[Any]:
    """Like `seeds`, in ranges of one seed, then of ``size`` seeds, as collecting thousands of tests takes seconds."""
    slow = (range(begin, min(begin + size, count)) for begin in range(first, count, size))
    ranges = [*(range(seed, seed + 1) for seed in range(first)), *slow]
    marks: list[Any] = [()] * first + [pytest.mark.slow] * (len(ranges) - first)
    return [
        pytest.param(each, marks=mark, id=f"{each[0]}-{each[-1]}") for each, mark in zip(ranges, marks, strict=True)
    ]
