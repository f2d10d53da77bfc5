"""Fast routes answer as FastAPI's do: common requests beside the same requests in a form that they pass on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.testclient import TestClient

from flowlex.telemetry.app import create_app
from flowlex.telemetry.security import Role, new_token
from flowlex.telemetry.service import Settings
from flowlex.telemetry.store import Store

#: A charset in the header, or a parameter's other spelling, is enough to go the long way.
SHORT, LONG = {"Content-Type": "application/json"}, {"Content-Type": "application/json; charset=utf-8"}
SAMPLE: dict[str, Any] = {"name": "a", "time": 1.0, "value": 2}


@pytest.fixture
def api(sqlite_store: Store) -> Any:
    with TestClient(create_app(sqlite_store, Settings(require_token=False)), base_url="http://127.0.0.1") as client:
        yield client


def body(**changes: Any) -> str:
    return json.dumps({"node": "n", "samples": [SAMPLE | changes]})


TEXTS = [
    body(),
    body(value=None, exit_code=1, error="no"),
    body(value=[1, {"b": "\u00e9\U0001f600"}]),
    body(value=10**400),
    body(seq=1.0),
    body(value=float("nan")),
    body(value="\ud800"),
    body(value="x" * 70_000),
    body(time="1"),
    body(time=True),
    body(time=1e400),
    body(exit_code="0"),
    body(name="a b"),
    body(more=1),
    '{"node": "n", "samples": [{"name": "a", "time": 1.0, "value": 1e400}]}',
    '{"node": "n", "node": "m", "samples": [{"name": "a", "time": 1.0}]}',
    '{"node": "n", "samples": []}',
    "[" * 2_000,
    "\ufeff" + body(),
    "",
]


def test_writes(api: TestClient) -> None:
    for text in TEXTS:
        sent = text.encode("utf-8", "surrogatepass")
        short, long = (
            (answer.status_code, answer.json())
            for answer in (api.post("/v1/data", content=sent, headers=headers) for headers in (SHORT, LONG))
        )
        if "stored" in long[1]:  # a number is stored once
            assert short[1].pop("stored") + short[1].pop("known") == long[1].pop("stored") + long[1].pop("known")
        assert short == long, text[:80]
    stored = [sample["value"] for sample in api.get("/v1/history").json()["samples"]]
    assert stored.count(10**400) == 2 and stored.count([1, {"b": "\u00e9\U0001f600"}]) == 2


def test_reads(store: Store) -> None:
    good = {"name": "a", "time": 1.0, "value": {"x": [1]}, "unit": "s \u00b0"}
    failed = {"name": "failed", "time": 1.0, "exit_code": 3, "error": "no"}
    with TestClient(create_app(store, Settings(require_token=False)), base_url="http://127.0.0.1") as api:
        assert api.post("/v1/data", json={"node": "n", "samples": [good, failed]}).status_code == 200
        for path in ("a/n", "b/n", "failed/n", "a/n n", "a%2Fn/n", "a/n/", "A/n"):
            for age in ("", "1e12", "4000000000", "0", "-1", "1e3", "nan"):
                short = api.get(f"/v1/data/{path}" + (f"?max_age={age}" if age else ""))
                long = api.get(f"/v1/data/{path}?" + (f"max%5Fage={age}" if age else "&"))
                assert (short.status_code, _ageless(short.json())) == (long.status_code, _ageless(long.json())), age


def _ageless(answer: Any) -> Any:
    """Without what differs by the moment of asking."""
    if isinstance(answer, dict) and "age_s" in answer:
        assert answer.pop("age_s") >= 0
    if isinstance(answer, dict) and isinstance(answer.get("detail"), dict):
        answer["detail"].pop("age_s", None)
        answer["detail"]["message"] = answer["detail"]["message"].split(" is ")[0]
    return answer


@pytest.mark.parametrize("path", ["/v1/data", "/v1/data/a/n"])
def test_rights(sqlite_store: Store, path: str) -> None:
    tokens = {role: new_token(sqlite_store, role) for role in (Role.ADMIN, Role.READER)}
    named = {
        **tokens,
        "n": new_token(sqlite_store, Role.AGENT, node="n"),
        "m": new_token(sqlite_store, Role.AGENT, node="m"),
    }
    app = create_app(sqlite_store, Settings(requests_per_s=1_000))
    with TestClient(app, base_url="http://127.0.0.1") as api:

        def ask(token: str | None, headers: dict[str, str], question: str) -> int:
            headers = headers | ({"Authorization": f"Bearer {token}"} if token else {})
            if path == "/v1/data":
                return api.post(path, content=body(), headers=headers).status_code
            return api.get(path + question, headers=headers).status_code

        assert ask(named["n"], SHORT, "") in (200, 403)
        api.post("/v1/data", content=body(), headers=SHORT | {"Authorization": f"Bearer {named['n']}"})
        allowed = {"n"} if path == "/v1/data" else {Role.ADMIN, Role.READER}
        for who, token in {**named, "wrong": "flx_wrong", "none": None}.items():
            short, long = ask(token, SHORT, ""), ask(token, LONG, "?&")
            assert short == long
            assert (short == 200) == (who in allowed), who


def test_a_rate_counts_each_request_once(sqlite_store: Store) -> None:
    app = create_app(sqlite_store, Settings(require_token=False, requests_per_s=0.1))
    with TestClient(app, base_url="http://127.0.0.1") as api:
        assert api.post("/v1/data", content=body(), headers=SHORT).status_code == 200
        refused = api.post("/v1/data", content=body(), headers=SHORT)
        assert refused.status_code == 429 and int(refused.headers["Retry-After"]) >= 1
        assert api.get("/v1/data/a/n").status_code == 429


def test_figures_name_the_routes(api: TestClient) -> None:
    api.post("/v1/data", content=body(), headers=SHORT)
    api.get("/v1/data/a/n")
    text = api.get("/metrics").text
    assert 'route="/v1/data",status="200"' in text and 'route="/v1/data/{name}/{node}",status="200"' in text
