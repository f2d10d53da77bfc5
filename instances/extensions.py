"""Kinds, generators and importers of this package and of others, found by name.

Another package names what it adds in its ``pyproject.toml``; installing it is enough, in Python and on the command
line alike::

    [project.entry-points."flowlex.instances"]
    my-problem = "my_package:MyInstance"            # the name is the kind

    [project.entry-points."flowlex.generators"]
    my-tiny = "my_package:my_tiny"                  # a function made a generator by ``@generator("my-tiny")``

    [project.entry-points."flowlex.importers"]
    my-trace = "my_package:read_my_trace"           # a function of typed parameters that returns an instance

Nothing is imported before its name is asked for, or all are listed: a command pays for the kind that it reads.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from flowlex.instances.base import Instance, InstanceError

__all__ = ["added", "added_names", "instance_class", "kinds", "load_added"]

#: Modules of our own kinds.
_KINDS = {
    "allocation": "allocation",
    "cluster-workload": "cluster",
    "flow-scheduling": "flow",
    "gpu-assignment": "gpu",
    "jit-bandwidth": "jit",
    "load-partition": "load",
    "min-cost-flow": "network",
    "pod-placement": "pods",
    "scenario": "scenario",
}


def kinds() -> tuple[str, ...]:
    """All kinds of instance, sorted; those of other packages by the names they gave."""
    return tuple(sorted({*_KINDS, *Instance.registry, *added_names("flowlex.instances")}))


def instance_class(kind: Any) -> type[Instance]:
    """Return the class of a kind, imported now.

    Raises
    ------
    InstanceError
        No such kind, listing those that exist; or its package cannot be imported.
    """
    if isinstance(kind, str) and kind in _KINDS:
        importlib.import_module(f"flowlex.instances.{_KINDS[kind]}")
    elif not isinstance(kind, str) or (kind not in Instance.registry and added("flowlex.instances", kind) is None):
        if isinstance(kind, str) and (solved := kind.removesuffix("-solution")) != kind and solved in kinds():
            raise InstanceError(f"this is a solution of a {solved!r} instance; name the instance itself", place="kind")
        raise InstanceError(f"unknown kind {_short(kind)}; one of: {', '.join(kinds())}", place="kind")
    if kind not in Instance.registry:
        raise InstanceError(f"the package that names {kind!r} defines no such kind", place="kind")
    return Instance.registry[kind]


def added_names(group: str) -> tuple[str, ...]:
    """Names of what other packages add to a group, such as ``flowlex.generators``, sorted."""
    return tuple(sorted(_entries(group)))


def added(group: str, name: str) -> Any:
    """Import what another package adds under a name; None when there is none.

    Raises
    ------
    InstanceError
        It cannot be imported; the message names the package and the reason.
    """
    entry = _entries(group).get(name)
    if entry is None:
        return None
    try:
        return entry.load()
    except Exception as error:  # whatever another package does when it is imported
        package = entry.dist.name if entry.dist is not None else "another package"
        reason = f"{package} offers {name!r} but cannot be imported: {type(error).__name__}: {error}"
        raise InstanceError(f"{reason}; mend or remove it") from error


def load_added(group: str) -> dict[str, Any]:
    """Import all that other packages add to a group; one that cannot be imported is left out with a warning."""
    found = {}
    for name in added_names(group):
        try:
            found[name] = added(group, name)
        except InstanceError as error:
            warnings.warn(str(error), RuntimeWarning, stacklevel=2)
    return found


def _entries(group: str) -> Mapping[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=group)}


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
