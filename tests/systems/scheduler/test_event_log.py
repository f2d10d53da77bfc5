"""Event logs in files: what is written is read again, and damage keeps what stands before it."""

import gzip

import pytest

from flowlex.instances import InstanceError, generate
from flowlex.systems.scheduler import event_log as ev
from flowlex.systems.scheduler.random_events import event_stream


def test_event_log_round_trip_and_damage(tmp_path):
    events = list(event_stream(generate("flow-random", seed=3), steps=4, events=6))
    path = tmp_path / "log.jsonl.gz"
    ev.write_event_log(events, path)
    assert list(ev.EventLog(path)) == events
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    for bad, reason in (
        (lines[4][:-9], "line 5"),
        ('{"event": "explode"}', "explode"),
        ('{"event": "finish"}', "finish.task"),
        ('{"event": "finish", "task": "t", "at_s": -1}', "at_s"),
    ):
        broken = tmp_path / "broken.jsonl"
        broken.write_text("\n".join([*lines[:4], bad, *lines[4:]]))
        log = ev.EventLog(broken)
        assert list(log) == events[:4]
        assert isinstance(log.damage, InstanceError)
        for said in ("line 5", reason, "4 events before it are kept"):
            assert said in str(log.damage)
    marked = tmp_path / "marked.jsonl"
    marked.write_text("\n".join(lines), encoding="utf-8-sig")
    assert list(ev.EventLog(marked)) == events
    path.write_bytes(path.read_bytes()[:-20])
    log = ev.EventLog(path)
    assert len(list(log)) < len(events)
    assert "damaged gzip data" in str(log.damage)
    with pytest.raises(InstanceError, match="cannot be read"):
        list(ev.EventLog(tmp_path / "none.jsonl"))
