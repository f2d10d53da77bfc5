"""The garbage collector's state is restored after building, also after errors."""

import gc

import pytest

from flowlex.formulations.gc_pause import collector_paused
from flowlex.systems.scheduler.live.garbage_collection import collect_on_request


def test_the_collector_goes_on_afterwards():
    assert gc.isenabled()
    with collector_paused():
        assert not gc.isenabled()
        with collector_paused():
            pass
        assert not gc.isenabled()  # the inner one leaves it as it found it
    assert gc.isenabled()
    with pytest.raises(KeyError), collector_paused():
        raise KeyError
    assert gc.isenabled()


def test_full_collections_wait_until_they_are_asked_for():
    before = gc.get_threshold()
    try:
        collect_on_request()
        known, full = gc.get_freeze_count(), gc.get_stats()[2]["collections"]
        assert known > 1000
        rings = [[] for _ in range(200_000)]
        for ring in rings:
            ring.append(ring)
        assert gc.get_stats()[2]["collections"] == full
        del rings, ring
        assert gc.collect() >= 200_000  # what came later is still found
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
