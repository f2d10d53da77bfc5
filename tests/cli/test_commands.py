"""Every command but `solve`: output, formats, messages, exit codes."""

import gzip
import importlib.metadata
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import highspy
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowlex.cli import command_group
from flowlex.cli.export import Format
from flowlex.cli.options import Engine
from flowlex.formulations import ENGINES
from flowlex.formulations.program_files.written_names import written_names
from flowlex.instances import NetworkInstance
from flowlex.instances.files import instance_from_document, read_instance
from flowlex.instances.generators.registry import GENERATORS, generator


@pytest.fixture
def toy_generator():
    def toy(*, seed: int = 0, nodes: int = 2, cheap: bool = True) -> NetworkInstance:
        """A path with random costs."""
        if nodes < 2:
            raise ValueError("a path needs 2 nodes")
        cost = np.random.default_rng(seed).integers(0, 9 if cheap else 99, nodes - 1).tolist()
        document = {
            "kind": "min-cost-flow",
            "name": f"toy-{seed}",
            "supply": [1, *[0] * (nodes - 2), -1],
            "tail": list(range(nodes - 1)),
            "head": list(range(1, nodes)),
            "lower": [0] * (nodes - 1),
            "upper": [1] * (nodes - 1),
            "cost": cost,
        }
        instance = instance_from_document(document)
        assert isinstance(instance, NetworkInstance)
        return instance

    generator("toy")(toy)
    yield
    del GENERATORS["toy"]


def test_version_names_every_solver(run):
    result = run("--version")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"flowlex {importlib.metadata.version('flowlex')}\n")
    for name in ("python", "numpy", "scipy", "networkx", "pandas", "pulp", "highspy", "pylmcf", "pydantic"):
        assert re.search(rf"(?m)^  {name} +\d+\.\d+", result.stdout), name


def test_help_names_every_command_and_imports_nothing_heavy():
    code = """
import contextlib, io, sys
from flowlex.cli.app import app
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()) as out:
    app(["--help"])
print(out.getvalue())
heavy = ("numpy", "pydantic", "pandas", "highspy", "pulp", "matplotlib", "fastapi")
print("HEAVY", [module for module in heavy if module in sys.modules])
"""
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    for name in ("generate", "show", "solve", "export", "plot", "schema", "library"):
        assert re.search(rf"\b{name}\b", done.stdout), name
    assert "HEAVY []" in done.stdout


def test_no_arguments_print_the_help(run):
    result = run()
    assert result.exit_code == 2
    assert "Usage" in result.output


def test_engines_are_those_of_the_formulations():
    assert get_args(Engine) == ("auto", *ENGINES)


def test_generate(run, toy_generator):
    result = run("generate", "toy", "--seed", 3, "--set", "nodes=5", "-o", "sub/a.json")
    assert result.exit_code == 0, result.output
    instance = read_instance("sub/a.json")
    assert instance.name == "toy-3"
    assert instance.summary()["nodes"] == 5
    run("generate", "toy", "--seed", 3, "--set", "nodes=5", "-o", "b.json.gz")
    assert gzip.decompress(Path("b.json.gz").read_bytes()) == Path("sub/a.json").read_bytes()
    run("generate", "toy", "--seed", 3, "--set", "nodes=5", "-o", "c.min.gz")
    assert read_instance("c.min.gz").arrays.cost.tolist() == instance.arrays.cost.tolist()
    assert run("generate", "toy", "--seed", 3, "--set", "nodes=5", "-o", "-").stdout == Path("sub/a.json").read_text()
    assert run("generate", "toy", "--seed", 4, "--set", "nodes=5", "-o", "-").stdout != Path("sub/a.json").read_text()


