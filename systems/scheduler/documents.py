"""Documents of requests and answers of the scheduler service."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from flowlex.systems.scheduler.event_log import Event
from flowlex.systems.scheduler.gpu_events import GpuEvent


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ClusterEvents(_Document):
    """What happened, in order: events of a log but for those that begin one and ``step``; the service sets the time."""

    events: list[Event] = Field(min_length=1, max_length=1000)


class GpuEvents(_Document):
    """Reports of nodes and jobs, in order."""

    events: list[GpuEvent] = Field(min_length=1, max_length=1000)


class Taken(_Document):
    """How many events are on disk now."""

    taken: int


class Decision(_Document):
    """What a decision changed.

    Names of tasks and machines: placed (task, machine), moved (task, from, to, reason), stopped (task, machine,
    reason), waiting (task, reason). In rounds of GPU assignment placed is (task, GPU, node). ``whole``: rules or
    capacities required a full solve; ``optimal``: which proved this decision the optimum.
    """

    number: int
    at_s: float | None = None
    placed: list[list[str]]
    moved: list[list[str]] = []
    stopped: list[list[str]]
    waiting: list[list[str]]
    running: int | None = None
    waiting_count: int | None = None
    transfer_s: float | None = None
    bandwidths: dict[str, float] | None = None
    whole: bool | None = None
    optimal: bool | None = None


class Place(_Document):
    """Where a task is, or why it waits."""

    task: str
    job: str
    machine: str | None = None
    gpu: str | None = None
    reason: str | None = None


class Places(_Document):
    """Machine (or GPU) by running task, after the decision ``number``."""

    number: int
    places: dict[str, str]


class Explained(BaseModel):
    """Why a task waits, and what would place it; see `flowlex explain`."""

    model_config = ConfigDict(extra="allow")
    task: str
    rule: str
    reason: str
    remedy: str
    price: Any = None
