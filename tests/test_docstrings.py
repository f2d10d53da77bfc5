"""The examples of docstrings are run."""

from __future__ import annotations

import doctest
import importlib

import pytest

from tests.documents import ROOT

ROOMS = sorted(link.name for link in (ROOT / "src" / "flowlex").iterdir() if link.is_symlink())
EXAMPLES = [
    ".".join(("flowlex", *path.relative_to(ROOT).with_suffix("").parts))
    for room in ROOMS
    for path in sorted((ROOT / room).rglob("*.py"))
    if ">>> " in path.read_text()
]


@pytest.mark.parametrize("module", EXAMPLES)
def test_examples_say_what_comes_out(module):
    failed, tried = doctest.testmod(importlib.import_module(module), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert tried > 0 and failed == 0
