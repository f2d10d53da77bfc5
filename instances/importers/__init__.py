"""Importers that read public traces as instances and event logs."""

import inspect
from collections.abc import Callable, Mapping

from flowlex.instances.extensions import added, load_added, owner
from flowlex.instances.importers.coflow import read_coflow_trace
from flowlex.instances.importers.gavel import read_gavel
from flowlex.instances.importers.openb import read_openb
from flowlex.instances.instance_base import Instance, InstanceError
from flowlex.instances.registered_systems import load, registered

__all__ = ["importers"]


def importers() -> Mapping[str, Callable[..., Instance]]:
    """Return the functions that read foreign data as an instance, by name, including those of other packages.

    See `flowlex.instances.extensions` and `flowlex.instances.registered_systems`. ``flowlex import NAME`` runs them.
    """
    ours: dict[str, Callable[..., Instance]] = {
        "coflow": read_coflow_trace,
        "gavel": read_gavel,
        "openb": read_openb,
    }
    ours |= {name: load(place) for name, place in registered("IMPORTERS").items()}
    return {**load_added("flowlex.importers", _function), **ours}


def _function(group: str, name: str) -> Callable[..., Instance]:
    found = added(group, name)
    if not inspect.isfunction(found):
        raise InstanceError(
            f"{owner(group, name)} offers importer {name!r} but {found!r} is no function; mend or remove it"
        )
    return found
