"""Expiry and rotation of tokens, TLS, and the service's public information with and without tokens."""

import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from flowlex.systems.telemetry.http_client import TelemetryClient, Unreachable
from flowlex.systems.telemetry.node_agent import Agent, AgentSettings
from flowlex.systems.telemetry.store import Store
from flowlex.systems.telemetry.tokens_and_rights import Role, new_token


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def test_a_token_ends(guarded: TestClient, sqlite_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    token = new_token(sqlite_store, Role.READER, lasts_s=100)
    answer = guarded.get("/v1/whoami", headers=bearer(token)).json()
    assert answer["role"] == "reader" and 90 < answer["ends_in_s"] <= 100
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 200)
    assert guarded.get("/v1/whoami", headers=bearer(token)).status_code == 401
    monkeypatch.setattr(time, "time", lambda: real() - 10_000)
    assert guarded.get("/v1/whoami", headers=bearer(token)).status_code == 200


def test_a_token_is_exchanged(guarded: TestClient, sqlite_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    old = new_token(sqlite_store, Role.AGENT, node="w1", lasts_s=1_000_000)
    new = guarded.post("/v1/rotate", headers=bearer(old)).json()["token"]
    again = guarded.post("/v1/rotate", headers=bearer(old)).json()["token"]  # the answer before got lost
    for token in (old, new, again):
        who = guarded.get("/v1/whoami", headers=bearer(token)).json()
        assert (who["role"], who["node"]) == ("agent", "w1")
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 700)
    assert guarded.get("/v1/whoami", headers=bearer(old)).status_code == 401
    assert guarded.get("/v1/whoami", headers=bearer(new)).json()["ends_in_s"] > 900_000


def test_an_admin_makes_and_revokes_tokens(guarded: TestClient, sqlite_store: Store) -> None:
    admin = bearer(new_token(sqlite_store, Role.ADMIN))
    made = guarded.post("/v1/tokens", json={"role": "agent", "node": "w1", "lasts_s": 60}, headers=admin)
    assert made.status_code == 201
    token = made.json()["token"]
    assert guarded.get("/v1/whoami", headers=bearer(token)).json()["node"] == "w1"
    unbound = guarded.post("/v1/tokens", json={"role": "agent"}, headers=admin)
    assert unbound.status_code == 409 and "an agent's token needs its node" in unbound.text
    listed = guarded.get("/v1/tokens", headers=admin)
    assert token not in listed.text
    digest = next(row["digest"] for row in listed.json() if row["node"] == "w1")
    assert guarded.delete(f"/v1/tokens/{digest}", headers=admin).json() == {"removed": 1}
    assert guarded.get("/v1/whoami", headers=bearer(token)).status_code == 401
    for method, path in (("GET", "/v1/tokens"), ("DELETE", f"/v1/tokens/{digest}"), ("DELETE", "/v1/nodes/w1")):
        reader = bearer(new_token(sqlite_store, Role.READER))
        guarded.app.state.service.tokens.refresh(force=True)  # type: ignore[attr-defined]
        assert guarded.request(method, path, headers=reader).status_code == 403


def test_an_agent_exchanges_its_token_in_time(
    guarded: TestClient, line_to: Any, sqlite_store: Store, tmp_path: Path
) -> None:
    path = tmp_path / "token"
    path.write_text(new_token(sqlite_store, Role.AGENT, node="w1", lasts_s=1_000))
    before = path.read_text()
    with TelemetryClient("http://127.0.0.1", before, transport=line_to(guarded)) as client:
        agent = Agent("w1", client, tmp_path / "j.db", AgentSettings(folders=[], token_file=path))
        agent._renew_token()
        assert path.read_text() == before  # there is time
        with sqlite_store.database.write() as connection:
            connection.exec_driver_sql(f"UPDATE token SET expires = {time.time() + 200}")
        guarded.app.state.service.tokens.refresh(force=True)  # type: ignore[attr-defined]
        agent._ask_token_at = float("-inf")
        agent._renew_token()
        after = path.read_text().strip()
        assert after != before and path.stat().st_mode & 0o077 == 0
        assert client.whoami().node == "w1"
        assert guarded.get("/v1/whoami", headers=bearer(after)).json()["ends_in_s"] > 900


def test_health_ready_and_metrics(guarded: TestClient, sqlite_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    token = new_token(sqlite_store, Role.AGENT, node="w1")
    reader = bearer(new_token(sqlite_store, Role.READER))
    body = {"node": "w1", "samples": [{"name": "a", "time": 1.0, "value": 1, "seq": 1}]}
    for _ in range(2):
        assert guarded.post("/v1/data", json=body, headers=bearer(token)).status_code == 200
    assert guarded.get("/metrics").status_code == 401
    text = guarded.get("/metrics", headers=reader).text
    figures = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert figures["flowlex_telemetry_samples_total", "stored"] == 1
    assert figures["flowlex_telemetry_samples_total", "known"] == 1
    assert figures["flowlex_telemetry_requests_total", "/v1/data", "200", "POST"] == 2
    monkeypatch.setattr(sqlite_store.database, "ping", lambda: 1 / 0)
    assert guarded.get("/healthz").status_code == 200
    assert guarded.get("/readyz").status_code == 503 and guarded.get("/v1/health").status_code == 503


def test_the_documentation_needs_nothing_from_outside(guarded: TestClient) -> None:
    page = guarded.get("/docs").text
    assert not re.search(r"(src|href)=[\"']?(https?:)?//|<script|<link|@import|url\(", page)
    for said in ("POST /v1/data", "GET /metrics", "WriteBatch"):
        assert said in page
    assert guarded.get("/redoc").status_code == 404
    document = guarded.get("/openapi.json").json()
    assert {path.split("/")[1] for path in document["paths"]} == {"v1", "healthz", "readyz", "metrics"}
    assert "HTTPBearer" in document["components"]["securitySchemes"]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_tls_end_to_end(processes: Any, port: int, tmp_path: Path) -> None:
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", *subject]
    subprocess.run([*make, "-keyout", "key.pem", "-out", "cert.pem"], cwd=tmp_path, check=True, capture_output=True)
    processes.start("serve", "--port", str(port), "--tls-cert", "cert.pem", "--tls-key", "key.pem")
    url = f"https://127.0.0.1:{port}"
    tokens = tmp_path / "flowlex-telemetry-tokens.json"
    until = time.monotonic() + 60
    while f"Serving {url}" not in processes.text():
        assert time.monotonic() < until, processes.text()
        time.sleep(0.1)
    import json

    reader = json.loads(tokens.read_text())["reader"]
    with TelemetryClient(url, reader, ca_file=tmp_path / "cert.pem") as client:
        assert client.whoami().role == "reader"
    with TelemetryClient(url, reader) as stranger, pytest.raises(Unreachable, match=r"certificate.*; --ca-file"):
        stranger.whoami()
    from flowlex.instances.instance_base import InstanceError
    from flowlex.systems.telemetry.instance_from_service import from_telemetry

    with pytest.raises(InstanceError, match="no node has fresh values"):
        from_telemetry(url, token=reader, ca_file=tmp_path / "cert.pem")
    with pytest.raises(InstanceError, match="cannot be read"):
        from_telemetry(url, token=reader)
    with pytest.raises(ValueError, match="holds no certificates"):
        TelemetryClient(url, reader, ca_file=tokens)


def test_a_token_in_clear_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    TelemetryClient("http://127.0.0.1", "flx_x").close()
    assert caplog.text == ""
    TelemetryClient("http://telemetry.example", "flx_x").close()
    assert "the token travels to telemetry.example in clear" in caplog.text and "flx_x" not in caplog.text
