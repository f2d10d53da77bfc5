"""Tasks and jobs that are here, as the flow scheduler knows them."""

from __future__ import annotations

from dataclasses import dataclass, field

from flowlex.instances.flow import FlowJob
from flowlex.models.base import ModelError
from flowlex.models.flow.goals.base import Spot, TaskView

__all__ = ["EventError", "LiveJob", "LiveTask"]


class EventError(ModelError):
    """An event does not fit the state of the cluster; the state is as before."""


@dataclass(slots=True)
class LiveTask(TaskView):
    """A task that is here, since when it runs, and the machines its arcs depend on."""

    started_s: float = 0.0
    mentions: tuple[str, ...] = ()
    moving: dict[str | Spot, int] | None = None  # `Rules.moving`, kept while it holds


@dataclass(slots=True)
class LiveJob:
    """A job as submitted (its claims may have changed since) and its tasks that are still here."""

    job: FlowJob
    tasks: dict[str, None]
    share: tuple[int, int] = (0, 0)  # fewest and most running tasks, of meaning with `FairShares`
    preempted: list[float] = field(default_factory=list)  # when, of the last hour
    held: int = 0  # running tasks that may only stay or stop
