"""Functions that read foreign data as instances, which systems and other packages add."""

import inspect
from collections.abc import Callable, Mapping

from flowlex.instances.extensions import added, load_added, owner
from flowlex.instances.instance_base import Instance, InstanceError
from flowlex.instances.registered_systems import load, registered

__all__ = ["importers"]


def importers() -> Mapping[str, Callable[..., Instance]]:
    """Return the functions that read foreign data as an instance, by name: those of systems and of other packages.

    See `flowlex.instances.extensions` and `flowlex.instances.registered_systems`. ``flowlex import NAME`` runs them.
    """
    ours = {name: load(place) for name, place in registered("IMPORTERS").items()}
    return {**load_added("flowlex.importers", _function), **ours}


def _function(group: str, name: str) -> Callable[..., Instance]:
    found = added(group, name)
    if not inspect.isfunction(found):
        raise InstanceError(
            f"{owner(group, name)} offers importer {name!r} but {found!r} is no function; mend or remove it"
        )
    return found
