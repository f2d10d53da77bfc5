"""How every test of the suite ends: one Hypothesis profile that repeats itself, one that searches, limits of time.

`pytest` runs the profile `ci`: the same cases each time, so that who comes next sees what the last one saw.
`pytest --hypothesis-profile=search -m hypothesis` (in `make test-slow`) draws anew, with `MORE` times the cases; a
failure that it finds is printed as an `@example` line, which the test then keeps.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.documents import shell

__all__ = ["shell"]

#: A loaded machine is slow, not a strategy.
_ANY_PACE = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("ci", derandomize=True, print_blob=True, database=None, **_ANY_PACE)
settings.register_profile("search", derandomize=False, print_blob=True, database=None, **_ANY_PACE)
settings.load_profile("ci")

#: Cases of the profile `search` for each one of the profile `ci`.
MORE = 20

#: Seconds before a test is stopped (`timeout` in pyproject.toml for all others).
NOTEBOOK_S, SLOW_S = 600, 1800


@pytest.fixture(scope="module", autouse=True)
def small_heap() -> Iterator[None]:
    """Leave what pytest and imports hold out of later collections: a live scheduler collects whenever it is made."""
    gc.collect()
    gc.freeze()
    yield


@pytest.fixture
def forget_modules(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Have modules whose names begin so imported anew; afterwards the old ones are back, in their packages too."""

    def forget(*beginnings: str) -> None:
        for name in [name for name in sys.modules if name.startswith(beginnings)]:
            package, _, module = name.rpartition(".")
            if hasattr(sys.modules.get(package), module):
                monkeypatch.setattr(sys.modules[package], module, sys.modules[name])
            monkeypatch.delitem(sys.modules, name)

    return forget


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Notebooks are rare: each starts a kernel, and fails where tests of what it shows fail too."""
    for item in items:
        if item.path.suffix == ".ipynb":
            item.add_marker(pytest.mark.rare)
    yield  # Hypothesis marks its tests, and what this run leaves out goes
    search = settings.get_current_profile_name() == "search"
    for item in items:
        if item.path.suffix == ".ipynb":
            item.add_marker(pytest.mark.timeout(NOTEBOOK_S))
        elif search or item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.timeout(SLOW_S))
        if search and isinstance(item, pytest.Function) and item.get_closest_marker("hypothesis"):
            multiply_cases(item.function)


def multiply_cases(test: object) -> None:
    """Raise the number of cases that the test asks for by itself, which no profile changes."""
    name = "_hypothesis_internal_use_settings"
    cases: settings = getattr(test, name)
    setattr(test, name, settings(cases, max_examples=MORE * cases.max_examples))