def test_generators_are_listed_with_their_parameters(run, toy_generator):
    result = run("generate", "--list")
    assert result.exit_code == 0
    for text in ("toy", "A path with random costs", "nodes=2 (int)", "cheap=True (bool)"):
        assert text in result.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing", "-o", "x.json"], "no generator is named 'nothing'; one of:"),
        (["toy", "-o", "x.json", "--set", "nodes=many"], "nodes='many'"),
        (["toy", "-o", "x.json", "--set", "colour=red"], "no parameter 'colour'; it has: nodes, cheap"),
        (["toy", "-o", "x.json", "--set", "nodes=1"], "a path needs 2 nodes"),
        (["toy", "-o", "x.json", "--set", "nodes"], "'nodes' is not KEY=VALUE"),
        (["toy", "-o", "x.json", "--seed", "-1"], "--seed"),
        (["toy"], "-o FILE, or -o - for standard output"),
        ([], "which generator?"),
        (["toy", "-o", "/proc/nowhere/x.json"], "/proc/nowhere/x.json: cannot be written"),
        (["toy", "-o", "folder"], "folder: cannot be written"),
    ],
)
def test_generate_names_what_is_wrong_and_writes_nothing(run, toy_generator, arguments, words):
    Path("folder").mkdir()
    result = run("generate", *arguments)
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.replace("│", " ").split())
    assert [path.name for path in Path().iterdir()] == ["folder"]


def test_show(run, write):
    write("a.json")
    result = run("show", "a.json")
    assert result.exit_code == 0
    for text in ("min-cost-flow", "flow network", "arcs", "Minimum-cost flow"):
        assert text in result.stdout


def test_show_prints_the_tables_of_a_model(run, write, monkeypatch):
    from flowlex.models.min_cost_flow import MinCostFlow

    frame = {"node": [f"n{i}" for i in range(30)], "lat": range(30)}
    monkeypatch.setattr(MinCostFlow, "details", lambda self: [("Latest arrival times", frame)])
    write("a.json")
    result = run("show", "a.json")
    for text in ("Latest arrival times", "node", "n19", "20 of 30 rows"):
        assert text in result.stdout
    assert "n20" not in result.stdout


def test_schema(run):
    assert "min-cost-flow" in run("schema").stdout.split()
    schema = json.loads(run("schema", "min-cost-flow").stdout)
    assert schema["properties"]["kind"]["const"] == "min-cost-flow"
    run("schema", "min-cost-flow", "-o", "s.json")
    assert json.loads(Path("s.json").read_text()) == schema
    result = run("schema", "nothing")
    assert result.exit_code == 2
    assert "unknown kind 'nothing'; one of:" in " ".join(result.stderr.replace("│", " ").split())


def test_library_lists_files_that_can_be_read(run):
    result = run("library")
    assert result.exit_code == 0
    for path in run("library", "--paths").stdout.splitlines():
        instance = read_instance(path)
        assert Path(path).name in result.stdout
        assert instance.kind in result.stdout


@pytest.mark.parametrize("command", ["show", "plot", "export"])
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"", "the file is empty"),
        (b'{"kind": "min-cost-flow"', "is it cut off?"),
        (b"\xff\xff", "not UTF-8 text"),
        (b'{"kind": "cake"}', "kind: unknown kind 'cake'; one of:"),
        (b'{"kind": "min-cost-flow", "version": 7}', "version 7 is not supported"),
        (b'{"kind": "min-cost-flow", "sup": []}', "sup: unknown field; did you mean 'supply'?"),
    ],
)
def test_bad_files_are_named_and_nothing_is_written(run, command, content, words):
    if content is not None:
        Path("bad.json").write_bytes(content)
    more = {"show": [], "plot": ["-o", "x.png"], "export": ["-o", "x.lp"]}[command]
    result = run(command, "bad.json", *more)
    assert result.exit_code == 2
    assert f"Error: bad.json: {words}" in result.stderr or words in result.stderr
    assert "bad.json" in result.stderr
    assert not Path("x.png").exists()
    assert not Path("x.lp").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["show", "a.json", "--policy", "FS"], "has no option 'policy'"),
        (["export", "a.json", "-o", "x.lp", "--set", "k=v"], "has no option 'k'"),
        (["export", "a.json", "--to", "xlsx", "-o", "x.lp"], "xlsx"),
        (["export", "a.json", "-o", "x.xlsx"], "'x.xlsx' does not end in .mps or .lp; give --to mps or --to lp"),
        (["export", "a.json", "--to", "lp", "-o", "/proc/nowhere/x.lp"], "cannot be written"),
        (["plot", "a.json", "-o", "x.gif"], "does not end in .png, .svg, .pdf or .html"),
        (["plot", "a.json", "-o", "x.png", "--policy", "FS"], "has no option 'policy'"),
        (["plot", "a.json", "-o", "x.png", "--engine", "network", "--gap", "1"], "has no option 'gap'"),
        (["bake", "a.json"], "bake"),
    ],
)
def test_wrong_usage_of_the_other_commands(run, write, arguments, words):
    write("a.json")
    result = run(*arguments)
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.replace("│", " ").split())
    assert sorted(path.name for path in Path().iterdir()) == ["a.json"]


