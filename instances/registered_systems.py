"""Find the systems around the core, packages of ``flowlex.systems``, without naming any of them."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Iterator
from types import ModuleType
from typing import Any


def registrations() -> Iterator[ModuleType]:
    """Import the module ``registration`` of each system that is there.

    It has the mapping ``COMMANDS`` (name to fields of `flowlex.cli.command_group.Lazy`), and may have mappings of names
    to ``module:function``: ``IMPORTERS`` (of ``flowlex import``), ``WORKER_TASKS`` (what a worker process of a batch
    does), ``WARM_UPS`` (a small run of compiled loops) and ``INSTANCE_SOURCES`` (where ``flowlex solve`` gets a file).
    """
    folder = importlib.util.find_spec("flowlex.systems")
    places = folder.submodule_search_locations if folder is not None else None
    for system in pkgutil.iter_modules(places or ()):
        yield importlib.import_module(f"flowlex.systems.{system.name}.registration")


def registered(what: str) -> dict[str, str]:
    """What all systems register under a mapping, such as ``IMPORTERS``: ``module:function`` by name."""
    return {name: place for system in registrations() for name, place in getattr(system, what, {}).items()}


def load(place: str) -> Any:
    """Import what ``module:function`` names."""
    return pkgutil.resolve_name(place)
