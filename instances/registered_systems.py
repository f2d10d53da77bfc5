"""Find the systems around the core, packages of ``flowlex.systems``, without naming any of them."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Iterator
from types import ModuleType


def registrations() -> Iterator[ModuleType]:
    """Import the module ``registration`` of each system that is there.

    It has the mappings ``COMMANDS`` (name to fields of `flowlex.cli.command_group.Lazy`) and ``IMPORTERS`` (name to
    ``module:function``).
    """
    folder = importlib.util.find_spec("flowlex.systems")
    places = folder.submodule_search_locations if folder is not None else None
    for system in pkgutil.iter_modules(places or ()):
        yield importlib.import_module(f"flowlex.systems.{system.name}.registration")
