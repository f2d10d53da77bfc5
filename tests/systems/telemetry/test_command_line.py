"""The commands: tokens, registrations, lists, and one-line errors."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flowlex.systems.telemetry.command_line import app
from flowlex.systems.telemetry.store import Store
from flowlex.systems.telemetry.tokens_and_rights import Role, TokenBook


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FLOWLEX_TELEMETRY_TOKEN", raising=False)
    monkeypatch.setenv("COLUMNS", "200")

    def invoke(*arguments: str, code: int = 0) -> str:
        result = CliRunner().invoke(app, list(arguments))
        assert result.exit_code == code, result.output
        return result.output

    return invoke


@pytest.fixture
def service(processes: Any, port: int, tmp_path: Path) -> Iterator[tuple[str, ...]]:
    processes.serve(f"sqlite:///{tmp_path}/flowlex-telemetry.db", port)
    yield "--server", f"http://127.0.0.1:{port}", "--token-file", str(tmp_path / "flowlex-telemetry-tokens.json")


def test_register_list_show_unregister(run: Any, service: tuple[str, ...]) -> None:
    run("register", "cpu", "cpu_free", "0.1", *service, "--interval-s", "2", "--label", "rack=1", "--replicas", "2")
    listed = run("list", *service)
    for word in ("cpu", "cpu_free 0.1", "2 s", "rack=1", "2 of them", "no living node has the program"):
        assert word in listed
    doubted = run("register", "p", "nonsense", *service, "--kind", "processor", "--input", "cpuu")
    assert "Warning: no living node has the program nonsense" in doubted
    assert "Warning: the input cpuu is neither registered nor stored" in doubted
    assert "is registered; update it with PUT (409 exists)" in run("register", "cpu", "cpu_free", *service, code=1)
    run("register", "cpu", "cpu_cores", *service, "--update")
    assert "cpu_cores" in run("list", *service)
    assert "Last values" in run("show", "--once", *service)
    run("unregister", "cpu", *service)
    assert "no registration is named cpu (404 unknown)" in run("unregister", "cpu", *service, code=1)


def test_tokens(run: Any, tmp_path: Path) -> None:
    missing = run("token", "create", "--role", "admin", "--database", "sqlite:///mistyped.db", code=1)
    assert "there is no database mistyped.db" in missing and not (tmp_path / "mistyped.db").exists()
    assert "schema none before, 1 now" in run("migrate")
    secret = run("token", "create", "--role", "agent", "--node", "w1", "--label", "first").strip()
    store = Store(f"sqlite:///{tmp_path}/flowlex-telemetry.db")
    who = TokenBook(store).identify(secret)
    assert who is not None and (who.role, who.node) == (Role.AGENT, "w1")
    line = run("token", "list")
    assert "agent" in line and "w1" in line and secret not in line
    assert "at least 8 digits" in run("token", "revoke", "abc", code=1)
    assert "never ends" in line
    run("token", "revoke", line.split()[0])
    assert store.registry.tokens() == []
    assert "only an agent's token is bound" in run("token", "create", "--role", "reader", "--node", "w", code=1)
    assert "an agent's token needs its node" in run("token", "create", "--role", "agent", code=1)
    run("token", "create", "--role", "agent", "--any-node", "--days", "7")
    run("token", "create", "--role", "reader", "--days", "0")
    listed = run("token", "list")
    assert "any node  7.0 days left" in listed and "reader  -  has ended" in listed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "--once", "--server", "http://127.0.0.1:1"), "does not answer"),
        (("show", "--once", "--server", "nowhere"), "give http://host:port"),
        (("serve", "--no-auth", "--host", "0.0.0.0"), "--no-auth is for loopback only"),
        (("serve", "--database", "mongo://x"), "not a database URL|not supported"),
        (("agent", "--node", "n", "--no-shipped"), "no program is allowed"),
        (("agent", "--node", "n", "--commands", "missing"), "missing is no folder"),
        (("agent", "--node", "n", "--label", "rack"), "'rack' is not KEY=VALUE"),
        (("register", "a", "../x"), "program: String should match pattern"),
        (("register", "a", "x", "--kind", "processor"), "a processor needs inputs"),
        (("show", "--once", "--token-file", "none"), "No such file"),
    ],
)
def test_what_is_refused(run: Any, arguments: tuple[str, ...], message: str) -> None:
    import re

    output = run(*arguments, code=1)
    assert output.startswith("Error: ") and re.search(message, output), output


def test_an_old_token_file_is_never_overwritten(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "flowlex-telemetry-tokens.json"
    path.write_text(json.dumps({"admin": "old"}))
    assert "is there but the database has no tokens" in run("serve", code=1)
    assert json.loads(path.read_text()) == {"admin": "old"}
    assert "holds no token of role reader" in run("show", "--once", "--token-file", str(path), code=1)
    assert threading.active_count() < 20
