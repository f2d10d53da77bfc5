"""Hypothesis profiles and time limits of all tests.

`pytest` runs the profile `ci`, with the same cases each time.
`pytest --hypothesis-profile=search -m hypothesis` (in `make test-slow`) draws new cases, `MORE` times as many; a
failure that it finds is printed as an `@example` line to be added to the test.
"""

import gc
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.documents import shell

__all__ = ["shell"]

#: The health check for slow data is off, as a loaded machine may be slow.
_ANY_PACE = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("ci", derandomize=True, print_blob=True, database=None, **_ANY_PACE)
settings.register_profile("search", derandomize=False, print_blob=True, database=None, **_ANY_PACE)
settings.load_profile("ci")

#: Cases of the profile `search` for each one of the profile `ci`.
MORE = 40

#: Seconds before a test is stopped (`timeout` in pyproject.toml for all others).
SLOW_S = 1800


@pytest.fixture(scope="module", autouse=True)
def small_heap() -> Iterator[None]:
    """Exclude objects of pytest and imports from later garbage collections: a new live scheduler runs one."""
    gc.collect()
    gc.freeze()
    yield


@pytest.fixture
def forget_modules(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Remove modules with these name prefixes so that they are imported again; restore them after the test."""

    def forget(*beginnings: str) -> None:
        for name in [name for name in sys.modules if name.startswith(beginnings)]:
            package, _, module = name.rpartition(".")
            if hasattr(sys.modules.get(package), module):
                monkeypatch.setattr(sys.modules[package], module, sys.modules[name])
            monkeypatch.delitem(sys.modules, name)

    return forget


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Give slow tests more time, and random ones more cases in a search."""
    yield  # Hypothesis marks its tests, and deselected tests are removed
    search = settings.get_current_profile_name() == "search"
    for item in items:
        if search or item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.timeout(SLOW_S))
        if search and isinstance(item, pytest.Function) and item.get_closest_marker("hypothesis"):
            multiply_cases(item.function)


def multiply_cases(test: object) -> None:
    """Raise the number of cases that a test sets itself, which profiles do not change."""
    name = "_hypothesis_internal_use_settings"
    cases: settings = getattr(test, name)
    setattr(test, name, settings(cases, max_examples=MORE * cases.max_examples))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Run the command line in this process, in an empty folder."""
    from typer.testing import CliRunner

    from flowlex.cli.app import app

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    runner = CliRunner()

    def invoke(*arguments: object) -> Any:
        result = runner.invoke(app, [str(argument) for argument in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert "Traceback" not in result.output
        return result

    return invoke
