"""Run the examples of docstrings."""

import doctest
import importlib

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
