"""The protocol of a scheduler that can be served."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from pydantic import BaseModel

Document = dict[str, Any]


class RefusedEvent(Exception):
    """An event that does not fit the state; nothing has changed."""


class UnknownTask(Exception):
    """No task has this name."""


class SlowAnswer(NamedTuple):
    """An answer to compute on another thread, and the answer to give while another one is being computed."""

    find: Callable[[], BaseModel]
    otherwise: BaseModel


class Core(Protocol):
    """State that changes by events and decisions in sequence; time is passed in, never read."""

    @property
    def pending(self) -> int:
        """Events since the last decision."""

    @property
    def now_s(self) -> float:
        """Time of the last change."""

    def take(self, event: Document, at_s: float) -> None:
        """Apply an event completely, or raise `RefusedEvent`."""

    def decide(self, at_s: float) -> Document:
        """Decide which tasks start, move, stop and wait, and why."""

    def redo(self, decision: Document, at_s: float) -> None:
        """Repeat a decision of the log, so that the state is as it was after it."""

    def task(self, name: str) -> BaseModel:
        """Return where a task runs, or why it waits; raise KeyError if it is unknown."""

    def placements(self) -> BaseModel:
        """Return all running tasks with their places."""

    def nodes_of(self, tasks: Sequence[str]) -> dict[str, str]:
        """The node (machine) of each of these tasks that runs."""

    def facts(self) -> dict[str, float]:
        """Return metrics for Prometheus, by name."""

    def save(self) -> bytes:
        """Return the whole state."""


def replay(core: Core, record: Document) -> None:
    """Apply a record of the log to a core: its events, or its decision."""
    if "decided" in record:
        core.redo(record["decided"], record["at_s"])
    for event in record.get("events", ()):
        core.take(event, record["at_s"])
