"""What a person asks before solving: options, completion, compiled loops, and files that stay as they are."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from flowlex.cli.group import TASKS
from flowlex.cli.warm_up import RUNS
from flowlex.instances import generate, write_instance
from flowlex.models.options import options_of
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
def test_a_shell_completes(tmp_path, typed, offers):
    write_instance(generate("gpu-figure4"), tmp_path / "figure4.json")
    asked = {"_FLOWLEX_COMPLETE": "complete_bash", "COMP_WORDS": f"flowlex {typed}"}
    asked["COMP_CWORD"] = str(len(typed.split()))
    command = [sys.executable, "-c", "import sys; sys.argv[0] = 'flowlex'; from flowlex.cli import main; main()"]
    done = subprocess.run(command, cwd=tmp_path, env=os.environ | asked, capture_output=True, text=True)
    assert offers in done.stdout.split(), done.stderr


def test_generate_and_plot_write_over_a_file_only_when_told_to(run, tmp_path):
    assert run("generate", "gpu-figure1", "-o", "a.json").exit_code == 0
    before = (tmp_path / "a.json").read_bytes()
    refused = run("generate", "gpu-figure4", "-o", "a.json")
    assert refused.exit_code == 2 and "a.json is there already; choose another name, or --force" in refused.stderr
    assert (tmp_path / "a.json").read_bytes() == before
    assert run("generate", "gpu-figure4", "-o", "a.json", "--force").exit_code == 0
    assert (tmp_path / "a.json").read_bytes() != before
    assert run("plot", "a.json", "-o", "new/folder/a.svg").exit_code == 0
    refused = run("plot", "a.json", "-o", "new/folder/a.svg")
    assert refused.exit_code == 2 and "--force" in refused.stderr
    assert run("plot", "a.json", "-o", "new/folder/a.svg", "--force").exit_code == 0


def test_help_groups_the_commands_by_task(run):
    sections = [part.split("\n")[0] for part in run("--help").stdout.split("\n\n")]
    assert [each.rstrip(":") for each in sections if each.rstrip(":") in TASKS] == list(TASKS)
    listed = {line.split()[0] for line in run("--help").stdout.splitlines() if line.startswith("  ") and line.strip()}
    assert listed >= {name for names in TASKS.values() for name in names} | {"warm-up"}


@pytest.mark.parametrize("command", [("telemetry",), ("telemetry", "serve"), ("serve",), ("serve", "gpu")])
def test_help_needs_no_optional_package(run, monkeypatch, command):
    for name in ("alembic", "sqlalchemy", "fastapi", "uvicorn", "httpx", "psutil", "psycopg", "prometheus_client"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in [name for name in sys.modules if name.startswith(("flowlex.telemetry", "flowlex.cli.telemetry"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "flowlex.cli.serve", raising=False)
    assert "Usage: " in run(*command, "--help").stdout


@pytest.mark.slow  # compiles every loop of the package
def test_warm_up_leaves_nothing_to_compile(run):
    assert run("warm-up").exit_code == 0
    again = run("warm-up").stdout
    rows = [line.split("│")[1:3] for line in again.splitlines() if line.startswith("│")]
    assert len(rows) == len(RUNS) and {count.strip() for _, count in rows} == {"0"}
