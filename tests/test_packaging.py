"""Wheel, source distribution and editable install: each works in a fresh environment, outside the checkout."""

import ast
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from tests.documents import ROOT, SOURCE

PACKAGES = (
    *("cli", "formulations", "instances", "models", "systems", "testing"),
    "validation",
)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
#: Distributions whose module has another name, or that flowlex does not import, with the reason to require them.
MODULES = {
    "lazy-loader": "lazy_loader",
    "prometheus-client": "prometheus_client",
    "psycopg": "SQLAlchemy loads it for PostgreSQL",
    "aiohttp": "fsspec reads http with it",
    "bokeh": "distributed draws its dashboard with it",
    "fsspec": "universal-pathlib reads stores with it",
    "httptools": "uvicorn parses HTTP with it",
    "kubernetes": "a test validates written objects with its models",
    "pyyaml": "yaml",
    "pyarrow": "pandas loads it for Parquet",
    "universal-pathlib": "upath",
    "uvloop": "uvicorn runs on it",
}
#: Tools that `make`, pytest and mypy run; no module imports them.
TOOLS = {"import-linter", "jupyter", "ipykernel", "mypy", "nbclient", "pandas-stubs", "pyright", "pytest-cov"}
TOOLS |= {"pytest-timeout", "pytest-xdist", "ruff", "scipy-stubs", "setuptools", "types-psutil"}
#: What `make docs` runs.
TOOLS |= {"furo", "latex2mathml", "myst-nb", "numpydoc", "sphinx"}
PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
BUILD = "from setuptools.build_meta import build_sdist; import sys; print(build_sdist(sys.argv[1]))"

pytestmark = pytest.mark.xdist_group("packaging")


def checkout(folder: Path) -> Path:
    """Return a clean copy of the version-controlled files or of an unpacked source distribution, with symlinks."""
    source = folder / "flowlex"
    if not (ROOT / ".git").exists():  # an unpacked source distribution
        unwanted = shutil.ignore_patterns("__pycache__", ".*", "*.egg-info", "build")
        return Path(shutil.copytree(ROOT, source, symlinks=True, ignore=unwanted))
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout.decode()
    for name in filter(None, names.split("\0")):
        if os.path.lexists(ROOT / name):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, source / name, follow_symlinks=False)
    return source


def make_wheel(source: Path, folder: Path) -> Path:
    """Build without isolation, so that nothing is downloaded."""
    subprocess.run([*PIP, "wheel", "--no-deps", "--no-build-isolation", "-w", folder, source], check=True)
    (built,) = folder.glob("*.whl")
    return built


def fresh_environment(folder: Path) -> Path:
    """Make an environment with our dependencies but without flowlex; returns its Python."""
    venv.create(folder, with_pip=False)
    (site,) = (folder / "lib").glob("python3*/site-packages")
    dependencies = [path for path in sys.path if Path(path).name == "site-packages"]
    (site / "dependencies.pth").write_text("\n".join(dependencies) + "\n")
    return folder / "bin" / "python"


def install(python: Path, *what: str | Path) -> None:
    command = [*PIP, f"--python={python}", "install", "--no-deps", "--no-build-isolation", "--force-reinstall", *what]
    subprocess.run(command, check=True)


