"""The rooms keep to the architecture: who imports whom, how long a file may be, what is packaged, no prints."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
#: The last column of the architecture's table. `cli` may import everything.
MAY_IMPORT: dict[str, set[str]] = {
    "instances": set(),
    "formulations": set(),
    "models": {"instances", "formulations"},
    "validation": {"formulations", "models", "instances"},
    "simulation": {"models", "instances"},
    "telemetry": {"instances"},
    "cli": {"instances", "formulations", "models", "validation", "simulation", "telemetry"},
}
#: Prefixes of modules that a room may use over and above its table: solve() attaches certificates.
EXCEPTIONS = {"models": ("flowlex.validation.certificates",)}
#: What a part of a room is held to beyond its room, so that the exception above makes no circle.
NARROWER = {"validation/certificates": {"formulations", "instances"}}
LONGEST = 400
ROOMS = sorted(room for room in MAY_IMPORT if (ROOT / room / "__init__.py").is_file())
FILES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imported(path: Path) -> list[tuple[int, str]]:
    """Absolute names of everything a file imports, with the line."""
    found = []
    package = ["flowlex", *path.relative_to(ROOT).parent.parts]
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found += [(node.lineno, f"{module}.{alias.name}") for alias in node.names]
    return found


def strays(path: Path) -> list[str]:
    """Imports of a file that the table forbids."""
    place = path.relative_to(ROOT).as_posix()
    room = place.split("/")[0]
    allowed = {room} | next((may for part, may in NARROWER.items() if place.startswith(part + "/")), MAY_IMPORT[room])
    wrong = []
    for line, name in imported(path):
        first, *rest = name.split(".")
        if first in MAY_IMPORT:
            wrong.append(f"{place}:{line} imports {name}, a room without its package; write flowlex.{name}")
        elif (
            first == "flowlex"
            and (not rest or rest[0] not in allowed)
            and not name.startswith(EXCEPTIONS.get(room, ()))
        ):
            wrong.append(f"{place}:{line} imports {name}")
    return wrong


def test_the_rooms_are_there() -> None:
    assert {"instances", "formulations", "models", "validation", "cli"} <= set(ROOMS)
    assert len(FILES) > 20
    folders = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"benchmarks"}  # not part of the package
    assert folders <= set(MAY_IMPORT), "a new room needs a line in the architecture's table and here"


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_what_its_table_allows(room: str) -> None:
    assert [line for path in FILES if path.relative_to(ROOT).parts[0] == room for line in strays(path)] == []


@pytest.mark.parametrize(
    ("place", "line", "forbidden"),
    [
        ("instances/probe.py", "import flowlex.models.base", True),
        ("formulations/probe.py", "from flowlex.instances import base", True),
        ("formulations/probe.py", "from flowlex.formulations.outcome import Outcome", False),
        ("formulations/engines/probe.py", "from ..outcome import Outcome", False),
        ("formulations/engines/probe.py", "from ...models import base", True),
        ("models/probe.py", "from flowlex.validation.certificates import Check", False),
        ("models/probe.py", "from flowlex.validation import unimodularity", True),
        ("models/probe.py", "from flowlex import cli", True),
        ("models/probe.py", "from models.base import Model", True),
        ("validation/probe.py", "from flowlex.models.base import Model", False),
        ("validation/certificates/probe.py", "from flowlex.models.base import Model", True),
        ("telemetry/probe.py", "def f():\n    from flowlex.models import base", True),
        ("cli/probe.py", "import flowlex.telemetry.app", False),
    ],
)
def test_the_rule_itself(place: str, line: str, forbidden: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "tree", lambda _: ast.parse(line))
    assert bool(strays(ROOT / place)) == forbidden


def test_no_file_is_longer_than_the_style_allows() -> None:
    sizes = {path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    assert {place: lines for place, lines in sizes.items() if lines > LONGEST} == {}


def test_every_room_has_its_relative_link() -> None:
    links = {
        link.name: link.readlink().as_posix() for link in (ROOT / "src" / "flowlex").iterdir() if link.is_symlink()
    }
    assert links == {room: f"../../{room}" for room in ROOMS}
    assert [path for room in ROOMS for path in FILES if not (path.parent / "__init__.py").is_file()] == []


def test_the_library_never_prints() -> None:
    printing = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in FILES
        if path.relative_to(ROOT).parts[0] != "cli"
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert printing == []
