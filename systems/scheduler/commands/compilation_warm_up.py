"""A small run of the compiled loops of the live scheduler, for ``flowlex warm-up``."""

from __future__ import annotations

from typing import Any

from flowlex.instances.generators.flow import flow_random
from flowlex.models.flow.goals import PRESETS
from flowlex.systems.scheduler.live.scheduler import FlowScheduler


def schedule_small_cluster() -> None:
    """Run, finish, fail and restart under two sets of goals."""
    for goals in (PRESETS["quincy"], PRESETS["borg"]):
        scheduler = FlowScheduler(flow_random(seed=4), goals)
        placed = scheduler.step(now_s=0.0).placed
        for task, _ in placed[:2]:
            scheduler.finish(task)
        scheduler.step(now_s=60.0)
        scheduler.remove_machine(placed[-1][1])
        scheduler.step(now_s=120.0)
    session: Any = scheduler.state.session
    session.cheapest_paths(session.root)
