"""Stale values are reported as stale, even if the wall clocks of service and nodes are changed."""

import time
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from flowlex.systems.telemetry import service_clock as clocks
from flowlex.systems.telemetry.agent_buffer import Journal
from flowlex.systems.telemetry.request_documents import Sample
from flowlex.systems.telemetry.rest_app import create_app
from flowlex.systems.telemetry.service_context import Settings
from flowlex.systems.telemetry.store import Store

HOUR = 3_600.0


def put(api: TestClient, value: object, at: float, **more: object) -> None:
    source = {key: more.pop(key) for key in ("source",) if key in more}
    body = {"node": "w1", **source, "samples": [{"name": "a", "time": at, "value": value, **more}]}
    assert api.post("/v1/data", json=body).status_code == 200


def step(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + seconds)


def let_pass(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Advance the machine's monotonic clock without waiting."""
    real = time.clock_gettime
    monkeypatch.setattr(time, "clock_gettime", lambda clock: real(clock) + seconds)


def test_a_step_back_of_the_servers_clock_makes_nothing_fresh(api: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    put(api, 1, time.time())
    step(monkeypatch, -HOUR)
    let_pass(monkeypatch, 90)
    assert api.get("/v1/data/a/w1").json()["age_s"] >= 90
    assert api.get("/v1/data/a/w1", params={"max_age": 60}).json()["detail"]["reason"] == "stale"
    assert api.get("/v1/data", params={"max_age": 60}).json()["readings"][0]["stale"] is True


def test_a_step_forward_does_not_age_what_is_fresh(api: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    put(api, 1, time.time())
    step(monkeypatch, HOUR)
    assert api.get("/v1/data/a/w1").json()["age_s"] < 60


def test_nodes_stay_alive_and_die_by_real_time(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch, eventually: object
) -> None:
    app = create_app(sqlite_store, Settings(require_token=False, alive_s=60))
    with TestClient(app, base_url="http://127.0.0.1") as api:
        api.put("/v1/agents/w1", json={})
        step(monkeypatch, -HOUR)
        assert api.get("/v1/agents").json()[0]["alive"] is True
        let_pass(monkeypatch, 90)
        assert api.get("/v1/agents").json()[0]["alive"] is False


def test_a_sample_from_the_future_is_marked(api: TestClient) -> None:
    put(api, 1, time.time() + HOUR)
    answer = api.get("/v1/data/a/w1").json()
    assert answer["age_s"] < 60 and abs(answer["ahead_s"] - HOUR) < 60  # the wall clock may be slewed
    assert answer["time"] > answer["arrived"]
    (sample,) = api.get("/v1/history").json()["samples"]
    assert sample["time"] > sample["arrived"]  # stored as the node reported it
    put(api, 2, time.time() - 1)
    assert api.get("/v1/data", params={"name": "a"}).json()["readings"][0]["value"] == 1


def test_what_waited_in_a_journal_is_as_old_as_it_is(api: TestClient) -> None:
    """A sample delivered an hour late is an hour old, even if the node's clock is wrong by a day."""
    put(api, 1, time.time() + 24 * HOUR, age_s=HOUR)
    assert api.get("/v1/data/a/w1").json()["age_s"] >= HOUR
    assert api.get("/v1/data/a/w1", params={"max_age": 60}).status_code == 404
    put(api, 2, time.time() - 24 * HOUR, age_s=1.0)
    answer = api.get("/v1/data/a/w1").json()
    assert answer["value"] == 2 and answer["age_s"] < 60


def test_within_a_source_the_last_to_arrive_counts(api: TestClient) -> None:
    now = time.time()
    put(api, "before the step", now, source="j", seq=1)
    put(api, "after the step", now - HOUR, source="j", seq=2)
    assert api.get("/v1/data/a/w1").json()["value"] == "after the step"
    put(api, "from elsewhere", now - 2 * HOUR, source="k", seq=1)
    assert api.get("/v1/data/a/w1").json()["value"] == "after the step"


def test_the_journal_says_how_long_a_sample_waited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path / "j.db", "w1")
    journal.append(Sample(name="a", time=1.0, value=1))
    step(monkeypatch, -HOUR)
    let_pass(monkeypatch, 90)
    age = journal.oldest(1)[1][0].age_s
    assert age is not None and 90 <= age < 90 + 60
    monkeypatch.setattr("flowlex.systems.telemetry.agent_buffer.boot", lambda: "another boot")
    assert journal.oldest(1)[1][0].age_s is None


def test_a_restart_of_the_service_goes_on_exactly(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "clock_gettime", lambda clock: 12_345.0)  # the test takes no time
    first = store.clock.start()
    step(monkeypatch, -HOUR)
    store.clock.keep(first)
    again = store.clock.start()
    assert again.now() == pytest.approx(first.now(), abs=1e-3) and again.unsure is None


def test_a_restart_of_the_machine_asks_the_wall_clock_but_never_goes_back(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = store.clock.start()
    store.writer.write([("n", "j", [Sample(name="a", time=1.0, value=1, seq=1)])], first.now())
    monkeypatch.setattr("flowlex.systems.telemetry.stored_clock.boot", lambda: "another boot")
    with monkeypatch.context() as patch:
        real = store.clock.wall_s
        patch.setattr(store.clock, "wall_s", lambda connection: real(connection) - HOUR)
        back = store.clock.start()
    row = store.reader.latest_one("a", "n")
    assert row is not None and row.arrived is not None
    assert back.now() >= row.arrived and back.unsure is not None and back.unsure >= row.arrived
    with TestClient(create_app(store, Settings(require_token=False)), base_url="http://127.0.0.1") as api:
        refusal = api.get("/v1/data/a/n")
        assert refusal.status_code == 404 and "not known for sure" in refusal.text
        assert api.get("/v1/data").json()["readings"][0]["stale"] is True
        put_again = {"node": "n", "source": "j", "samples": [{"name": "a", "time": 2.0, "value": 2, "seq": 2}]}
        assert api.post("/v1/data", json=put_again).status_code == 200
        assert api.get("/v1/data/a/n").json()["value"] == 2


def test_services_on_two_machines_agree_by_the_clock_of_their_database(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if store.database.dialect == "sqlite":
        pytest.skip("SQLite serves one machine")
    first = store.clock.start()
    store.writer.write([("n", "j", [Sample(name="a", time=time.time(), value=1, seq=1)])], first.now())
    for ahead in (HOUR, -HOUR):
        with monkeypatch.context() as patch:
            step(patch, ahead)
            patch.setattr("flowlex.systems.telemetry.stored_clock.boot", lambda ahead=ahead: f"machine at {ahead}")
            side = "ahead of" if ahead > 0 else "behind"
            for _ in range(2):  # logged again at a restart
                caplog.clear()
                other = store.clock.start()
                assert f"this machine's clock is {abs(ahead):.0f} s {side} the database's" in caplog.text
            assert other.now() == pytest.approx(first.now(), abs=60) and other.unsure is None
            app = create_app(store, Settings(require_token=False))
            with TestClient(app, base_url="http://127.0.0.1") as api:
                assert api.get("/v1/data/a/n", params={"max_age": 600}).json()["age_s"] < 600
                processor = {"program": "p", "kind": "processor", "inputs": ["a"], "window_s": 600}
                assert api.post("/v1/registrations", json={"name": side[:2], **processor}).status_code == 201
                inputs = api.get(f"/v1/agents/n/inputs/{side[:2]}").json()
                assert [sample["value"] for sample in inputs["history"]["a"]] == [1]


def test_the_clock_counts_sleep() -> None:
    assert clocks.boot_s() == pytest.approx(time.clock_gettime(time.CLOCK_BOOTTIME), abs=60)
