"""Run the commands of docs/telemetry.md in order, with two nodes, a free port and a stand-in for ssh."""

import json
import os
import shlex
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flowlex.cli.app import app
from tests.documents import ROOT, blocks, lines

pytestmark = pytest.mark.rare

CONSOLE = [text for language, text in blocks((ROOT / "docs" / "telemetry.md").read_text()) if language == "console"]
NODES = ("node-1", "node-2")


class Person:
    """Runs the lines of the page; commands that stay in the foreground run as separate processes."""

    def __init__(self, folder: Path, processes: Any, port: int) -> None:
        self.folder, self.processes, self.port = folder, processes, port
        self.url = f"http://127.0.0.1:{port}"
        tools = folder / "bin"
        tools.mkdir()
        (tools / "ssh").write_text('#!/bin/sh\nshift\nexec "$@"\n')
        (tools / "infer").write_text("#!/bin/sh\ncat > /dev/null\n")
        for tool in tools.iterdir():
            tool.chmod(0o755)
        self.environment = os.environ | {"PATH": f"{tools}:{os.environ['PATH']}", "FLOWLEX_TELEMETRY_URL": self.url}

    def types(self, line: str) -> None:
        """Run one line; a line that names a node runs for every node."""
        line = line.replace("http://127.0.0.1:8750", self.url).replace("/data/", f"{self.folder}/")
        words = shlex.split(line, comments=True)
        if words[:3] == ["flowlex", "telemetry", "serve"]:
            self.processes.serve(f"sqlite:///{self.folder}/flowlex-telemetry.db", self.port, *words[3:])
            tokens = json.loads((self.folder / "flowlex-telemetry-tokens.json").read_text())
            self.admin, self.reader = tokens["admin"], tokens["reader"]
        elif words[0] == "export":
            assert words[1] == "FLOWLEX_TELEMETRY_TOKEN=..."
            self.environment["FLOWLEX_TELEMETRY_TOKEN"] = self.admin
        elif words[1:3] == ["telemetry", "agent"]:
            for node in NODES:
                named = [word.replace("node-1", node) for word in words[3:]]
                self.processes.start("agent", *named, environment={"FLOWLEX_TELEMETRY_URL": self.url})
        else:
            for node in NODES if "node-1" in line else NODES[:1]:
                self.runs(line.replace("node-1", node))

    def runs(self, line: str) -> None:
        """Run a line in this process, as each start of Python takes a second; readers' lines wait for the agents."""
        reads = "--from-telemetry" in line
        if reads:
            self.environment["FLOWLEX_TELEMETRY_TOKEN"] = self.reader
        words = shlex.split(line, comments=True)
        words, target = (words[:-2], self.folder / words[-1]) if words[-2:-1] == [">"] else (words, None)
        assert words[0] == "flowlex" and not {">", "|", "&", ";"} & set(words)
        until = time.monotonic() + 120
        while True:
            done = CliRunner().invoke(app, words[1:], env=self.environment)
            if done.exit_code == 0:
                break
            assert reads and time.monotonic() < until, f"{line}\n{done.output}\n{self.processes.text()}"
            time.sleep(1.0)
        if target is not None:
            target.write_text(done.stdout)


@pytest.mark.timeout(400)
def test_every_line_runs_in_order(tmp_path: Path, processes: Any, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for node, items in zip(NODES, (30, 10), strict=True):
        manifest = [{"name": f"{node}-block", "items": items, "holders": [node]}]
        (tmp_path / f"{node}.items.json").write_text(json.dumps(manifest))
    person = Person(tmp_path, processes, port)
    for line in lines(CONSOLE[0]):
        person.types(line)
    assert (tmp_path / "flowlex-telemetry-tokens.json").stat().st_mode & 0o077 == 0
    for process in list(processes.running):
        assert processes.stop(process) in (0, -signal.SIGTERM)
    secrets = [person.admin, person.reader, *(path.read_text().strip() for path in tmp_path.glob("*.token"))]
    assert len(secrets) == 4 and not any(secret in processes.text() for secret in secrets)
