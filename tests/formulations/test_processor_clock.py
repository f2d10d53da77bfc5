"""Time limits count processor time without compilation."""

import time

from flowlex.formulations import processor_clock
from flowlex.formulations.processor_clock import notify, processor_seconds, set_listener


def spend(seconds):
    """Use a given amount of processor time."""
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


def test_compiling_is_not_counted():
    heard = []
    set_listener(heard.append)
    try:
        before = processor_seconds()
        notify(True)
        spend(0.2)
        assert processor_seconds() - before < 0.1  # the clock is stopped
        notify(False)
        assert processor_seconds() - before < 0.1
        spend(0.05)
        assert processor_seconds() - before >= 0.05
    finally:
        set_listener(None)
    assert heard == [True, False] and processor_clock._began is None


def test_a_busy_machine_is_not_counted(monkeypatch):
    monkeypatch.setattr(time, "perf_counter", lambda: 1e9)
    before = processor_seconds()
    time.sleep(0.2)
    assert processor_seconds() - before < 0.1
