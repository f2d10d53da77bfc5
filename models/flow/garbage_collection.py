"""Keep Python's garbage collector from looking at every object of a large cluster while a step waits."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["collect_after", "collect_on_request", "collector_paused"]

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


def collect_on_request() -> None:
    """Let full collections wait until ``gc.collect()`` is called, and leave what is alive now out of them.

    A full collection looks at every object, which takes half a second in a cluster of 10 000 machines, whenever Python
    likes. Call this when the scheduler has made its first step, and ``gc.collect()`` from time to time between steps.
    It holds for the whole process.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*gc.get_threshold()[:2], 10**6)
