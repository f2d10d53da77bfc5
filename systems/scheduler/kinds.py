"""The kinds of services, and how the core of each is made from the options of its first start."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from flowlex.instances.files import read_instance
from flowlex.instances.flow import FlowInstance
from flowlex.instances.gpu_policy import GpuPolicy
from flowlex.models.flow.goals import preset
from flowlex.systems.scheduler.core_protocol import Core
from flowlex.systems.scheduler.database import Settings
from flowlex.systems.scheduler.flow_core import ClusterCore
from flowlex.systems.scheduler.gpu_core import GpuCore
from flowlex.systems.scheduler.measured_bandwidth import Bandwidths


def loader_of(settings: Settings, without: Collection[str] = ()) -> Callable[[bytes | None], Core]:
    """Return what makes the core of a service from a saved state, or (None) from the beginning.

    ``without``: goals of a saved state to leave out.
    """
    return _cluster(settings.options, without) if settings.kind == "scheduler" else _gpu(settings.options)


def _cluster(options: dict[str, Any], without: Collection[str]) -> Callable[[bytes | None], Core]:
    goals = preset(options["goals"])
    cluster = None if options["cluster"] is None else FlowInstance.model_validate(options["cluster"])
    rest = {name: options[name] for name in ("cost_limit", "scale", "lexicographic")}
    limit = options.get("step_limit_s")
    rest["solver"] = {} if limit is None else {"time_limit_s": limit}
    return lambda state: ClusterCore.load(state, goals, cluster, without=without, **rest)


def _gpu(options: dict[str, Any]) -> Callable[[bytes | None], Core]:
    rates = {link: options[f"{link}_mb_per_s"] for link in ("disk", "rack", "between_racks")}

    def load(state: bytes | None) -> GpuCore:
        core = GpuCore(GpuPolicy(options["policy"]), Bandwidths(rates), options["most_jobs"])
        return core if state is None else core.load(state)

    return load


def read_cluster(path: Path) -> dict[str, Any]:
    """A flow-scheduling instance as a document.

    Raises `ValueError`: the file holds another kind.
    """
    instance = read_instance(path)
    if not isinstance(instance, FlowInstance):
        raise ValueError(f"{path}: --cluster is a flow-scheduling instance, this is {instance.kind!r}")
    return instance.model_dump(mode="json")
