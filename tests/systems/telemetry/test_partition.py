"""The loop of partition, dispatch, timing, history and the next partition; and the demo script."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flowlex.cli.app import app
from flowlex.systems.telemetry.command_line.partition_dispatch import dispatch
from tests.documents import ROOT


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == code, result.output + str(result.exception)
    return result.output


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    nodes = [{"name": name, "configuration": 1} for name in ("a", "b")]
    blocks = [{"name": "x", "items": 30, "holders": ["a"]}, {"name": "y", "items": 10, "holders": ["b"]}]
    path = tmp_path / "i.json"
    path.write_text(json.dumps({"kind": "load-partition", "nodes": nodes, "blocks": blocks}))
    return path


def test_every_node_gets_its_share_and_is_timed(tmp_path: Path) -> None:
    code = "import json, os, sys; print(json.dumps([json.load(sys.stdin), sys.argv[1:], os.environ['FLOWLEX_NODE']]))"
    shares: dict[str, dict[str, int]] = {"a": {"x": 3, "y": 1}, "b": {"x": 2}, "idle": {"x": 0}}
    done = dispatch(shares, [sys.executable, "-c", code, "{node}:{items}"], timeout_s=60.0, logs=tmp_path)
    assert [(r.node, r.items, r.exit_code, r.problem) for r in done] == [("a", 4, 0, ""), ("b", 2, 0, "")]
    assert all(r.seconds > 0 for r in done)
    given, arguments, node = json.loads((tmp_path / "a.log").read_text())
    assert (given, arguments, node) == ({"node": "a", "items": 4, "blocks": {"x": 3, "y": 1}}, ["a:4"], "a")


def test_programs_run_side_by_side_and_end_at_the_limit(tmp_path: Path) -> None:
    shares = {name: {"x": 1} for name in ("a", "b", "c")}
    started = time.monotonic()
    done = dispatch(shares, ["sleep", "600"], timeout_s=1.0, logs=tmp_path)
    assert time.monotonic() - started < 200
    assert {r.problem for r in done} == {"it ran too long"} and {r.exit_code for r in done} == {-9}
    (missing,) = dispatch({"a": {"x": 1}}, ["no-such-program"], timeout_s=5.0, logs=tmp_path)
    assert (missing.exit_code, missing.problem) == (127, "no-such-program: No such file or directory")


def test_rounds_learn_from_the_times(instance: Path) -> None:
    """Node b is ten times slower: by configuration both get 20, by history a gets most."""
    code = "from os import environ as e; import time; "
    code += "time.sleep(int(e['FLOWLEX_ITEMS']) * {'a': 0.01, 'b': 0.1}[e['FLOWLEX_NODE']])"
    said = run("run-partition", "--instance", str(instance), "--rounds", "2", "--", sys.executable, "-c", code)
    assert "round-1, capacity by configuration: 10 items moved" in said and "round-2, capacity by history" in said
    lines = [json.loads(line) for line in (instance.parent / "run-partition" / "runs.jsonl").read_text().splitlines()]
    items = {(line["round"], line["node"]): line["items"] for line in lines}
    assert items[1, "a"] == items[1, "b"] == 20
    assert items[2, "a"] > items[2, "b"] and items[2, "a"] + items[2, "b"] == 40


def test_a_program_that_fails_is_not_kept(instance: Path) -> None:
    said = run("run-partition", "--instance", str(instance), "--", "sh", "-c", 'test "$FLOWLEX_NODE" = a', code=1)
    assert "b: 20 items in" in said and "exit code 1" in said
    kept = (instance.parent / "run-partition" / "runs.jsonl").read_text().splitlines()
    assert [json.loads(line)["node"] for line in kept] == ["a"]


def test_what_run_partition_refuses(instance: Path) -> None:
    assert "one of them" in run("run-partition", "--", "true", code=2)
    run("generate", "gpu-testbed", "--seed", "1", "-o", "gpu.json")
    assert "a load-partition is needed" in run("run-partition", "--instance", "gpu.json", "--", "true", code=2)


@pytest.mark.slow
def test_the_demonstration(tmp_path: Path) -> None:
    script = [str(ROOT / "docs" / "telemetry-demo.sh"), str(tmp_path / "demo")]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    said = subprocess.run(script, env=os.environ | {"PATH": path}, check=True, capture_output=True, text=True).stdout
    assert "From nothing to a partition" in said
    solution = json.loads((tmp_path / "demo" / "solution" / "live.solution.json").read_text())
    assert solution["status"] == "optimal"
    runs = [
        json.loads(line)
        for name in ("performance", "history")
        for line in (tmp_path / "demo" / f"run-by-{name}" / "runs.jsonl").read_text().splitlines()
    ]
    items = [run["items"] for run in runs]
    assert items[:3] == [80, 80, 80] and sum(items[3:]) == 240
    assert items[3] > items[4] > items[5]  # node-1 was the fastest, node-3 the slowest
    again = subprocess.run(script, capture_output=True, text=True)
    assert again.returncode == 1 and "name a new folder" in again.stderr
