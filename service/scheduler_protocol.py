"""What a scheduler must do to be served."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

__all__ = ["Core", "Document", "RefusedEvent"]

Document = dict[str, Any]


class RefusedEvent(Exception):
    """An event that does not fit the state; nothing has changed."""


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

    def view(self) -> Any:
        """What readers may see, on any thread: a copy that nothing changes any more; has ``task(name)``."""

    def facts(self) -> dict[str, float]:
        """Figures for Prometheus, by name."""

    def save(self, path: Path) -> None:
        """Write the whole state, atomically."""