def run(command: list[str | Path], folder: Path) -> str:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(command, cwd=folder, env=clean, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkout(tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_wheel(source, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    subprocess.run([sys.executable, "-c", BUILD, folder], cwd=source, check=True, capture_output=True)
    (built,) = folder.glob("*.tar.gz")
    return built


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_wheel_holds_every_package_its_types_and_its_data(wheel):
    names = set(contents(wheel))
    for package in PACKAGES:
        modules = {str(path.relative_to(SOURCE.parent)) for path in (SOURCE / package).rglob("*.py")}
        assert modules <= names
    assert {"flowlex/__init__.py", "flowlex/__init__.pyi", "flowlex/__main__.py", "flowlex/py.typed"} <= names
    assert any(name.startswith("flowlex/instances/library/") and name.endswith(".json") for name in names)
    (entry_points,) = (text for name, text in contents(wheel).items() if name.endswith("entry_points.txt"))
    assert b"[pytest11]\nflowlex.testing.plugin = flowlex.testing.plugin\n" in entry_points
    assert {name.split("/")[1] for name in names if name.startswith("flowlex/") and name.count("/") > 1} == set(
        PACKAGES
    )


@pytest.mark.rare
def test_the_source_distribution_holds_tests_notebooks_and_docs_and_makes_the_same_wheel(wheel, sdist, tmp_path):
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))  # 3.11.4 on
    (unpacked,) = tmp_path.iterdir()
    for place in ("tests/test_packaging.py", "notebooks/01_gpu_assignment.ipynb", "docs", "benchmarks", "Makefile"):
        assert (unpacked / place).exists()
    names = {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*") if path.is_file()}
    tested = {f"tests/{path.relative_to(ROOT / 'tests').as_posix()}" for path in (ROOT / "tests").rglob("test_*.py")}
    assert tested <= names
    assert not any("__pycache__" in name or name.startswith("src/src") for name in names)
    assert contents(make_wheel(unpacked, tmp_path / "wheel")) == contents(wheel)


# The wheel built from the source distribution is the same (above), so the default run does not install it again.
@pytest.mark.rare
@pytest.mark.parametrize("what", ["wheel", pytest.param("sdist", marks=pytest.mark.slow), "editable"])
def test_it_works_in_a_fresh_environment(what, tmp_path, request):
    python = fresh_environment(tmp_path / "venv")
    if what == "editable":
        place = checkout(tmp_path)
        install(python, "--editable", place)
    else:
        place = tmp_path / "venv"
        install(python, request.getfixturevalue(what))
    (tmp_path / "empty").mkdir()
    code = "import flowlex as f, flowlex.cli.app as c, importlib.metadata as m\n"
    code += "print([getattr(f, n).__module__ for n in f.__all__] and f.__version__ == m.version('flowlex'))\n"
    code += "print(f.__file__); print(c.__file__)"
    same, *files = run([python, "-c", code], tmp_path / "empty").split()
    assert same == "True"
    assert all(Path(file).is_relative_to(place) for file in files)
    for command in ([python, "-m", "flowlex"], [python.parent / "flowlex"]):
        assert run([*command, "--version"], tmp_path / "empty").startswith(f"flowlex {PROJECT['version']}\n")


def imported(*folders: Path) -> set[str]:
    """Top-level names of everything that is imported there."""
    found = set()
    for path in (path for folder in folders for path in folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.split(".")[0])
    return found


def distribution(requirement: str) -> str:
    return next(word for word in requirement.replace("[", " ").replace(">", " ").replace("=", " ").split())


def test_every_dependency_is_imported_by_something():
    package = imported(SOURCE, *(SOURCE / package for package in PACKAGES))
    everything = package | imported(ROOT / "tests", ROOT / "benchmarks")
    for name in map(distribution, PROJECT["dependencies"]):
        assert MODULES.get(name, name) in package, f"nothing imports {name}"
    for extra, wanted in PROJECT["optional-dependencies"].items():
        for name in set(map(distribution, wanted)) - TOOLS:
            module = MODULES.get(name, name)
            assert " " in module or module in everything, f"nothing imports {name} of extra {extra}"


def test_the_lowest_versions_are_those_that_the_project_declares():
    """`.ci/versions` installs these and runs flowlex with them."""
    pinned = dict(
        line.split("==") for line in (ROOT / "constraints-lowest.txt").read_text().splitlines() if line[:1] != "#"
    )
    declared = {}
    for requirement in PROJECT["dependencies"]:
        name, _, bounds = requirement.partition(">=")
        declared[name.partition("[")[0]] = bounds.partition(",")[0]
    assert pinned.keys() == declared.keys()
    parts = {name: [int(part) for part in version.split(".")] for name, version in pinned.items()}
    assert {name: parts[name][: bound.count(".") + 1] for name, bound in declared.items()} == {
        name: [int(part) for part in bound.split(".")] for name, bound in declared.items()
    }
    assert all(not any(parts[name][bound.count(".") + 1 :]) for name, bound in declared.items())
