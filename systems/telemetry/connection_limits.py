"""Connection limits: deadlines for headers and bodies, numbers of connections per address and without a token.

A connection is known, not a stranger, once a request on it had a valid token (``request.state.known``). Known ones
are never closed in favour of strangers, so agents are served while others hold sockets open.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from uvicorn.config import HTTP_PROTOCOLS
from uvicorn.importer import import_from_string


@dataclass(frozen=True)
class ConnectionLimits:
    """Bounds on connections."""

    # seconds in which the headers of a request must arrive, from its first byte; for the first request, from the start
    # of the connection
    header_s: float = 5.0
    body_s: float = 15.0  # seconds in which its body must follow
    per_address: int = 256  # open connections of one address
    strangers: int = 512  # open connections without a valid token; one more closes the oldest of them


@dataclass
class Connections:
    """The open connections of a server; `protocol` is uvicorn's option ``http``."""

    limits: ConnectionLimits = field(default_factory=ConnectionLimits)
    # connections closed early, by reason: ``header``, ``body``, ``address``, ``strangers``
    closed: Counter[str] = field(default_factory=Counter)
    _by_address: Counter[str] = field(default_factory=Counter)
    _strangers: dict[Any, None] = field(default_factory=dict)  # in order of arrival

    @property
    def protocol(self) -> type[asyncio.Protocol]:
        """The protocol of each connection."""
        limits, base = self, import_from_string(HTTP_PROTOCOLS["auto"])

        class Connection(base):  # type: ignore[misc, valid-type]
            def connection_made(self, transport: asyncio.Transport) -> None:
                super().connection_made(transport)
                self.address = self.client[0] if self.client else ""
                self.deadline: asyncio.TimerHandle | None = None
                self.deadline_of = ""
                limits.opened(self)
                self.watch()

            def connection_lost(self, exc: Exception | None) -> None:
                self.stop_watching()
                limits.gone(self)
                super().connection_lost(exc)

            def data_received(self, data: bytes) -> None:
                super().data_received(data)
                self.watch()

            def on_response_complete(self) -> None:
                if self.scope["state"].get("known"):
                    limits.met(self)
                super().on_response_complete()

            def watch(self) -> None:
                """Start the deadline of the next part, unless it runs already."""
                cycle = self.cycle
                answered = cycle is None or cycle.response_complete
                part = "header" if answered else "body" if cycle.more_body else ""
                if part != self.deadline_of:
                    self.stop_watching()
                    if part:
                        seconds = limits.limits.header_s if part == "header" else limits.limits.body_s
                        self.deadline = self.loop.call_later(seconds, limits.close, self, part)
                        self.deadline_of = part

            def stop_watching(self) -> None:
                if self.deadline is not None:
                    self.deadline.cancel()
                self.deadline, self.deadline_of = None, ""

        return Connection

    def opened(self, connection: Any) -> None:
        """Count a connection; close it or the oldest stranger if there are too many."""
        self._by_address[connection.address] += 1
        self._strangers[connection] = None
        if self._by_address[connection.address] > self.limits.per_address:
            self.close(connection, "address")
        elif len(self._strangers) > self.limits.strangers:
            self.close(next(iter(self._strangers)), "strangers")

    def met(self, connection: Any) -> None:
        """Mark a connection as known after a request with a valid token."""
        self._strangers.pop(connection, None)

    def gone(self, connection: Any) -> None:
        """Remove a closed connection."""
        self._strangers.pop(connection, None)
        self._by_address[connection.address] -= 1
        if not self._by_address[connection.address]:
            del self._by_address[connection.address]

    def close(self, connection: Any, reason: str) -> None:
        """Close a connection at once."""
        self.closed[reason] += 1
        self._strangers.pop(connection, None)
        connection.transport.abort()
