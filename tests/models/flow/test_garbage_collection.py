"""The garbage collector is as it was after building, whatever happens."""

from __future__ import annotations

import gc

import pytest

from flowlex.models.flow.garbage_collection import collector_paused


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
