"""Shared state of the routes: settings, store, clock, writer, tokens, and background work."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from flowlex.systems.telemetry.commit_thread import BusyError, Writer
from flowlex.systems.telemetry.known_nodes import Roster
from flowlex.systems.telemetry.prometheus_metrics import Metrics
from flowlex.systems.telemetry.request_limits import RateLimit
from flowlex.systems.telemetry.retention import ROLLUP_STEPS
from flowlex.systems.telemetry.service_clock import Clock
from flowlex.systems.telemetry.store import Store
from flowlex.systems.telemetry.stored_clock import MAX_SKEW_S
from flowlex.systems.telemetry.tokens_and_rights import TokenBook

_LOG = logging.getLogger(__name__)
T = TypeVar("T")
DAY_S = 86_400.0


@dataclass(frozen=True)
class Settings:
    """Settings of the service."""

    require_token: bool = True  # False: everybody has all rights; the command line allows this on loopback only
    alive_s: float = 30.0  # a node whose last heartbeat is older counts as gone
    # seconds for which histories are kept after arrival (None: for ever); last values are always kept
    retention_s: float | None = 7 * DAY_S
    # seconds for which minute and hour aggregates are kept
    rollup_retention_s: dict[str, float] = field(default_factory=lambda: {"minute": 30 * DAY_S, "hour": 730 * DAY_S})
    upkeep_s: float = 10.0  # seconds between rounds of aggregation and retention
    max_body_bytes: int = 4_000_000  # larger requests are refused unread
    max_pending_bytes: int = 128_000_000  # total length of bodies being read
    # requests of one token (or, without a valid one, of one address) per second, ten seconds' worth at once; None:
    # without limit
    requests_per_s: float | None = 500.0
    heavy_reads: int = 4  # reads of many values at the same time
    heavy_wait_s: float = 2.0  # seconds that such a read waits for its turn before it is refused


class Service:
    """Shared state of the routes."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self.store = store
        self.settings = settings
        self.metrics: Metrics = Metrics()
        self.clock: Clock = store.clock.start()
        self.tokens: TokenBook = TokenBook(store, self.clock)
        self.writer: Writer = Writer(store, self.clock, self.metrics)
        self.roster: Roster = Roster(store, self.clock, settings.alive_s)
        self.rate: RateLimit = RateLimit(settings.requests_per_s)
        self.heavy: asyncio.Semaphore = asyncio.Semaphore(settings.heavy_reads)
        #: Seconds by which the service's clock is ahead of the database's wall clock.
        self.ahead_s: float = 0.0

    @property
    def wall_s(self) -> float:
        """The database's wall clock, for comparison with time stamps of nodes."""
        return self.clock.now() - self.ahead_s

    async def write(self, function: Callable[[], T]) -> T:
        """Run a function that writes in the writer's thread."""
        return await asyncio.wrap_future(self.writer.call(function))

    async def remove_series(self, name: str | None, node: str) -> dict[str, int]:
        """Delete a series, or all of a node if there is no name, step by step; return the numbers of deleted rows."""
        removed = {"series": 0, "samples": 0}
        while True:
            series, samples = await self.write(lambda: self.store.upkeep.remove_some(name, node))
            if not series and not samples:
                return removed
            removed["series"] += series
            removed["samples"] += samples

    def close(self) -> None:
        """Commit waiting writes and store the clock."""
        self.writer.close()
        try:
            self.roster.flush()
            self.store.clock.keep(self.clock)
        except Exception as error:
            _LOG.error("the last heartbeats are not stored: %s", type(error).__name__)

    async def keep_roster(self, every_s: float = 1.0) -> None:
        """Store heartbeats and the clock, and read changes of other servers, in an endless loop."""
        warned = False
        while True:
            try:
                await self.write(self.roster.flush)
                await asyncio.to_thread(self.roster.refresh)
                self.ahead_s = await self.write(lambda: self.store.clock.keep(self.clock))
            except BusyError:
                pass  # the database may come back
            except Exception as error:
                _LOG.error("keeping the roster failed: %s", type(error).__name__)
            if abs(self.ahead_s) > MAX_SKEW_S and not warned:
                _LOG.warning("the wall clock was stepped by %.0f s; ages do not follow it", -self.ahead_s)
                warned = True
            await asyncio.sleep(every_s)

    async def keep_small(self) -> None:
        """Aggregate and delete old data, in an endless loop."""
        while True:
            try:
                await self._round_of_upkeep()
            except BusyError:
                pass
            except Exception as error:
                _LOG.error("upkeep failed: %s", type(error).__name__)
            await asyncio.sleep(self.settings.upkeep_s)

    async def _round_of_upkeep(self) -> None:
        now = self.clock.now()
        await self.in_steps(lambda: self.store.upkeep.roll_up(now - 5.0))
        removed = self.metrics.removed
        if self.settings.retention_s is not None:
            before = now - self.settings.retention_s
            gone = await self.in_steps(lambda: self.store.upkeep.forget_some(before))
            removed.labels("sample").inc(gone)
            if gone:
                await self.write(lambda: self.store.upkeep.forget_sources(before))
        for kind, seconds in self.settings.rollup_retention_s.items():
            old = int(now - seconds)
            step = ROLLUP_STEPS[kind]
            gone = await self.in_steps(lambda step=step, old=old: self.store.upkeep.forget_rollups(step, old))  # type: ignore[misc]
            removed.labels(kind).inc(gone)
        await self.in_steps(self.store.upkeep.give_back)

    async def in_steps(self, step: Callable[[], int | bool]) -> int:
        """Repeat a step until it has nothing to do, with pauses as long as the steps; return the sum of its results."""
        total = 0
        while True:
            started = time.monotonic()
            done = int(await self.write(step))
            total += done
            if not done:
                return total
            await asyncio.sleep(time.monotonic() - started)
