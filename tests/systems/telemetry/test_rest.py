"""The REST interface in memory: registrations, rights, ages, histories, limits, and refused requests."""

import time
from typing import Any

import pytest
from fastapi.testclient import TestClient

from flowlex.systems.telemetry.request_documents import MAX_VALUE_BYTES, Sample
from flowlex.systems.telemetry.rest_app import create_app
from flowlex.systems.telemetry.service_context import Settings
from flowlex.systems.telemetry.store import Store
from flowlex.systems.telemetry.tokens_and_rights import Role, new_token
from tests.systems.telemetry.stored import count_samples

CPU = {"name": "cpu_free", "program": "cpu_free", "interval_s": 1.0, "unit": "fraction"}


def write(api: TestClient, *samples: dict[str, Any], node: str = "w1", **more: Any) -> Any:
    response = api.post("/v1/data", json={"node": node, "samples": list(samples), **more})
    assert response.status_code == 200, response.text
    return response.json()


def test_registrations_are_listed_read_updated_removed(api: TestClient) -> None:
    assert api.post("/v1/registrations", json=CPU).status_code == 201
    again = api.post("/v1/registrations", json=CPU)
    assert again.status_code == 409 and again.json()["detail"]["reason"] == "exists"
    assert [item["name"] for item in api.get("/v1/registrations").json()] == ["cpu_free"]
    changed = api.put("/v1/registrations/cpu_free", json={**CPU, "interval_s": 3.0})
    assert changed.json()["interval_s"] == 3.0
    assert api.get("/v1/registrations/cpu_free").json()["interval_s"] == 3.0
    assert api.put("/v1/registrations/other", json=CPU).status_code == 409
    assert api.delete("/v1/registrations/cpu_free").status_code == 204
    for call in (api.get, api.delete):
        assert call("/v1/registrations/cpu_free").json()["detail"]["reason"] == "unknown"
    assert api.put("/v1/registrations/cpu_free", json=CPU).status_code == 404


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "../x"}, "String should match pattern"),
        ({"program": ""}, "String should match pattern"),
        ({"program": "/bin/sh"}, "String should match pattern"),
        ({"program": "-x"}, "String should match pattern"),
        ({"arguments": ["a\nb"]}, "String should match pattern"),
        ({"interval_s": 0}, "greater than or equal to 0.1"),
        ({"timeout_s": -1}, "greater than or equal to 0.05"),
        ({"replicas": 0}, "greater than or equal to 1"),
        ({"kind": "daemon"}, "'collector' or 'processor'"),
        ({"kind": "processor"}, "a processor needs inputs"),
        ({"inputs": ["x"]}, "a collector reads no stored data"),
        ({"intervall_s": 1}, "Extra inputs are not permitted"),
    ],
)
def test_wrong_registrations_say_why(api: TestClient, change: dict[str, Any], message: str) -> None:
    response = api.post("/v1/registrations", json={**CPU, **change})
    assert response.status_code == 422
    assert message in response.text


def test_a_read_returns_the_last_value_and_its_age(api: TestClient) -> None:
    now = time.time()
    write(api, {"name": "cpu_free", "time": now - 5, "value": 0.5, "unit": "fraction"})
    reading = api.get("/v1/data/cpu_free/w1").json()
    assert (reading["value"], reading["unit"], reading["stale"]) == (0.5, "fraction", False)
    assert 5 <= reading["age_s"] < 8
    assert api.get("/v1/data/cpu_free/w1", params={"max_age": 60}).status_code == 200
    stale = api.get("/v1/data/cpu_free/w1", params={"max_age": 2})
    assert stale.status_code == 404
    detail = stale.json()["detail"]
    assert detail["reason"] == "stale" and detail["age_s"] >= 5 and "2 s are allowed" in detail["message"]
    assert api.get("/v1/data/cpu_free/w2").json()["detail"]["reason"] == "unknown"
    write(api, {"name": "gpu", "time": now, "exit_code": 69, "error": "no tool"})
    assert api.get("/v1/data/gpu/w1").json()["detail"]["reason"] == "no_value"


def test_many_names_and_nodes_in_one_call(api: TestClient) -> None:
    now = time.time()
    for node, age in (("w1", 0), ("w2", 100)):
        samples = [{"name": name, "time": now - age, "value": {"of": node}} for name in ("a", "b")]
        write(api, *samples, node=node)
    both = api.get("/v1/data", params={"name": ["a", "c"], "node": ["w1", "w2"], "max_age": 50}).json()
    assert [(r["name"], r["node"], r["stale"]) for r in both["readings"]] == [("a", "w1", False), ("a", "w2", True)]
    assert both["missing"] == [["c", "w1"], ["c", "w2"]]
    assert len(api.get("/v1/data").json()["readings"]) == 4
    assert api.get("/v1/data", params={"node": "w2"}).json()["readings"][0]["value"] == {"of": "w2"}


