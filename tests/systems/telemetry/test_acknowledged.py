"""Acknowledged means stored: cloned and restored journals, and two samples under one number."""

import contextlib
import shutil
import sqlite3
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from flowlex.systems.telemetry.agent_buffer import ForeignJournal, Journal
from flowlex.systems.telemetry.http_client import TelemetryClient, Unreachable
from flowlex.systems.telemetry.node_agent import Agent, AgentSettings
from flowlex.systems.telemetry.request_documents import Sample
from flowlex.systems.telemetry.rest_app import create_app
from flowlex.systems.telemetry.retention import RESERVE_BYTES
from flowlex.systems.telemetry.sample_writes import SequenceConflict
from flowlex.systems.telemetry.service_context import Settings
from flowlex.systems.telemetry.store import Store
from tests.systems.telemetry.stored import count_samples, sequence_numbers


def sample(value: object, time: float = 1.0, **more: object) -> Sample:
    return Sample.model_validate({"name": "a", "time": time, "value": value, **more})


def test_a_number_with_two_contents_is_refused_and_changes_nothing(store: Store) -> None:
    store.writer.write([("n", "j", [sample("first", seq=1)])], now=10.0)
    for again in (sample("second", seq=1), sample("first", seq=1, exit_code=3), sample("first", seq=1, name="b")):
        with pytest.raises(SequenceConflict, match="number 1 of source j on node n is stored with another content"):
            store.writer.write([("n", "j", [sample("new", seq=2), again])], now=11.0)
    with pytest.raises(SequenceConflict):
        store.writer.write([("n", "k", [sample("x", seq=7), sample("y", seq=7)])], now=11.0)
    assert count_samples(store) == 1
    row = store.reader.latest_one("a", "n")
    assert row is not None and row.value == '"first"'


def test_a_journal_restored_from_an_older_copy_loses_nothing(
    client: TelemetryClient, tmp_path: Path, sqlite_store: Store
) -> None:
    path, copy = tmp_path / "j.db", tmp_path / "copy.db"

    def collect(values: list[str]) -> None:
        agent = Agent("w1", client, path, AgentSettings(folders=[]))
        for value in values:
            agent.journal.append(sample(value))
        agent.deliver_once()
        agent.journal.close()
        agent._lock_file.close()

    collect(["a", "b", "c"])
    shutil.copy(path, copy)
    collect(["f", "g"])
    shutil.copy(copy, path)  # numbers 4 and 5 are free again in the copy
    for left in tmp_path.glob("j.db-*"):
        left.unlink()
    collect(["h", "i", "j"])
    assert sorted(s.value for s in client.history(["a"]).samples) == list("abcfghij")
    assert count_samples(sqlite_store) == 8


def test_two_copies_that_run_at_once_lose_nothing(client: TelemetryClient, tmp_path: Path) -> None:
    """A machine cloned with its memory: two copies continue the same opening of the journal."""
    agents = []
    for name in ("one", "two"):
        agent = Agent("w1", client, tmp_path / f"{name}.db", AgentSettings(folders=[]))
        agent.journal.source = "same-opening"
        for i in range(5):
            agent.journal.append(sample(f"{name} {i}"))
        agents.append(agent)
    for agent in agents:
        agent.deliver_once()
        assert len(agent.journal) == 0
    assert len({s.value for s in client.history(["a"]).samples}) == 10


def test_the_agent_keeps_what_the_service_did_not_store(client: TelemetryClient, line: Any, tmp_path: Path) -> None:
    agent = Agent("w1", client, tmp_path / "j.db", AgentSettings(folders=[]))
    agent.journal.append(sample(1))
    line.change = lambda content: content.replace(b'"stored":1', b'"stored":0')
    with pytest.raises(Unreachable, match="0 stored and 0 known of 1 samples; they stay here"):
        agent.deliver_once()
    assert len(agent.journal) == 1
    line.change = bytes
    agent.deliver_once()
    assert len(agent.journal) == 0 and len(client.history(["a"]).samples) == 1


def test_a_journal_is_bound_to_its_node(tmp_path: Path) -> None:
    Journal(tmp_path / "j.db", "w1").close()
    with pytest.raises(ForeignJournal, match="is the journal of node w1, not of w2"):
        Journal(tmp_path / "j.db", "w2")
    Journal(tmp_path / "j.db", "w1").close()


def test_a_full_disk_of_the_service_loses_nothing_acknowledged(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path}/s.db")
    pages = 120

    @sa.event.listens_for(store.database.engine, "connect")
    def small(connection: Any, record: object) -> None:
        connection.execute(f"PRAGMA max_page_count = {pages}")

    store.database.engine.dispose()
    acknowledged = 0
    app = create_app(store, Settings(require_token=False, retention_s=None))
    with TestClient(app, base_url="http://127.0.0.1") as api:

        def write(number: int) -> int:
            sent = {"name": "a", "time": 1.0, "value": "x" * 9_000, "seq": number}
            body = {"node": "n", "source": "j", "samples": [sent]}
            return api.post("/v1/data", json=body).status_code

        for number in range(1, 100):
            status = write(number)
            if status != 200:
                assert status == 503
                break
            acknowledged = number
        assert 5 < acknowledged < 90
        assert sequence_numbers(store, "j") == set(range(1, acknowledged + 1))
        assert api.get("/v1/data/a/n").status_code == 200
        pages = 1_000  # space again
        store.database.engine.dispose()
        assert write(acknowledged + 1) == 200
    store.close()


def test_history_is_deleted_on_a_full_disk(tmp_path: Path) -> None:
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=40m", "none", place], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("this user may not mount a small disk")
    try:
        with contextlib.closing(Store(f"sqlite:///{place}/s.db")) as store:
            app = create_app(store, Settings(require_token=False, retention_s=None))
            with TestClient(app, base_url="http://127.0.0.1") as api:
                store.upkeep.give_back()
                reserve = place / "s.db.reserve"
                assert reserve.stat().st_size == RESERVE_BYTES
                for number in range(1, 1_000):
                    samples = [
                        {"name": "a", "time": 1.0, "value": "x" * 60_000, "seq": 20 * number + k} for k in range(20)
                    ]
                    if api.post("/v1/data", json={"node": "n", "samples": samples}).status_code == 503:
                        break
                assert 5 < number < 40 and api.get("/readyz").status_code == 503
                gone = api.delete("/v1/history", params={"before": time.time() + 60})
                assert gone.status_code == 200 and gone.json()["removed"] == 20 * (number - 1)
                assert api.post("/v1/data", json={"node": "n", "samples": samples}).status_code == 200
                assert api.get("/readyz").status_code == 200
                while store.upkeep.give_back():
                    pass
                assert reserve.exists()
    finally:
        subprocess.run(["umount", place], check=True)


def test_a_full_disk_of_the_agent_keeps_what_was_collected(client: TelemetryClient, tmp_path: Path) -> None:
    agent = Agent("w1", client, tmp_path / "j.db", AgentSettings(folders=[]))
    agent.journal._connection.execute("PRAGMA max_page_count = 20")
    kept = 0
    with pytest.raises(sqlite3.OperationalError, match="full"):
        for _ in range(100):
            agent.journal.append(sample("x" * 5_000))
            kept += 1
    assert len(agent.journal) == kept > 3
    assert agent.deliver_once() == kept
    agent.journal.append(sample("room again"))
    assert agent.deliver_once() == 1
