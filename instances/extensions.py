"""Find instance kinds, generators and importers of this package and of others by name.

Another package declares its additions in its ``pyproject.toml``; once it is installed, Python and the command line
find them::

    [project.entry-points."flowlex.instances"]
    my-problem = "my_package:MyInstance"            # the name is the kind

    [project.entry-points."flowlex.generators"]
    my-tiny = "my_package:my_tiny"                  # a function made a generator by ``@generator("my-tiny")``

    [project.entry-points."flowlex.importers"]
    my-trace = "my_package:read_my_trace"           # a function of typed parameters that returns an instance

A module is imported when its name is asked for or all are listed, so a command imports only the kind that it reads.
"""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, cast

from flowlex.instances.input_errors import InstanceError, did_you_mean, shortened
from flowlex.instances.instance_base import Instance
from flowlex.instances.named_modules import MODELS_VARIABLE, load_named_modules
from flowlex.instances.registered_systems import registered

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

#: Modules of our own kinds.
_KINDS = {
    "allocation": "allocation",
    "flow-scheduling": "flow",
    "gpu-assignment": "gpu",
    "jit-bandwidth": "jit",
    "load-partition": "load",
    "min-cost-flow": "min_cost_flow",
    "pod-placement": "pods",
    "problem": "problem",
}


def kinds() -> tuple[str, ...]:
    """Return all instance kinds, sorted, including those of other packages."""
    return tuple(sorted({*_KINDS, *registered("KINDS"), *Instance.registry, *added_names("flowlex.instances")}))


def instance_class(kind: Any) -> type[Instance]:
    """Return the class of a kind, imported now."""
    if isinstance(kind, str) and kind in _KINDS:
        importlib.import_module(f"flowlex.instances.{_KINDS[kind]}")
    elif isinstance(kind, str) and kind not in Instance.registry and kind in (systems := registered("KINDS")):
        importlib.import_module(systems[kind])
    elif isinstance(kind, str) and kind not in Instance.registry and os.environ.get(MODELS_VARIABLE):
        load_named_modules()
    if isinstance(kind, str) and (kind in _KINDS or kind in Instance.registry):
        pass
    elif not isinstance(kind, str) or (kind not in Instance.registry and added("flowlex.instances", kind) is None):
        if isinstance(kind, str) and (solved := kind.removesuffix("-solution")) != kind and solved in kinds():
            raise InstanceError(f"this is a solution of a {solved!r} instance; name the instance itself", place="kind")
        hint = did_you_mean(kind, kinds()) if isinstance(kind, str) else ""
        raise InstanceError(f"unknown kind {shortened(repr(kind))}; one of: {', '.join(kinds())}{hint}", place="kind")
    if kind not in Instance.registry:
        found = added("flowlex.instances", kind)
        reason = f"{owner('flowlex.instances', kind)} offers kind {kind!r} but {found!r} is no Instance of that kind"
        raise InstanceError(f"{reason}; mend or remove it", place="kind")
    return Instance.registry[kind]


def register_kind(kind: str, cls: type[Instance]) -> None:
    """Make a class of instances that of a kind, which its files then state; for models that name their kind."""
    other = Instance.registry.get(kind)
    if (kind in _KINDS and other is not cls) or (
        other is not None and (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__)
    ):
        raise TypeError(f"kind {kind!r} is that of other instances; choose another")
    if cls.model_fields["kind"].is_required():
        cls.model_fields["kind"].annotation = cast(Any, Literal[kind])
        cls.model_fields["kind"].default = kind
        cls.model_rebuild(force=True)
    Instance.registry[kind] = cls


def entry_points(group: str, name: str = "") -> EntryPoints:
    """The entry points of all installed packages; the module that reads them takes longer than a small file."""
    from importlib import metadata

    found = metadata.entry_points(group=group)
    return found.select(name=name) if name else found


def added_names(group: str) -> tuple[str, ...]:
    """Names of what other packages add to a group, such as ``flowlex.generators``, sorted."""
    return tuple(sorted({entry.name for entry in entry_points(group)}))


def added(group: str, name: str) -> Any:
    """Import the object that another package adds under a name; return None if there is none."""
    entries = entry_points(group, name)
    if not entries:
        return None
    packages = owner(group, name)
    if " and " in packages:
        raise InstanceError(f"{packages} both offer {name!r} to {group}; remove one of them")
    try:
        return next(iter(entries)).load()
    except Exception as error:  # importing another package can raise anything
        reason = f"{packages} offers {name!r} but cannot be imported: {type(error).__name__}: {error}"
        raise InstanceError(f"{reason}; mend or remove it") from error


def owner(group: str, name: str) -> str:
    """The packages that offer a name to a group, joined by "and"."""
    entries = entry_points(group, name)
    return " and ".join(sorted({entry.dist.name if entry.dist is not None else "another package" for entry in entries}))


def load_added(group: str, load: Callable[[str, str], Any] = added) -> dict[str, Any]:
    """Import all additions of other packages to a group; skip, with a warning, each that ``load`` refuses."""
    found = {}
    for name in added_names(group):
        try:
            found[name] = load(group, name)
        except InstanceError as error:
            warnings.warn(str(error), RuntimeWarning, stacklevel=2)
    return found
