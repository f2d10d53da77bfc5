"""The protocol of a scheduler that can be served."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pydantic import BaseModel

__all__ = ["Core", "Document", "NoReaderError", "RefusedEvent", "SlowAnswer", "UnknownTask", "replay"]

Document = dict[str, Any]


class RefusedEvent(Exception):
    """An event that does not fit the state; nothing has changed."""


class UnknownTask(Exception):
    """No task has the name."""


class NoReaderError(Exception):
    """The process that answers questions failed or has ended; the next question starts another one."""


class SlowAnswer(NamedTuple):
    """An answer that takes seconds to find, on another thread, and what to say while another one is being found."""

    find: Callable[[], BaseModel]
    otherwise: BaseModel


class Core(Protocol):
    """State that changes by events and decisions, one after the other; time is passed in, never read."""

    @property
    def pending(self) -> int:
        """Events since the last decision."""

    @property
    def now_s(self) -> float:
        """Time of the last change."""

    def take(self, event: Document, at_s: float) -> None:
        """Take an event whole, or raise `RefusedEvent`."""

    def decide(self, at_s: float) -> Document:
        """Decide: what starts, moves, stops and waits, and why."""

    def redo(self, decision: Document, at_s: float) -> None:
        """Make a decision of the log again, so that the state is as it was after it."""

    def settle(self) -> Document | None:
        """Call once all of a log is taken: what readers must know where decisions made again were others."""

    def task(self, name: str) -> BaseModel:
        """Where a task is, or why it waits; raises KeyError."""

    def placements(self) -> BaseModel:
        """All tasks that run, with their places."""

    def nodes_of(self, tasks: Sequence[str]) -> dict[str, str]:
        """The node (machine) of each of these tasks that runs."""

    def facts(self) -> dict[str, float]:
        """Figures for Prometheus, by name."""

    def save(self, path: Path) -> None:
        """Write the whole state, atomically."""


def replay(core: Core, record: Document) -> None:
    """Let a core take a record of the log: its events, or its decision once more."""
    if "decided" in record:
        core.redo(record["decided"], record["at_s"])
    for event in record.get("events", ()):
        core.take(event, record["at_s"])