def test_odd_values_survive_the_fast_answer(api: TestClient) -> None:
    now = time.time()
    values = ['quo"te\\', "\x00\x1f", "ü\u2028", {"a": [None, True, 1e300]}, -0.0, ""]
    write(api, *({"name": f"v{i}", "time": now, "value": v, "unit": '"°'} for i, v in enumerate(values)))
    write(api, {"name": "v0", "time": now + 1, "exit_code": 1, "error": 'bro"ken\n'})
    many = {r["name"]: r for r in api.get("/v1/data").json()["readings"]}
    for i, value in enumerate(values):
        one = api.get(f"/v1/data/v{i}/w1").json()
        assert one["value"] == many[f"v{i}"]["value"] == value
        assert set(one) == set(many[f"v{i}"]) and one["unit"] == '"°'
    assert many["v0"]["last_error"] == 'bro"ken\n'


def test_history_of_a_window(api: TestClient) -> None:
    now = time.time()
    write(api, *({"name": "a", "time": now - age, "value": age} for age in (30, 20, 10)))
    answer = api.get("/v1/history", params={"name": "a", "since": now - 25, "until": now}).json()
    assert [s["value"] for s in answer["samples"]] == [20, 10] and answer["truncated"] is False
    assert api.get("/v1/history", params={"limit": 1}).json()["truncated"] is True
    assert api.delete("/v1/history", params={"before": now - 15}).json() == {"removed": 0}  # counts from arrival
    assert api.delete("/v1/history", params={"before": time.time() + 1}).json() == {"removed": 3}
    assert api.get("/v1/history").json()["samples"] == []


def test_values_have_a_size_limit(api: TestClient) -> None:
    fits = {"name": "a", "time": 1.0, "value": "x" * (MAX_VALUE_BYTES - 2)}
    write(api, fits)
    response = api.post("/v1/data", json={"node": "w", "samples": [{**fits, "value": "x" * MAX_VALUE_BYTES}]})
    assert response.status_code == 422 and f"at most {MAX_VALUE_BYTES}" in response.text
    assert "xxxx" not in response.text
    huge = api.post("/v1/data", content=b" " * 4_000_001)
    assert huge.status_code == 413 and huge.json()["detail"]["reason"] == "too_long"
    chunked = api.post("/v1/data", content=(b" " * 100_000 for _ in range(50)))
    assert chunked.status_code == 413


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"node":"w","samples":[]}',
        b'{"node":"w","samples":[{"name":"a","time":NaN}]}',
        b'{"node":"w","samples":[{"name":"a","time":1,"value":Infinity}]}',
        b'{"node":"w","samples":[{"name":"a","time":1,"value":"\\ud800"}]}',
        b'{"node":"\\ud800","samples":[{"name":"a","time":1}]}',
        b'{"node":"w","samples":[{"name":"a","time":1,"error":"\\ud800"}]}',
        b'{"\\ud800":1}',
        b'{"node":"w","samples":[{"name":"a","time":1,"value":' + b"[" * 5000 + b"]" * 5000 + b"}]}",
        b'{"node":"w","samples":[{"name":"a","time":1,"value":' + b"9" * 5000 + b"}]}",
        b"\xff\xfe",
    ],
)
def test_no_body_breaks_the_server(api: TestClient, body: bytes) -> None:
    response = api.post("/v1/data", content=body, headers={"content-type": "application/json"})
    assert response.status_code in (400, 422), response.text


def test_rights(guarded: TestClient, sqlite_store: Store) -> None:
    secrets = {role: new_token(sqlite_store, role, any_node=role is Role.AGENT) for role in Role}
    bound = new_token(sqlite_store, Role.AGENT, node="w1")
    hello: dict[str, Any] = {"labels": {}, "programs": []}
    sample = {"samples": [{"name": "a", "time": 1.0, "value": 1}]}

    def status(method: str, path: str, token: str | None, **more: Any) -> int:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        return guarded.request(method, path, headers=headers, **more).status_code

    reads = ["/v1/data", "/v1/data/a/w1", "/v1/history", "/v1/registrations", "/v1/agents"]
    assert guarded.get("/v1/health").json() == {"status": "ok", "api": 1}
    for path in reads:
        assert status("GET", path, None) == 401
        assert status("GET", path, "flx_wrong") == 401
        for odd in ("Bearer", "Bearer ", f"Basic {secrets[Role.READER]}", secrets[Role.READER], "Bearer \xff"):
            assert guarded.get(path, headers={"authorization": odd.encode("latin-1")}).status_code == 401
        assert status("GET", path, secrets[Role.AGENT]) == 403
        assert status("GET", path, secrets[Role.READER]) in (200, 404)
        assert status("GET", path, secrets[Role.ADMIN]) in (200, 404)
    for role, expected in ((Role.READER, 403), (Role.AGENT, 403), (Role.ADMIN, 201)):
        assert status("POST", "/v1/registrations", secrets[role], json=CPU) == expected
    for token, node, expected in (
        (secrets[Role.READER], "w1", 403),
        (secrets[Role.ADMIN], "w1", 403),
        (bound, "w1", 200),
        (bound, "w2", 403),
        (secrets[Role.AGENT], "w2", 200),
    ):
        assert status("PUT", f"/v1/agents/{node}", token, json=hello) == expected
        assert status("POST", f"/v1/agents/{node}/heartbeat", token, json={}) == expected
        assert status("GET", f"/v1/agents/{node}/assignments", token) == expected
        assert status("POST", "/v1/data", token, json={"node": node, **sample}) == expected
    for path in ("/v1/registrations/cpu_free", "/v1/agents/w1", "/v1/history?before=1"):
        assert status("DELETE", path, secrets[Role.READER]) == 403
        assert status("DELETE", path, bound) == 403
    assert guarded.get("/v1/data").headers["www-authenticate"] == "Bearer"


