"""Schema versions, retention in steps, aggregates, deletion."""

import contextlib
import errno
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from flowlex.systems.telemetry import retention
from flowlex.systems.telemetry.database import SchemaError
from flowlex.systems.telemetry.request_documents import Sample
from flowlex.systems.telemetry.rest_app import create_app
from flowlex.systems.telemetry.service_context import Settings
from flowlex.systems.telemetry.store import Store
from tests.systems.telemetry.stored import count_samples, forget_before


def test_an_empty_database_gets_tables_only_where_that_is_asked_for(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/empty.db"
    (tmp_path / "empty.db").touch()
    with pytest.raises(SchemaError, match="has schema none; run `flowlex telemetry migrate` on it"):
        Store(url, create=False)
    for before in (None, "1"):
        store = Store(url)
        assert store.database.migrated_from == before
        store.close()
    Store(url, create=False).close()


def test_an_unknown_schema_is_refused(sqlite_store: Store) -> None:
    with sqlite_store.database.write() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '99'")
    with pytest.raises(SchemaError, match="has schema 99, unknown to this version"):
        Store(sqlite_store.database.place)


def test_aggregates_are_those_of_the_samples(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Independent: sums over the samples in Python; steps of every size, samples out of order."""
    monkeypatch.setattr(retention, "CHUNK", 7)
    rng = random.Random(5)
    minutes: dict[Any, list[float]] = defaultdict(list)
    hours: dict[Any, list[float]] = defaultdict(list)
    for turn in range(40):
        node, t, value = f"n{rng.randrange(3)}", rng.uniform(7_000, 8_000), rng.choice([rng.random() * 9, 4, -2])
        odd = [Sample(name="a", time=t, value="text"), Sample(name="a", time=t, exit_code=1), Sample(name="b", time=t)]
        store.writer.write([(node, None, [Sample(name="a", time=t, value=value), *odd])], now=9_000.0 + turn)
        minutes[node, int(t // 60) * 60].append(value)
        hours[node, int(t // 3600) * 3600].append(value)
        if turn % 9 == 0:
            store.upkeep.roll_up(9_000.0 + turn)
    while store.upkeep.roll_up(10_000.0):
        pass
    for step, expected in ((60, minutes), (3_600, hours)):
        rows, more = store.reader.rollups(["a"], [], 0, 1e5, step=step, limit=1_000)
        assert not more and {(row.node, row.start) for row in rows} == set(expected)
        for row in rows:
            values = expected[row.node, row.start]
            assert (row.samples, row.least, row.most) == (len(values), min(values), max(values))
            assert row.mean == pytest.approx(sum(values) / len(values))
    assert store.reader.rollups(["b"], [], 0, 1e5, step=60, limit=10) == ([], False)


def test_retention_goes_in_steps_and_the_file_shrinks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "CHUNK", 300)
    monkeypatch.setattr(retention, "FEW", 300)
    monkeypatch.setattr(retention, "PAGES", 20)
    path = tmp_path / "s.db"
    store = Store(f"sqlite:///{path}")
    for turn in range(20):
        batch = [Sample(name=f"v{k}", time=1.0, value="x" * 2_000) for k in range(100)]
        store.writer.write([("n", None, batch)], now=float(turn))
    with store.database.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    before = path.stat().st_size
    steps = []
    while gone := store.upkeep.forget_some(19.0):
        steps.append(gone)
    assert steps == [300] * 6 + [100] and count_samples(store) == 100
    while store.upkeep.give_back():
        pass
    with store.database.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    assert path.stat().st_size < before / 4
    store.close()


def test_old_aggregates_and_silent_sources_go(store: Store) -> None:
    for t in (100.0, 50_000.0):
        store.writer.write([("n", f"j{t:.0f}", [Sample(name="a", time=t, value=1, seq=1)])], now=t)
    while store.upkeep.roll_up(1e9):
        pass
    assert store.upkeep.forget_rollups(60, 40_000) == 1
    assert [row.start for row in store.reader.rollups([], [], 0, 1e9, step=60, limit=9)[0]] == [49_980]
    assert len(store.reader.rollups([], [], 0, 1e9, step=3_600, limit=9)[0]) == 2
    assert store.upkeep.forget_sources(40_000.0) == 0  # its sample is still there
    forget_before(store, 40_000.0)
    assert store.upkeep.forget_sources(40_000.0) == 1


def test_a_series_and_a_node_are_deleted(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "CHUNK", 3)
    monkeypatch.setattr(retention, "FEW", 3)
    app = create_app(store, Settings(require_token=False, retention_s=None))
    with TestClient(app, base_url="http://127.0.0.1") as api:
        for node in ("n1", "n2"):
            for name in ("a", "b"):
                samples = [{"name": name, "time": float(t), "value": t} for t in range(1, 8)]
                assert api.post("/v1/data", json={"node": node, "samples": samples}).status_code == 200
        store.upkeep.roll_up(1e12)
        assert api.delete("/v1/data/a/n1").json() == {"series": 1, "samples": 7}
        assert api.delete("/v1/data/a/n1").status_code == 404
        api.put("/v1/agents/n2", json={})
        assert api.delete("/v1/nodes/n2").json() == {"agents": 1, "series": 2, "samples": 14}
        assert api.delete("/v1/nodes/n2").status_code == 404
        assert [(r["name"], r["node"]) for r in api.get("/v1/data").json()["readings"]] == [("b", "n1")]
        assert count_samples(store) == 7
        body = {"node": "n2", "samples": [{"name": "a", "time": 9.0, "value": 9}]}
        assert api.post("/v1/data", json=body).json()["stored"] == 1  # it may come back
        assert api.get("/v1/data/a/n2").json()["value"] == 9


def test_another_server_may_delete_what_this_one_knows(store: Store) -> None:
    batch = [Sample(name="a", time=1.0, value=1, seq=1)]
    store.writer.write([("n", "j", batch)], now=5.0)
    other = Store(store.database.engine.url.render_as_string(hide_password=False))
    while sum(other.upkeep.remove_some(None, "n")):
        pass
    assert store.writer.write([("n", "j", [Sample(name="a", time=2.0, value=2, seq=2)])], now=6.0) == [1]
    row = store.reader.latest_one("a", "n")
    assert row is not None and row.value == "2"
    other.close()


def test_a_reserve_that_is_cut_off_is_made_whole_or_reported_at_the_start(tmp_path, monkeypatch, caplog):
    with contextlib.closing(Store(f"sqlite:///{tmp_path}/s.db")) as store:
        reserve = tmp_path / "s.db.reserve"
        reserve.write_bytes(b"cut off")
        store.upkeep.check_reserve()
        assert reserve.stat().st_size == retention.RESERVE_BYTES and not caplog.records

        def full(*_):
            raise OSError(errno.ENOSPC, "No space left on device")

        reserve.unlink()
        monkeypatch.setattr("flowlex.systems.telemetry.retention.os.posix_fallocate", full)
        store.upkeep.check_reserve()
        assert "no room for the reserve of 16 MB" in caplog.text and not reserve.exists()
