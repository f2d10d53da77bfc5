"""Help, options, completion, compiled loops, and files that are not overwritten."""

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flowlex.cli.app import app
from flowlex.cli.command_group import TASKS
from flowlex.cli.warm_up import runs
from flowlex.instances import generate, kinds, write_instance
from flowlex.models.model_options import options_of
from flowlex.models.registry import _OWN, model_class, model_for

OWN = sorted(_OWN)


@pytest.mark.parametrize("kind", OWN)
def test_every_option_says_its_values_default_and_meaning(kind):
    for option in options_of(model_class(kind)):
        assert option.says and option.values and "object at" not in option.default, option


def test_options_are_listed_by_kind_and_by_name(run):
    said = run("options", "gpu-assignment").stdout
    assert "FSP, FS, FSU" in said and "Fairness and preemption" in said
    assert "balance" not in run("options", "pod-placement", "cards").stdout
    assert set(json.loads(run("options", "--json").stdout)) >= set(OWN)


def test_options_name_the_nearest(run):
    refused = run("options", "gpu-assignment", "polcy")
    assert refused.exit_code == 2 and "did you mean 'policy'?" in refused.stderr
    refused = run("options", "gpu")
    assert refused.exit_code == 2 and "gpu-assignment" in refused.stderr


def test_the_default_of_an_option_is_what_a_model_has():
    model = model_for(generate("gpu-figure4"))
    assert {option.name: option.default for option in options_of(type(model))}["policy"] == model.policy.value


@pytest.mark.parametrize(
    ("typed", "offers"),
    [
        ("generate gpu-fig", "gpu-figure1"),
        ("generate gpu-scale --set ra", "racks="),
        ("solve figure4.json --set po", "policy="),
        ("schema gpu", "gpu-assignment"),
        ("options jit", "jit-bandwidth"),
    ],
)
def test_a_shell_completes(tmp_path, monkeypatch, typed, offers):
    monkeypatch.chdir(tmp_path)
    write_instance(generate("gpu-figure4"), tmp_path / "figure4.json")
    asked = {"_FLOWLEX_COMPLETE": "complete_bash", "COMP_WORDS": f"flowlex {typed}"}
    asked["COMP_CWORD"] = str(len(typed.split()))
    done = CliRunner().invoke(app, prog_name="flowlex", env=asked)
    assert offers in done.stdout.split(), done.output


#: Commands that write a file, each once with `-o`.
WRITERS = {
    "generate": ("generate", "gpu-figure4", "-o", "a.svg"),
    "example": ("example", "gpu-assignment", "-o", "a.svg"),
    "plot": ("plot", "figure4.json", "-o", "a.svg"),
    "export": ("export", "figure4.json", "--to", "lp", "-o", "a.svg"),
    "schema": ("schema", "gpu-assignment", "-o", "a.svg"),
    "tu": ("tu", "figure4.json", "-o", "a.svg"),
    "tu --plot": ("tu", "figure4.json", "--plot", "a.svg"),
    "tu --extract": ("tu", "figure4.json", "--extract", "a.svg"),
    "integers": ("integers", "figure4.lp", "-o", "a.svg"),
    "replay --save": ("replay", "flow.json", "--steps", 1, "--save", "a.svg"),
    "replay --write-log": ("replay", "flow.json", "--steps", 1, "--write-log", "a.svg"),
    "import csv": ("import", "csv", "x=y", "--kind", "gpu-assignment", "-o", "a.svg"),
    "import coflow": ("import", "coflow", "trace", "-o", "a.svg"),
    "import google": ("import", "google", "folder", "-o", "a.svg"),
    "import openb": ("import", "openb", "nodes", "pods", "-o", "a.svg"),
    "import gavel": ("import", "gavel", "throughputs", "-o", "a.svg"),
    "claims": ("claims", "--plot", "a.svg"),
}


@pytest.mark.parametrize("command", WRITERS)
def test_no_command_writes_over_a_file_unless_told_to(run, tmp_path, command):
    write_instance(generate("gpu-figure4"), tmp_path / "figure4.json")
    write_instance(generate("flow-random"), tmp_path / "flow.json")
    (tmp_path / "figure4.lp").write_text("Minimize\n x\nSubject To\n c: x >= 1\nGeneral\n x\nEnd\n")
    (tmp_path / "a.svg").write_text("mine")
    refused = run(*WRITERS[command])
    assert refused.exit_code == 2 and "a.svg is there already; use --force to overwrite it" in refused.stderr
    assert (tmp_path / "a.svg").read_text() == "mine"


@pytest.mark.parametrize("command", ["generate", "example", "plot", "export", "schema", "tu --plot", "replay --save"])
def test_force_overwrites(run, tmp_path, command):
    write_instance(generate("gpu-figure4"), tmp_path / "figure4.json")
    write_instance(generate("flow-random"), tmp_path / "flow.json")
    (tmp_path / "a.svg").write_text("mine")
    assert run(*WRITERS[command], "--force").exit_code == 0
    assert (tmp_path / "a.svg").read_bytes() != b"mine"


@pytest.mark.rare
def test_there_is_a_small_example_of_every_kind(run):
    for kind in kinds():
        shown = run("example", kind)
        assert shown.exit_code == 0 and len(shown.stdout) < 10_000
        assert run("example", kind, "-o", f"all/{kind}.json").exit_code == 0
        assert Path(f"all/{kind}.json").read_text() == shown.stdout
    assert run("simulate", "all/scenario.json").exit_code == 0
    for taken_by_simulators in ("scenario", "cluster-workload"):
        Path(f"all/{taken_by_simulators}.json").unlink()
    assert run("solve", "all", "--time-limit", 60).exit_code == 0


def test_help_groups_the_commands_by_task(run):
    sections = [part.split("\n")[0] for part in run("--help").stdout.split("\n\n")]
    assert [each.rstrip(":") for each in sections if each.rstrip(":") in TASKS] == list(TASKS)
    listed = {line.split()[0] for line in run("--help").stdout.splitlines() if line.startswith("  ") and line.strip()}
    assert listed >= {name for names in TASKS.values() for name in names} | {"warm-up"}


@pytest.mark.parametrize("command", [("telemetry",), ("telemetry", "serve"), ("serve",), ("serve", "gpu")])
def test_help_needs_no_optional_package(run, monkeypatch, forget_modules, command):
    for name in ("sqlalchemy", "fastapi", "uvicorn", "httpx", "psutil", "psycopg", "prometheus_client"):
        monkeypatch.setitem(sys.modules, name, None)
    forget_modules(
        "flowlex.systems.telemetry",
        "flowlex.systems.scheduler.commands.serve",
    )
    assert "Usage: " in run(*command, "--help").stdout


@pytest.mark.slow  # compiles every loop of the package
def test_warm_up_leaves_nothing_to_compile(run):
    assert run("warm-up", "--quiet").output == ""
    again = run("warm-up").stdout
    rows = [line.split("│")[1:3] for line in again.splitlines() if line.startswith("│")]
    assert len(rows) == len(runs()) and {count.strip() for _, count in rows} == {"0"}
