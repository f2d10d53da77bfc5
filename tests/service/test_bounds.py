"""Limits of clients of a real server: events between decisions, an agent's token, pages of other origins."""

from __future__ import annotations

import contextlib
import json

import pytest

from flowlex.telemetry.store import Store
from flowlex.telemetry.tokens_and_rights import Role, new_token
from tests.service.test_killed import SERVE, connect, launch


def machine(name, **more):
    return {"events": [{"event": "add_machine", "machine": {"name": name, **more}}]}


@pytest.fixture
def server(tmp_path, request):
    """Return folder and client of a server that decides only on request."""
    folder = tmp_path / "state"
    folder.mkdir()
    command = [word for word in SERVE if word != "--no-auth"] if request.param == "tokens" else SERVE
    process, url = launch(folder, "--on-request", "--max-events-per-step", "3", command=command)
    with connect(url) as http:
        yield folder, http
    process.kill()
    process.wait()


@pytest.mark.parametrize("server", ["open"], indirect=True)
def test_events_between_decisions_and_other_origins(server):
    _, http = server
    for origin, status in (("https://example.org", 403), ("null", 403), ("http://localhost:1", 200)):
        assert http.post("/v1/step", headers={"Origin": origin}).status_code == status
    assert http.post("/v1/step", headers={"Host": "example.org"}).status_code == 400
    for name in "abc":
        assert http.post("/v1/events", json=machine(name)).status_code == 200
    refused = http.post("/v1/events", json=machine("d"))
    assert refused.status_code == 503 and "3 events wait for a decision" in refused.json()["detail"]["message"]
    assert http.post("/v1/step").status_code == 200
    assert http.post("/v1/events", json=machine("d")).status_code == 200


@pytest.mark.parametrize("server", ["tokens"], indirect=True)
def test_what_the_token_of_an_agent_may_not(server):
    folder, http = server
    with contextlib.closing(Store(f"sqlite:///{folder}/tokens.db")) as store:
        agent = {"Authorization": f"Bearer {new_token(store, Role.AGENT, node='m0')}"}
    admin = {"Authorization": f"Bearer {json.loads((folder / 'tokens.json').read_text())['admin']}"}
    http.get("/v1/placements", headers=admin)
    job = {"events": [{"event": "submit", "job": {"name": "j", "tasks": [{"name": "t"}]}}]}
    rule = {"events": [{"event": "set_queues", "queues": []}]}
    slots = {"events": [{"event": "set_slots", "machine": "m0", "slots": 10**9}]}
    for body, status in (
        (machine("m0"), 200),
        (machine("m1"), 403),
        (machine("m0", slots=10**9), 422),
        (slots, 422),
        (job, 403),
        (rule, 403),
        ({"events": machine("m0")["events"] * 1001}, 422),
    ):
        assert http.post("/v1/events", json=body, headers=agent).status_code == status, body
    for path in ("/v1/step", "/v1/promote", "/v1/replica/retire", "/v1/replica/detach"):
        assert http.post(path, headers=agent).status_code in (403, 404), path  # a leader has no /v1/promote
    assert http.post("/v1/step").status_code == 401
    assert http.post("/v1/step", headers=admin).json()["number"] == 1
