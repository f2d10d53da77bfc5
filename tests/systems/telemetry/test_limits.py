"""Limits and their errors: large reads, locked databases, too many requests, misspelt names."""

import logging
import random
import sqlite3
import threading
import time
from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient

from flowlex.systems.telemetry import commit_thread, read_queries
from flowlex.systems.telemetry.command_assignments import Plan, _rank
from flowlex.systems.telemetry.http_client import TelemetryClient, Unreachable
from flowlex.systems.telemetry.registrations import AgentRow
from flowlex.systems.telemetry.request_documents import Registration, Sample
from flowlex.systems.telemetry.rest_app import create_app
from flowlex.systems.telemetry.service_context import Settings
from flowlex.systems.telemetry.store import Store


def fill(store: Store, nodes: int = 4, names: int = 3, value: object = 1) -> None:
    for n in range(nodes):
        samples = [Sample.model_validate({"name": f"v{k}", "time": 5.0 + n, "value": value}) for k in range(names)]
        store.writer.write([(f"n{n}", None, samples)], now=10.0)


def test_a_question_for_too_many_values_is_refused(api: TestClient) -> None:
    query = {"name": [f"v{k}" for k in range(300)], "node": [f"n{k}" for k in range(300)]}
    answer = api.get("/v1/data", params=query)
    assert answer.status_code == 422
    assert "300 names on 300 nodes are more than 50000 values" in answer.json()["detail"][0]["msg"]


def test_last_values_come_in_pages(api: TestClient, sqlite_store: Store) -> None:
    fill(sqlite_store)
    seen, missing, after = [], [], {}
    names, nodes = ["v0", "v2", "none"], ["n0", "n1", "n3", "nowhere"]
    while True:
        page = api.get("/v1/data", params={"limit": 2, "name": names, "node": nodes, **after}).json()
        assert len(page["readings"]) <= 2
        seen += [(r["name"], r["node"]) for r in page["readings"]]
        missing += [tuple(pair) for pair in page["missing"]]
        if page["next"] is None:
            break
        after = {"after": page["next"]}
    assert seen == [(a, b) for a in ("v0", "v2") for b in ("n0", "n1", "n3")]
    assert sorted(seen + missing) == sorted((a, b) for a in names for b in nodes)


def test_a_page_ends_where_it_is_long(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_queries, "PAGE_CHARS", 1000)
    fill(store, nodes=10, names=1, value="x" * 500)
    page, more = store.reader.latest()
    assert len(page) == 2 and more
    rows, truncated = store.reader.history([], [], 0, 100, 100)
    assert [row.node for row in rows] == ["n8", "n9"] and truncated


def test_a_history_of_too_many_series_is_refused(api: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_queries, "MAX_SERIES", 5)
    fill(api.app.state.service.store)  # type: ignore[attr-defined]
    assert "more than 5 series" in api.get("/v1/history").json()["detail"][0]["msg"]
    assert len(api.get("/v1/history", params={"node": "n1"}).json()["samples"]) == 3


def test_histories_of_many_series_merge_by_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_queries, "MERGED", 2)
    rng = random.Random(3)
    times = [float(t) for t in range(60)]
    rng.shuffle(times)
    for t in times:
        store.writer.write([(f"n{rng.randrange(5)}", None, [Sample(name="a", time=t, value=t)])], now=100.0)
    rows, truncated = store.reader.history(["a"], [], 10, 50, 25)
    assert [row.time for row in rows] == [float(t) for t in range(26, 51)] and truncated


def test_large_reads_wait_for_their_turn_or_come_again(sqlite_store: Store) -> None:
    app = create_app(sqlite_store, Settings(require_token=False, heavy_wait_s=0.1))
    with TestClient(app, base_url="http://127.0.0.1") as api:
        app.state.service.heavy._value = 0  # all at work
        answer = api.get("/v1/data")
        assert answer.status_code == 503 and answer.headers["retry-after"] == "1"
        assert api.get("/v1/data/a/n").status_code == 404  # single reads go on
        assert api.get("/healthz").status_code == 200


