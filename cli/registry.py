"""Makes every kind of instance and every generator of the installation known."""

from __future__ import annotations

import importlib
import pkgutil
from functools import lru_cache

__all__ = ["load_generators", "load_kinds"]


@lru_cache(maxsize=1)
def load_kinds() -> None:
    """Import all modules of `flowlex.instances`: kinds and text formats register themselves."""
    _import_all("flowlex.instances")


@lru_cache(maxsize=1)
def load_generators() -> None:
    """Import all modules of `flowlex.instances.generators`: generators register themselves."""
    load_kinds()
    _import_all("flowlex.instances.generators")


def _import_all(name: str) -> None:
    package = importlib.import_module(name)
    for module in sorted(pkgutil.iter_modules(package.__path__), key=lambda found: found.name):
        importlib.import_module(f"{name}.{module.name}")