@pytest.mark.parametrize(
    ("name", "begins"), [("x.png", b"\x89PNG"), ("x.SVG", b"<?xml"), ("x.pdf", b"%PDF"), ("x.html", b"<!doctype")]
)
def test_plot_formats(run, write, name, begins):
    write("a.json")
    assert run("plot", "a.json", "-o", name, "--engine", "network").exit_code == 0
    data = Path(name).read_bytes()
    assert data.startswith(begins)
    run("plot", "a.json", "-o", name, "--engine", "network")
    assert Path(name).read_bytes() == data


def test_plot_without_an_answer(run, write):
    write("a.json", units=99, room=2)
    result = run("plot", "a.json", "-o", "x.png")
    assert result.exit_code == 1
    assert "nothing to draw (infeasible)" in result.stderr
    assert not Path("x.png").exists()


@pytest.mark.parametrize("to", ["mps", "lp"])
def test_an_exported_model_reads_back_with_its_names_and_optimum(run, write, to):
    write("a.json")
    result = run("export", "a.json", "--to", to, "-o", f"x.{to}.gz")
    assert result.exit_code == 0
    Path(f"x.{to}").write_bytes(gzip.decompress(Path(f"x.{to}.gz").read_bytes()))
    solver = _read(Path(f"x.{to}"))
    model = solver.getLp()
    rows = {"mps": ["node[left]", "node[mid_dle]", "node[right]"], "lp": ["node(left)", "node(mid_dle)", "node(right)"]}
    assert list(model.row_names_) == rows[to]
    assert [name[:4] for name in model.col_names_] == ["flow"] * 3
    solver.run()
    assert solver.getObjectiveValue() == 11
    assert run("export", "a.json", "--to", to, "-o", "-").stdout == Path(f"x.{to}").read_text()


@given(st.lists(st.text(max_size=4), unique=True), st.sampled_from(get_args(Format)))
def test_legal_names_are_distinct_and_stable(names, to):
    legal = written_names(names, to)
    assert len(set(legal)) == len(names)
    assert written_names(legal, to) == legal


def _read(path: Path) -> highspy.Highs:
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    assert solver.readModel(str(path)) == highspy.HighsStatus.kOk
    return solver


def test_commands_of_other_packages_load_when_called(run, tmp_path, monkeypatch):
    (tmp_path / "other_package.py").write_text(
        "import typer\n"
        "app = typer.Typer()\n"
        "@app.command()\ndef one(word: str, loud: bool = False):\n    typer.echo(word.upper() if loud else word)\n"
        "@app.command()\ndef two():\n    pass\n"
        "def single(number: int = 1):\n    'Count.'\n    typer.echo(number + 1)\n"
    )
    (tmp_path / "lacking_package.py").write_text(
        "def app(size: int = 3):\n    'Nothing.'\n    import a_package_nobody_has\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    lazy = {
        "single": command_group.Lazy("other_package", "single", "Count."),
        "many": command_group.Lazy("other_package", "app", "Words."),
        "lacking": command_group.Lazy("lacking_package", "app", "Nothing.", "telemetry"),
        "absent": command_group.Lazy("no_such_package", "app", "Nothing."),
    }
    monkeypatch.setattr(command_group, "LAZY", lazy)
    listing = run("--help").stdout
    assert "Count." in listing
    assert "lacking" in listing
    assert "absent" not in listing
    assert "other_package" not in sys.modules
    assert run("single", "--number", 4).stdout == "5\n"
    assert run("many", "one", "--loud", "hello").stdout == "HELLO\n"
    assert "--number" in run("single", "--help").stdout
    assert "--size" in run("lacking", "--help").stdout  # help needs no optional package
    result = run("lacking")
    assert result.exit_code == 2
    assert "needs a_package_nobody_has; install it with: pip install 'flowlex[telemetry]'" in result.stderr
    assert run("absent").exit_code == 2
