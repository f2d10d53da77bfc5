"""Run the examples of docstrings, and check that public names document their parameters."""

from __future__ import annotations

import doctest
import importlib
import inspect
from collections.abc import Iterator
from enum import Enum
from typing import Any

import pytest

from tests.documents import SOURCE

PACKAGES = sorted(path.parent.name for path in SOURCE.glob("*/__init__.py"))
EXAMPLES = [
    ".".join(("flowlex", *path.relative_to(SOURCE).with_suffix("").parts))
    for package in PACKAGES
    for path in sorted((SOURCE / package).rglob("*.py"))
    if ">>> " in path.read_text()
]


@pytest.mark.parametrize("module", EXAMPLES)
def test_examples_say_what_comes_out(module):
    failed, tried = doctest.testmod(importlib.import_module(module), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert tried > 0 and failed == 0


#: Modules whose public names programs may rely on.
PUBLIC = ("", ".formulations", ".instances", ".models", ".testing", ".client", ".validation.certificates")


def public_names() -> Iterator[tuple[str, Any]]:
    """Public functions and classes with the public methods that they define."""
    for module in (importlib.import_module(f"flowlex{name}") for name in PUBLIC):
        for name in module.__all__:
            thing = getattr(module, name)
            if not getattr(thing, "__module__", "").startswith("flowlex"):
                continue
            if inspect.isfunction(thing):
                yield name, thing
            elif inspect.isclass(thing) and not issubclass(thing, Exception | Enum):
                yield name, thing
                methods = ((key, getattr(each, "__func__", each)) for key, each in vars(thing).items() if key[0] != "_")
                yield from ((f"{name}.{key}", each) for key, each in methods if inspect.isfunction(each))


def test_public_names_say_what_their_parameters_are():
    bare = set()
    for name, thing in public_names():
        if thing.__module__.startswith(("flowlex.models.flow.goals", "flowlex.systems.simulation")):
            continue  # goals and policies say beside each field what it holds
        text = inspect.getdoc(thing) or ""
        if inspect.isclass(thing):
            told = "Parameters\n---" in text or "Attributes\n---" in text
        else:
            own = [each for each in inspect.signature(thing).parameters if each not in ("self", "cls")]
            told = not own or thing.__name__ == "<lambda>" or "Parameters\n---" in text
        if not told:
            bare.add(name)
    assert bare == set()
