"""Limits of one client (length of bodies, number of requests), and measurement of response times."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from flowlex.systems.telemetry.prometheus_metrics import HttpMetrics


class RateLimit:
    """Token buckets by key: ``rate`` requests per second, ten seconds' worth at once."""

    MOST_KEYS = 10_000

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str) -> float:
        """Count one request; return 0 if it is allowed, else the seconds to wait."""
        if self._rate is None:
            return 0.0
        now, burst = time.monotonic(), max(1.0, 10 * self._rate)
        left, at = self._buckets.pop(key, (burst, now))
        left = min(burst, left + (now - at) * self._rate)
        wait = 0.0 if left >= 1 else (1 - left) / self._rate
        self._buckets[key] = (left - 1 if left >= 1 else left, now)
        if len(self._buckets) > self.MOST_KEYS:
            self._buckets.popitem(last=False)
        return wait


class _TooLong(Exception):
    pass


class BodyLimit:
    """ASGI middleware: answers 413 to a body longer than ``max_bytes``, declared or counted.

    Bodies of all requests together may be ``max_pending`` long; a request beyond that is answered 503.
    """

    def __init__(self, app: ASGIApp, max_bytes: int, max_pending: int) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._max_pending = max_pending
        self._pending = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, counting its body."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > self._max_bytes:
            await self._refuse(scope, receive, send)
            return
        if self._pending > self._max_pending:
            message = "too many requests are being read; come again in a second"
            await _answer(503, "busy", message)(scope, receive, send)
            return
        seen, started, too_long = 0, False, False

        async def counted() -> Message:
            nonlocal seen, too_long
            message = await receive()
            length = len(message.get("body", b""))
            seen += length
            self._pending += length
            if seen > self._max_bytes:
                too_long = True
                raise _TooLong
            return message

        async def watched(message: Message) -> None:
            nonlocal started
            if too_long and not started:
                return  # the application converted the exception to its own response
            started = True
            if message["type"] == "http.response.start":  # values age, so no proxy may cache them
                message = {**message, "headers": [*message["headers"], (b"cache-control", b"no-store")]}
            await send(message)

        try:
            await self._app(scope, counted, watched)
        except _TooLong:
            if started:
                raise
        finally:
            self._pending -= seen
        if too_long and not started:
            await self._refuse(scope, receive, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        message = f"the request is longer than {self._max_bytes} bytes; send less at once"
        await _answer(413, "too_long", message)(scope, receive, send)


class HostLimit:
    """ASGI middleware: answers 400 to a host name that is not this machine's, 403 to pages of other origins.

    Without tokens, a web page could reach the service by a host name that resolves to 127.0.0.1, or by a form.
    """

    ALLOWED = ("127.0.0.1", "localhost", "[::1]")

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a request whose host is this machine."""
        if scope["type"] == "http":
            headers, served = dict(scope["headers"]), f"without tokens only {', '.join(self.ALLOWED)} are served"
            if _host(headers.get(b"host", b"")) not in self.ALLOWED:
                await _answer(400, "host", served)(scope, receive, send)
                return
            origin = headers.get(b"origin")
            if origin is not None and _host(origin.partition(b"://")[2]) not in self.ALLOWED:
                await _answer(403, "origin", f"{served}, and no pages of other origins")(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _host(place: bytes) -> str:
    """The host of ``host:port``."""
    name = place.decode("latin-1")
    return name[: name.find("]") + 1] if name.startswith("[") else name.partition(":")[0]


class Observed:
    """ASGI middleware: counts and times answers by their route."""

    def __init__(self, app: ASGIApp, metrics: HttpMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on and record status and time of its response."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.monotonic()

        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                # The template, not the path: each node name would create a metric.
                route = getattr(scope.get("route"), "path", "other")
                known = scope["method"] in ("GET", "POST", "PUT", "DELETE", "HEAD")
                method = scope["method"] if known else "other"
                self._metrics.requests.labels(route, method, str(message["status"])).inc()
                self._metrics.latency.labels(route).observe(time.monotonic() - began)
            await send(message)

        await self._app(scope, receive, noted)


def _answer(status: int, reason: str, message: str) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    headers = {"Retry-After": "1"} if status == 503 else None
    return JSONResponse({"detail": {"reason": reason, "message": message}}, status, headers)