def test_bodies_of_strangers_are_not_read(guarded: TestClient) -> None:
    answer = guarded.post("/v1/data", content=b"{" * 1_000_000)
    assert answer.status_code == 401 and answer.headers["connection"] == "close"


def test_without_tokens_foreign_host_names_are_refused(api: TestClient) -> None:
    assert api.get("/v1/health", headers={"host": "evil.example"}).status_code == 400
    assert api.get("/v1/health", headers={"host": "localhost:8750"}).status_code == 200


def test_work_follows_nodes_labels_programs_and_replicas(api: TestClient) -> None:
    def introduce(node: str, *programs: str, **labels: str) -> list[str]:
        hello = {"programs": list(programs or ("cpu_free",)), "labels": labels}
        return [item["name"] for item in api.put(f"/v1/agents/{node}", json=hello).json()["run"]]

    def work(node: str) -> list[str]:
        return [item["name"] for item in api.get(f"/v1/agents/{node}/assignments").json()["run"]]

    for name, more in {
        "all": {},
        "named": {"nodes": ["w2"]},
        "labelled": {"labels": {"gpu": "yes"}},
        "both": {"nodes": ["w1", "w2"], "labels": {"gpu": "yes"}},
        "one": {"replicas": 1},
        "other": {"program": "special"},
    }.items():
        assert api.post("/v1/registrations", json={**CPU, "name": name, **more}).status_code == 201
    assert introduce("w1") == ["all", "one"]
    introduce("w2", "cpu_free", "special")
    introduce("w3", gpu="yes")
    introduce("w2", "cpu_free", "special", gpu="yes")
    expected = {"w1": {"all"}, "w2": {"all", "named", "labelled", "both", "other"}, "w3": {"all", "labelled"}}
    for node, names in expected.items():
        assert set(work(node)) - {"one"} == names
    assert sum("one" in work(node) for node in expected) == 1
    (holder,) = [node for node in expected if "one" in work(node)]
    api.delete(f"/v1/agents/{holder}")
    assert sum("one" in work(node) for node in expected) == 1 and "one" not in work(holder)
    before = api.post("/v1/agents/w3/heartbeat", json={}).status_code
    assert before in (200, 404)


def test_the_revision_changes_with_the_work(api: TestClient) -> None:
    api.post("/v1/registrations", json=CPU)
    api.put("/v1/agents/w1", json={"programs": ["cpu_free"]})

    def revision() -> str:
        return str(api.post("/v1/agents/w1/heartbeat", json={"running": ["cpu_free"]}).json()["revision"])

    first = revision()
    assert revision() == first
    api.put("/v1/registrations/cpu_free", json={**CPU, "interval_s": 2.0})
    assert revision() != first
    assert api.post("/v1/agents/unknown/heartbeat", json={}).json()["detail"]["reason"] == "unknown"
    (agent,) = api.get("/v1/agents").json()
    assert (agent["node"], agent["running"], agent["alive"]) == ("w1", ["cpu_free"], True)


def test_a_processor_gets_its_inputs_of_its_own_node(api: TestClient) -> None:
    now = time.time()
    for node in ("w1", "w2"):
        write(api, *({"name": "a", "time": now - age, "value": f"{node}-{age}"} for age in (50, 5)), node=node)
    api.post(
        "/v1/registrations",
        json={"name": "p", "kind": "processor", "program": "x", "inputs": ["a", "b"], "window_s": 20},
    )
    answer = api.get("/v1/agents/w1/inputs/p").json()
    assert answer["last"]["a"]["value"] == "w1-5" and "b" not in answer["last"]
    assert [s["value"] for s in answer["history"]["a"]] == ["w1-5"] and answer["history"]["b"] == []
    assert api.get("/v1/agents/w1/inputs/none").status_code == 404


def test_the_service_keeps_its_retention(sqlite_store: Store, eventually: Any) -> None:
    now = time.time()
    samples = [Sample(name="a", time=now - age, value=age) for age in (100, 1)]
    for sample in samples:
        sqlite_store.writer.write([("w1", None, [sample])], sample.time)
    with TestClient(create_app(sqlite_store, Settings(require_token=False, retention_s=50))):
        eventually(lambda: count_samples(sqlite_store) == 1)
