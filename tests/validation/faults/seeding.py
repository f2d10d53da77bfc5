"""Seed a fault into model code: change what one function returns, wherever it was imported."""

import importlib
import sys
import types
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

__all__ = ["array", "field", "seed"]

Change = Callable[..., Any]


def seed(patch: pytest.MonkeyPatch, target: str, change: Change) -> None:
    """Make ``module:Class.function`` (or a property) return ``change(result, *arguments)``."""
    module, _, path = target.partition(":")
    owner: Any = importlib.import_module(module)
    *outer, name = path.split(".")
    for part in outer:
        owner = getattr(owner, part)
    raw = vars(owner)[name]

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **kwargs: change(function(*args, **kwargs), *args)

    if isinstance(raw, classmethod):
        patch.setattr(owner, name, classmethod(wrap(raw.__func__)))
    elif isinstance(raw, property):
        assert raw.fget is not None
        patch.setattr(owner, name, property(wrap(raw.fget)))
    elif not isinstance(raw, types.FunctionType):  # a cached property
        patch.setattr(owner, name, property(wrap(raw.func)))
    elif outer:
        patch.setattr(owner, name, wrap(raw))
    else:  # a function of a module: wherever it was imported by name
        changed = wrap(raw)
        for held in [m for key, m in sys.modules.items() if key.startswith("flowlex.")]:
            if vars(held).get(name) is raw:
                patch.setattr(held, name, changed)


def array(change: Callable[[Any], Any]) -> Change:
    """Return a change that applies ``change`` in place to a copy of an array."""

    def changed(values: Any, *_: Any) -> Any:
        copy = np.array(values)
        if copy.size:
            change(copy)
        return copy

    return changed


def field(name: str, change: Change) -> Change:
    """Return a change that applies ``change`` to one field of a dataclass."""
    return lambda made, *args: replace(made, **{name: change(getattr(made, name), *args)})
