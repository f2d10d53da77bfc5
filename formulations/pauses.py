"""Who is told while loops are compiled, so that a clock can stand still; known without importing the compiler."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["tell", "watch"]

_told: Callable[[bool], None] | None = None


def watch(told: Callable[[bool], None] | None) -> None:
    """Be told when compiling begins (True) and ends (False)."""
    global _told
    _told = told


def tell(compiling: bool) -> None:
    """Tell whoever watches."""
    if _told is not None:
        _told(compiling)
