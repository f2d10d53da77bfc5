"""The kinds of services, and how the core of each is made from the options of its first start."""

from __future__ import annotations

from collections.abc import Callable

from flowlex.instances.flow import FlowInstance
from flowlex.instances.gpu_policy import GpuPolicy
from flowlex.models.flow.goals import preset
from flowlex.systems.scheduler.core_protocol import Core
from flowlex.systems.scheduler.database import Settings
from flowlex.systems.scheduler.flow_core import ClusterCore
from flowlex.systems.scheduler.gpu_core import GpuCore
from flowlex.systems.scheduler.measured_bandwidth import LINKS, Bandwidths


def loader_of(settings: Settings) -> Callable[[bytes | None], Core]:
    """Return what makes the core of a service from a saved state, or (None) from the beginning."""
    options = settings.options
    if settings.kind == "scheduler":
        cluster = None if options["cluster"] is None else FlowInstance.model_validate(options["cluster"])
        kept = {name: options[name] for name in ("cost_limit", "scale", "lexicographic")}
        limit = options.get("step_limit_s")
        solver = {} if limit is None else {"time_limit_s": limit}
        return lambda state: ClusterCore.load(state, preset(options["goals"]), cluster, solver=solver, **kept)

    def load(state: bytes | None) -> GpuCore:
        rates = Bandwidths({link: options[f"{link}_mb_per_s"] for link in LINKS})
        core = GpuCore(GpuPolicy(options["policy"]), rates, options["most_jobs"])
        return core if state is None else core.load(state)

    return load
