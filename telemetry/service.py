"""What the routes share: settings, store, writer, tokens, and the plan of who runs what."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from dataclasses import dataclass

from flowlex.telemetry.assignments import assign, assignments_of
from flowlex.telemetry.schemas import Assignments, Registration
from flowlex.telemetry.security import TokenBook
from flowlex.telemetry.store import AgentRow, Store
from flowlex.telemetry.writer import Writer

__all__ = ["Service", "Settings"]

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Settings:
    """How the service behaves.

    Parameters
    ----------
    require_token
        False lets everybody do everything; the command line allows that on loopback only.
    alive_s
        A node whose last heartbeat is older counts as gone.
    retention_s
        Histories are kept so long (None: for ever); last values are always kept.
    max_body_bytes
        Larger requests are refused unread.
    """

    require_token: bool = True
    alive_s: float = 30.0
    retention_s: float | None = 7 * 86_400.0
    max_body_bytes: int = 4_000_000


class Service:
    """What the routes share: the store, the writer, the tokens, and who runs what."""

    #: Assignments are computed again when they are older than this, in seconds.
    PLAN_S = 1.0

    def __init__(self, store: Store, settings: Settings) -> None:
        self.store = store
        self.settings = settings
        self.tokens: TokenBook = TokenBook(store)
        self.writer: Writer = Writer(store)
        self._lock = threading.Lock()
        self._plan: dict[str, list[Registration]] = {}
        self._planned_at = float("-inf")

    def alive(self, agent: AgentRow, now: float) -> bool:
        """Say whether a node's last heartbeat is recent."""
        return now - agent.last_seen <= self.settings.alive_s

    def plan(self) -> dict[str, list[Registration]]:
        """Return for each living node what it should run."""
        with self._lock:
            if time.monotonic() - self._planned_at > self.PLAN_S:
                now = time.time()
                agents = [agent for agent in self.store.agents() if self.alive(agent, now)]
                self._plan = assign(self.store.registrations(), agents)
                self._planned_at = time.monotonic()
            return self._plan

    def plan_changed(self) -> None:
        """Have the next question computed anew."""
        with self._lock:
            self._planned_at = float("-inf")

    def work_of(self, node: str) -> Assignments:
        """Return what one node should run."""
        return assignments_of(self.plan().get(node, []))

    async def keep_retention(self, every_s: float = 60.0) -> None:
        """Drop old history now and then, for ever."""
        while self.settings.retention_s is not None:
            try:
                before = time.time() - self.settings.retention_s
                await asyncio.to_thread(self.store.forget_before, before)
            except Exception as error:  # the database may come back
                _LOG.error("retention failed: %s", type(error).__name__)
            await asyncio.sleep(every_s)
