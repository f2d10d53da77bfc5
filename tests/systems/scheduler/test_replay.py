"""``flowlex replay`` on the command line."""

import pytest
import typer
from typer.testing import CliRunner

from flowlex.instances import write_instance
from flowlex.instances.generators import generate
from flowlex.models.flow.goals import PRESETS
from flowlex.systems.scheduler.commands.replay_events import replay
from flowlex.systems.scheduler.event_log import EventLog
from flowlex.systems.scheduler.live.snapshot import load_scheduler


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
    assert "p99_step_ms" in result.output and "####" in result.output
    assert load_scheduler(state, PRESETS["quincy"]).steps == 5
    assert len(list(EventLog(log))) == 26
    again = run(log, "--goals", "quincy", "--batch", 26)
    assert again.exit_code == 0
    rows = [line for line in again.output.splitlines() if " .. " in line]
    assert len(rows) <= 5 and rows[0].split()[-2:] == ["1", 50 * "#"]  # no rows of steps that were not
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
    assert "only flow-scheduling and jit-bandwidth instances can be replayed" in str(result.exception)
    assert "no cost model is named 'x'" in str(run(other, "--goals", "x").exception)


def test_goes_on_from_a_saved_state_in_strict_order(run, tmp_path):
    source, log, state = tmp_path / "i.json", tmp_path / "log.jsonl", tmp_path / "s.npz"
    write_instance(generate("flow-scale", machines=20, tasks=40), source)
    words = ("--goals", "quincy", "--steps", 4, "--events", 5)
    whole = run(source, *words, "--lexicographic", "--write-log", log, "--save", state)
    assert whole.exit_code == 0, whole.output
    lines = log.read_text().splitlines()
    cut = next(i for i, line in enumerate(lines) if i > len(lines) // 2 and '"step"' in line) + 1
    first, rest = tmp_path / "first.jsonl", tmp_path / "rest.jsonl"
    first.write_text("\n".join(lines[:cut]) + "\n")
    rest.write_text("\n".join(lines[cut:]) + "\n")
    half = tmp_path / "half.npz"
    assert run(first, "--goals", "quincy", "--lexicographic", "--save", half).exit_code == 0
    again = run(rest, "--goals", "quincy", "--restore", half, "--save", half)
    assert again.exit_code == 0, again.output
    one, two = (load_scheduler(path, PRESETS["quincy"]) for path in (state, half))
    assert one.steps == two.steps and one.options["lexicographic"] and two.options["lexicographic"]
    assert one.score() == two.score()
    assert "replay only what came later" in str(run(log, "--goals", "quincy", "--restore", half).exception)
    refused = run(rest, "--goals", "quincy", "--restore", half, "--lexicographic")
    assert refused.exit_code == 2 and "from the state" in " ".join(refused.output.replace("│", " ").split())


def test_a_network_of_transfers(run, tmp_path):
    source, log = tmp_path / "i.json", tmp_path / "log.jsonl"
    write_instance(generate("jit-figure4"), source)
    made = run(source, "--write-log", log, "--set", "share=1.0")
    assert made.exit_code == 0, made.output
    assert "steps_proven_optimal" in made.output and "latest against its due slot" in made.output
    assert run(log, "--set", "load=port").exit_code == 0
    flow = run(log, "--goals", "borg")
    assert flow.exit_code == 2 and "option of flow scheduling" in flow.output
    odd = run(log, "--set", "speed=1")
    assert odd.exit_code == 2 and "'speed' is none of share" in odd.output
    log.write_text(log.read_text() + "{oops\n")
    broken = run(log)
    assert broken.exit_code == 1 and "line 3" in broken.output
