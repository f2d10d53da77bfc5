"""Avoid pauses of steps by Python's garbage collector, which scans all objects of a large cluster."""

from __future__ import annotations

import gc

#: Number of objects from which on a collection would delay a step noticeably.
_MANY = 5000


def collect_after(objects: int) -> None:
    """Collect now if so many objects were made that a collection would delay one of the next steps."""
    if objects >= _MANY:
        gc.collect()


def collect_on_request() -> None:
    """Run full collections only when ``gc.collect()`` is called, and exclude the present objects from them.

    Python may start a full collection at any time; it scans every object, which takes half a second with 10 000
    machines. Call this after the first step of the scheduler, and ``gc.collect()`` from time to time between steps.
    The setting applies to the whole process.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*gc.get_threshold()[:2], 10**6)
