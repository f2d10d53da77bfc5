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

    It may have mappings from names: ``COMMANDS`` (to fields of `flowlex.cli.command_group.Lazy`); ``KINDS``,
    ``GENERATORS`` and ``TEXT_FORMATS`` (to the module that registers the kind of instance, the generator, the format of
    instance files); and to ``module:function``: ``IMPORTERS`` and ``IMPORT_COMMANDS`` (of ``flowlex import``),
    ``EXAMPLES`` (a small instance of a kind), ``WORKER_TASKS`` (what a worker process of a batch does), ``WARM_UPS`` (a
    small run of compiled loops) and ``INSTANCE_SOURCES`` (where ``flowlex solve`` gets a file).
    """
    folder = importlib.util.find_spec("flowlex.systems")
    places = folder.submodule_search_locations if folder is not None else None
    for system in pkgutil.iter_modules(places or ()):
        yield importlib.import_module(f"flowlex.systems.{system.name}.registration")


def registered(what: str) -> dict[str, Any]:
    """What all systems register under a mapping, such as ``IMPORTERS``, by name."""
    return {name: place for system in registrations() for name, place in getattr(system, what, {}).items()}


def load(place: str) -> Any:
    """Import what ``module:function`` names."""
    return pkgutil.resolve_name(place)
