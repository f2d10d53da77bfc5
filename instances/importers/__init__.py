"""Public traces and live nodes, read as instances and event logs."""

from collections.abc import Callable, Mapping

from flowlex.instances.base import Instance
from flowlex.instances.extensions import load_added
from flowlex.instances.importers.coflow import read_coflow_trace
from flowlex.instances.importers.gavel import read_gavel
from flowlex.instances.importers.kubernetes import read_kubernetes
from flowlex.instances.importers.openb import read_openb

__all__ = ["importers"]


def importers() -> Mapping[str, Callable[..., Instance]]:
    """Return the functions that make an instance of foreign data, by name; other packages add theirs.

    See `flowlex.instances.extensions`. ``flowlex import NAME`` runs them.
    """
    ours = {"coflow": read_coflow_trace, "gavel": read_gavel, "kubernetes": read_kubernetes, "openb": read_openb}
    return {**load_added("flowlex.importers"), **ours}
