"""Kinds, generators and importers of other packages, found through entry points."""

import importlib
import json
import pkgutil
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from flowlex.cli.app import app
from flowlex.instances import Instance, InstanceError, extensions, generate, kinds, read_instance
from flowlex.instances.extensions import instance_class
from flowlex.instances.generators import GENERATORS, all_generators, registry
from flowlex.instances.importers import importers
from flowlex.instances.library import library
from flowlex.models.registry import model_class

CODE = """
from pathlib import Path
from typing import Literal
from flowlex.instances import Instance
from flowlex.instances.generators import generator

class KnapsackInstance(Instance):
    kind: Literal["knapsack-of-a-test"] = "knapsack-of-a-test"
    room: int

@generator("knapsack-tiny")
def knapsack_tiny(*, seed: int = 0, room: int = 3) -> KnapsackInstance:
    "Hardly room."
    return KnapsackInstance(name="tiny", room=room)

def read_rooms(path: Path, *, spare: int = 0) -> KnapsackInstance:
    "Read a number."
    return KnapsackInstance(room=int(path.read_text()) + spare)
"""
ENTRIES = """
[flowlex.instances]
knapsack-of-a-test = knapsack_of_a_test:KnapsackInstance
broken = package_that_is_not_there:Broken
[flowlex.generators]
knapsack-tiny = knapsack_of_a_test:knapsack_tiny
[flowlex.importers]
rooms = knapsack_of_a_test:read_rooms
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Write another package as pip would install it."""
    site = tmp_path / "site"
    info = site / "knapsack_of_a_test-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "knapsack_of_a_test.py").write_text(CODE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: knapsack-of-a-test\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRIES)
    monkeypatch.syspath_prepend(site)
    yield site
    Instance.registry.pop("knapsack-of-a-test", None)
    GENERATORS.pop("knapsack-tiny", None)
    sys.modules.pop("knapsack_of_a_test", None)


def test_every_kind_and_generator_of_ours_is_in_the_table_that_finds_it():
    for folder in ("instances", "instances.generators"):
        package = importlib.import_module(f"flowlex.{folder}")
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{package.__name__}.{module.name}")
    ours = {kind for kind, cls in Instance.registry.items() if cls.__module__.startswith("flowlex.instances.")}
    assert ours == set(extensions._KINDS)
    ours = {name for name, spec in GENERATORS.items() if spec.function.__module__.startswith("flowlex.instances.")}
    assert ours == set(registry._OWN)


def test_kinds_are_known_without_importing_their_modules_first():
    code = "import sys; from flowlex.instances.files import read_instance; read_instance(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, str(library()["jit-figure4"])], check=True)


def test_a_kind_is_imported_when_a_file_asks_for_it(installed, tmp_path):
    assert "knapsack-of-a-test" in kinds()
    assert "knapsack_of_a_test" not in sys.modules
    (tmp_path / "k.json").write_text(json.dumps({"kind": "knapsack-of-a-test", "room": 4}))
    assert read_instance(tmp_path / "k.json").room == 4


def test_a_package_that_cannot_be_imported_is_named(installed):
    with pytest.raises(InstanceError, match=r"knapsack-of-a-test offers 'broken' but cannot be imported: ModuleNot"):
        instance_class("broken")


@pytest.fixture
def broken(installed, monkeypatch):
    """A package whose entry points have wrong types, and one that uses a name that is taken."""
    info = installed / "broken-1.0.dist-info"
    info.mkdir()
    (installed / "broken_of_a_test.py").write_text("class Nothing: pass\ndef plain(seed=0): pass\nthree = 3\n")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    entries = {
        "instances": "nothing = broken_of_a_test:Nothing\nknapsack-of-a-test = broken_of_a_test:Nothing",
        "models": "nothing = broken_of_a_test:Nothing",
        "generators": "plain = broken_of_a_test:plain",
        "importers": "three = broken_of_a_test:three",
    }
    text = "".join(f"[flowlex.{group}]\n{lines}\n" for group, lines in entries.items())
    (info / "entry_points.txt").write_text(text)
    importlib.invalidate_caches()
    yield
    sys.modules.pop("broken_of_a_test", None)


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda: instance_class("nothing"), "broken offers kind 'nothing' but .*Nothing'> is no Instance of that kind"),
        (lambda: instance_class("knapsack-of-a-test"), "broken and knapsack-of-a-test both offer 'knapsack-of-a-test'"),
        (lambda: model_class("nothing"), "broken offers .*Nothing'> for kind 'nothing', which is no Model"),
        (lambda: generate("plain"), "broken offers generator 'plain' but .* is not made by `@generator"),
    ],
)
def test_what_is_not_what_a_package_says_is_named(broken, ask, says):
    with pytest.raises(ValueError, match=says):
        ask()


def test_a_broken_package_does_not_break_the_rest(broken):
    with pytest.warns(RuntimeWarning, match="broken offers importer 'three' but 3 is no function"):
        assert "rooms" in importers()
    with pytest.warns(RuntimeWarning, match="broken offers generator 'plain'"):
        assert "gpu-figure1" in all_generators()
    result = CliRunner().invoke(app, ["options"])
    assert result.exit_code == 0 and "broken offers" in result.stderr and "pod-placement" in result.stdout


def test_a_generator_of_another_package(installed):
    assert "knapsack-tiny" not in GENERATORS
    assert generate("knapsack-tiny", room="7").room == 7
    assert "knapsack-tiny" in all_generators()


def test_an_importer_of_another_package(installed, tmp_path):
    (tmp_path / "rooms.txt").write_text("5")
    assert importers()["rooms"](tmp_path / "rooms.txt").room == 5


def test_the_command_line_finds_them_too(installed, tmp_path, monkeypatch):
    (tmp_path / "rooms.txt").write_text("5")
    monkeypatch.chdir(tmp_path)

    def flowlex(*words: str) -> str:
        run = CliRunner().invoke(app, words)
        assert run.exit_code == 0, run.output
        return run.stdout

    assert json.loads(flowlex("generate", "knapsack-tiny", "--set", "room=9", "-o", "-"))["room"] == 9
    command = [sys.executable, "-m", "flowlex", "import", "rooms", "rooms.txt", "--spare", "2", "-o", "k.json"]
    subprocess.run(
        command, env={"PYTHONPATH": str(installed), "PATH": ""}, check=True
    )  # commands are made at the start
    assert read_instance(tmp_path / "k.json").room == 7
    assert "knapsack-tiny" in flowlex("generate", "--list")
    assert "knapsack-of-a-test" in flowlex("schema") and "knapsack-of-a-test" in flowlex("show", "k.json")


def test_two_classes_of_one_kind_are_refused():
    code = "class Other(Instance):\n    kind: Literal['gpu-assignment'] = 'gpu-assignment'"
    from typing import Literal

    with pytest.raises(TypeError, match=r"kind 'gpu-assignment' is that of flowlex\.instances\.gpu\.GpuInstance"):
        exec(code, {"Instance": Instance, "Literal": Literal, "__name__": "other"})


def test_refining_a_class_leaves_its_kind_alone():
    class Larger(Instance.registry["gpu-assignment"]):
        pass

    assert instance_class("gpu-assignment") is not Larger
