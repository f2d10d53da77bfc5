"""Pause Python's garbage collector while many long-lived objects are made at once."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["collect_after", "collector_paused"]

#: From so many objects of ours on, a collection takes long enough to hold up a step.
_MANY = 5000


@contextmanager
def collector_paused() -> Iterator[None]:
    """Building a large network makes millions of objects that stay; scanning them over and over takes half the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def collect_after(objects: int) -> None:
    """Collect now if so many objects were built that a collection would hold up one of the next steps."""
    if objects >= _MANY:
        gc.collect()
