"""``flowlex replay`` as a person runs it."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from flowlex.cli.replay import replay
from flowlex.instances import write_instance
from flowlex.instances.events import read_event_log
from flowlex.instances.generators import generate
from flowlex.models.flow_state_file import load_scheduler
from flowlex.models.goals import PRESETS


@pytest.fixture
def run():
    app = typer.Typer()
    app.command()(replay)
    return lambda *words: CliRunner().invoke(app, [str(word) for word in words])


def test_an_instance_then_its_log(run, tmp_path):
    source, log, state = tmp_path / "i.json", tmp_path / "log.jsonl", tmp_path / "s.npz"
    write_instance(generate("flow-scale", machines=20, tasks=40), source)
    words = ("--steps", 4, "--events", 5, "--goals", "quincy", "--write-log", log, "--save", state)
    result = run(source, *words)
    assert result.exit_code == 0, result.output
    assert "99th percentile (ms)" in result.output and "####" in result.output
    assert load_scheduler(state, PRESETS["quincy"]).steps == 5
    assert len(read_event_log(log).require_whole().events) == 26
    again = run(log, "--goals", "quincy", "--batch", 7)
    assert again.exit_code == 0
    lines = log.read_text().splitlines()
    log.write_text("\n".join([*lines[:10], "{oops", *lines[10:]]))
    broken = run(log)
    assert broken.exit_code == 1
    assert "line 11" in broken.output and "10 events before it are kept" in broken.output


def test_what_cannot_be_replayed(run, tmp_path):
    other = tmp_path / "gpu.json"
    write_instance(generate("gpu-testbed"), other)
    result = run(other)
    assert result.exit_code != 0
    assert "only flow-scheduling instances can be replayed" in str(result.exception)
    assert "no cost model is named 'x'" in str(run(other, "--goals", "x").exception)
