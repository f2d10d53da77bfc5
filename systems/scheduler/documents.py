"""What goes into a scheduler that can be served and what comes out: requests, answers, refusals, and its protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict, Field, model_validator

from flowlex.systems.scheduler.event_log import NOT_SENT, Event, GpuEvent

Document = dict[str, Any]


class Refusal(Exception):
    """A request that is refused; the state is as it was. ``status``, ``reason``: of the answer over HTTP."""

    status, reason = 503, "storage"


class RefusedEvent(Refusal):
    """An event that does not fit the state."""

    status, reason = 409, "refused"


class UnknownTask(Refusal):
    """No task has this name."""

    status, reason = 404, "unknown"

    def __init__(self, name: str) -> None:
        super().__init__(f"no task is named {name!r}; it may have ended")


class SlowAnswer(NamedTuple):
    """An answer to compute on another thread, and the answer to give while another one is being computed."""

    find: Callable[[], Any]
    otherwise: Any


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ClusterEvents(_Document):
    """What happened, in order: events of a log but for those that begin one and ``step``; the service sets the time."""

    events: list[Event] = Field(min_length=1, max_length=1000)

    @model_validator(mode="after")
    def _sent(self) -> ClusterEvents:
        for number, event in enumerate(self.events):
            if isinstance(event, NOT_SENT):
                raise ValueError(f"events[{number}]: {event.event!r} is not sent; ask /v1/step to decide")
            if "at_s" in event.model_fields_set:
                raise ValueError(f"events[{number}]: leave at_s out; the service sets the time")
        return self


class GpuEvents(_Document):
    """Reports of nodes and jobs, in order."""

    events: list[GpuEvent] = Field(min_length=1, max_length=1000)


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


class Core(Protocol):
    """State that changes by events and decisions in sequence; time is passed in, never read."""

    @property
    def pending(self) -> int:
        """Events since the last decision."""

    @property
    def now_s(self) -> float:
        """Time of the last change."""

    def solve_ahead(self) -> None:
        """Do after a decision what the next one or a question would have to do; it must be done before any event."""

    def foresee(self) -> None:
        """Find what the next questions share."""

    def take(self, event: Document, at_s: float) -> None:
        """Apply an event completely, or raise `RefusedEvent`."""

    def decide(self, at_s: float) -> Document:
        """Decide which tasks start, move, stop and wait, and why."""

    def redo(self, decision: Document, at_s: float) -> None:
        """Repeat a decision of the log, so that the state is as it was after it."""

    def task(self, name: str) -> Document:
        """Return a `Place`; raise `UnknownTask`."""

    def placements(self) -> Document:
        """Return the `Places` of all running tasks."""

    def nodes_of(self, tasks: Sequence[str]) -> dict[str, str]:
        """The node (machine) of each of these tasks that runs."""

    def facts(self) -> dict[str, float]:
        """Return metrics for Prometheus, by name."""

    def save(self) -> bytes:
        """Return the whole state."""
