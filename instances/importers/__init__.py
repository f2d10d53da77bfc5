"""Importers that read public traces and live clusters as instances and event logs."""

import inspect
from collections.abc import Callable, Mapping

from flowlex.instances.extensions import added, load_added, owner
from flowlex.instances.importers.coflow import read_coflow_trace
from flowlex.instances.importers.gavel import read_gavel
from flowlex.instances.importers.kubernetes import read_kubernetes
from flowlex.instances.importers.openb import read_openb
from flowlex.instances.instance_base import Instance, InstanceError

__all__ = ["importers"]


def importers() -> Mapping[str, Callable[..., Instance]]:
    """Return the functions that read foreign data as an instance, by name, including those of other packages.

    See `flowlex.instances.extensions`. ``flowlex import NAME`` runs them.
    """
    ours = {"coflow": read_coflow_trace, "gavel": read_gavel, "kubernetes": read_kubernetes, "openb": read_openb}
    return {**load_added("flowlex.importers", _function), **ours}


def _function(group: str, name: str) -> Callable[..., Instance]:
    found = added(group, name)
    if not inspect.isfunction(found):
        raise InstanceError(
            f"{owner(group, name)} offers importer {name!r} but {found!r} is no function; mend or remove it"
        )
    return found