def test_a_locked_database_sends_writers_back_at_once(api: TestClient, tmp_path: Path) -> None:
    """One write waits for the lock; the others are not tried one after the other."""
    lock = sqlite3.connect(tmp_path / "service.db", isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    answers: list[httpx.Response] = []

    def write(number: int) -> None:
        body = {"node": f"n{number}", "samples": [{"name": "a", "time": 1.0, "value": 1}]}
        answers.append(api.post("/v1/data", json=body))

    threads = [threading.Thread(target=write, args=(n,)) for n in range(20)]
    started = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.monotonic() - started < 30  # one after the other they would wait 40
    assert {answer.status_code for answer in answers} == {503}
    assert all(answer.headers["retry-after"] == "1" for answer in answers)
    lock.execute("ROLLBACK")
    lock.close()
    write(99)
    assert answers[-1].status_code == 200


def test_what_waits_for_a_slow_disk_is_bounded(sqlite_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_thread, "MAX_WAITING_BYTES", 100)
    app = create_app(sqlite_store, Settings(require_token=False))
    slow = threading.Event()
    real = sqlite_store.writer.write
    monkeypatch.setattr(sqlite_store.writer, "write", lambda *given: (slow.wait(10), real(*given))[1])
    with TestClient(app, base_url="http://127.0.0.1") as api:
        body = {"node": "n", "samples": [{"name": "a", "time": 1.0, "value": 1}]}
        codes: list[int] = []
        threads = [
            threading.Thread(target=lambda: codes.append(api.post("/v1/data", json=body).status_code)) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        until = time.monotonic() + 10
        while not codes and time.monotonic() < until:
            time.sleep(0.02)
        assert codes and set(codes) == {503}
        assert api.get("/readyz").status_code in (200, 503)
        slow.set()
        for thread in threads:
            thread.join()
        assert 200 in codes


def test_too_many_requests_are_told_when_to_come_again(sqlite_store: Store) -> None:
    app = create_app(sqlite_store, Settings(require_token=False, requests_per_s=1.0))
    with TestClient(app, base_url="http://127.0.0.1") as api:
        codes = [api.get("/v1/registrations").status_code for _ in range(15)]
        assert codes[:10] == [200] * 10 and 429 in codes
        answer = api.get("/v1/registrations")
        assert answer.status_code == 429 and int(answer.headers["retry-after"]) >= 1
        assert api.get("/healthz").status_code == 200


def test_misspelt_parameters_are_refused(api: TestClient) -> None:
    answer = api.get("/v1/data", params={"max_aeg": 5})
    assert answer.status_code == 422
    assert "no query parameter 'max_aeg'; known: after, limit, max_age, name, node" in answer.json()["detail"][0]["msg"]


def test_errors_of_the_database_say_nothing_of_its_content(
    api: TestClient, sqlite_store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    with sqlite_store.database.write() as connection:
        connection.exec_driver_sql("DROP TABLE registration")
    caplog.set_level(logging.DEBUG)
    body = {"name": "a", "program": "x", "arguments": ["--password=hunter2"]}
    for answer in (api.post("/v1/registrations", json=body), api.get("/v1/registrations")):
        assert answer.status_code == 503 and answer.headers["retry-after"]
        assert answer.json()["detail"]["reason"] in ("busy", "database")
        assert "hunter2" not in answer.text
    assert "hunter2" not in caplog.text


def test_a_redirection_does_not_get_the_token() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(307, headers={"location": "http://elsewhere.example/"})

    with (
        TelemetryClient("http://127.0.0.1", "flx_secret", transport=httpx.MockTransport(answer)) as client,
        pytest.raises(Unreachable, match="answered with a redirection"),
    ):
        client.read()
    assert [request.url.host for request in seen] == ["127.0.0.1"]


def test_what_never_succeeded_is_shown(api: TestClient, sqlite_store: Store) -> None:
    failed = Sample(name="gpu", time=1.0, exit_code=69, error="no tool")
    sqlite_store.writer.write([("n", None, [failed])], now=10.0)
    page = api.get("/v1/data").json()
    assert page["readings"] == [] and page["no_value"][0]["last_error"] == "no tool"


def test_a_plan_kept_up_is_the_plan_made_anew() -> None:
    """Nodes join, change and leave in random order; the independent check applies the rule to the final state."""
    rng = random.Random(11)
    programs, racks = ["p", "q", "r"], ["1", "2"]
    registrations = [
        Registration(
            name=f"r{k}",
            program=rng.choice(programs),
            nodes=[f"n{i}" for i in range(12) if rng.random() < 0.5] if rng.random() < 0.5 else [],
            labels={"rack": rng.choice(racks)} if rng.random() < 0.4 else {},
            replicas=rng.choice([None, 1, 3]),
        )
        for k in range(15)
    ]
    plan, alive = Plan(registrations), {}
    for _ in range(300):
        node = f"n{rng.randrange(12)}"
        if rng.random() < 0.3:
            plan.leave(node)
            alive.pop(node, None)
        else:
            labels = {"rack": rng.choice(racks)}
            alive[node] = AgentRow(node, labels, rng.sample(programs, rng.randint(1, 3)), [], 0, 0.0)
            plan.join(alive[node])
    for registration in registrations:
        fit = [
            agent.node
            for agent in alive.values()
            if registration.program in agent.programs
            and (not registration.nodes or agent.node in registration.nodes)
            and all(agent.labels.get(key) == value for key, value in registration.labels.items())
        ]
        chosen = sorted(fit, key=lambda node: _rank(registration.name, node))[: registration.replicas]
        assert plan.nodes_of(registration.name) == sorted(chosen)
        assert {node for node in alive if registration in plan.work_of(node)} == set(chosen)
