"""Refuses request bodies that are too long, before they are in memory."""

from __future__ import annotations

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["BodyLimit"]


class _TooLong(Exception):
    pass


class BodyLimit:
    """ASGI middleware: answers 413 to a body longer than ``max_bytes``, declared or counted."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, counting its body."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > self._max_bytes:
            await self._refuse(scope, receive, send)
            return
        seen, started, too_long = 0, False, False

        async def counted() -> Message:
            nonlocal seen, too_long
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._max_bytes:
                too_long = True
                raise _TooLong
            return message

        async def watched(message: Message) -> None:
            nonlocal started
            if too_long and not started:
                return  # the application turned the exception into an answer of its own
            started = True
            if message["type"] == "http.response.start":  # values age; nothing between may keep them
                message = {**message, "headers": [*message["headers"], (b"cache-control", b"no-store")]}
            await send(message)

        try:
            await self._app(scope, counted, watched)
        except _TooLong:
            if started:
                raise
        if too_long and not started:
            await self._refuse(scope, receive, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        message = f"the request is longer than {self._max_bytes} bytes; send less at once"
        response = JSONResponse({"detail": {"reason": "too_long", "message": message}}, 413)
        await response(scope, receive, send)
