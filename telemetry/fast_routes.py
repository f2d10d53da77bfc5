"""Fast routes for the two most frequent requests: write the samples of a node, read one last value.

FastAPI resolves the dependencies of a route for every request. This middleware answers valid requests of the common
form itself: a read takes 0.27 ms of processor time instead of 0.47, a write of 20 samples 2.4 ms instead of 2.8 (test
client included). All other requests (unusual, invalid, not permitted) go on to the FastAPI routes, which alone
document, validate and refuse.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi.concurrency import run_in_threadpool
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from flowlex.telemetry.answers import Ages
from flowlex.telemetry.schemas import NAME, WriteBatch
from flowlex.telemetry.security import Identity, Role
from flowlex.telemetry.service import Service

__all__ = ["FastRoutes"]

_ONE = re.compile(rf"/v1/data/({NAME})/({NAME})")
_MAX_AGE = re.compile(rb"(?:max_age=([0-9]{1,9}(?:\.[0-9]{1,6})?))?")


@dataclass(frozen=True)
class _Named:
    """The path that metrics report for a route."""

    path: str


_WRITE, _READ = _Named("/v1/data"), _Named("/v1/data/{name}/{node}")


class FastRoutes:
    """ASGI middleware around the application; ``handlers`` are the application's exception handlers."""

    def __init__(self, app: ASGIApp, service: Service, handlers: Mapping[type[Exception], Callable[..., Any]]) -> None:
        self._app = app
        self._service = service
        self._handlers = handlers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a plain request, or pass it on."""
        answer: Response | None = None
        if scope["type"] == "http":
            request = Request(scope, receive)
            try:
                if scope["method"] == "POST" and scope["path"] == "/v1/data":
                    answer, receive = await self._write(request, receive)
                elif scope["method"] == "GET" and (found := _ONE.fullmatch(scope["path"])):
                    answer = await self._read(request, *found.groups())
            except tuple(self._handlers) as error:
                kind = next(kind for kind in self._handlers if isinstance(error, kind))
                answer = await self._handlers[kind](request, error)
        await (answer or self._app)(scope, receive, send)

    async def _write(self, request: Request, receive: Receive) -> tuple[Response | None, Receive]:
        """Store the samples of a valid batch; for other requests return no answer, and a way to read the body again."""
        if request.headers.get("content-type") != "application/json" or request.scope["query_string"]:
            return None, receive
        body = await request.body()
        again = _again(body, receive)
        try:
            batch = WriteBatch.model_validate_json(body)
        except ValidationError:
            return None, again
        who = await self._permitted(request, Role.AGENT)
        if who is None or not who.may_act_for(batch.node):
            return None, again
        request.scope["route"] = _WRITE
        stored = await asyncio.wrap_future(self._service.writer.submit(batch, len(body)))
        count = len(batch.samples)
        text = f'{{"accepted":{count},"stored":{stored},"known":{count - stored}}}'
        return Response(text, media_type="application/json"), again

    async def _read(self, request: Request, name: str, node: str) -> Response | None:
        """Answer with one last value; return None if there is none, if it is stale, and for other queries."""
        asked = _MAX_AGE.fullmatch(request.scope["query_string"])
        if asked is None or await self._permitted(request, Role.READER, Role.ADMIN) is None:
            return None
        request.scope["route"] = _READ
        row = await self._service.single_value.latest(name, node)
        if row is None or row.value is None:
            return None
        ages = Ages(self._service.clock, float(asked[1]) if asked[1] else None)
        return None if ages.of(row)[2] else Response(ages.text(row), media_type="application/json")

    async def _permitted(self, request: Request, *roles: Role) -> Identity | None:
        """The identity of the client, counted against its rate; None if FastAPI's routes must decide."""
        service = self._service
        address = request.client.host if request.client else "unknown"
        if not service.settings.require_token:
            return None if service.rate.take(address) else Identity(roles[0])
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            return None
        if not service.tokens.fresh:
            await run_in_threadpool(service.tokens.refresh)
        who = service.tokens.identify(token)
        if who is None or who.role not in roles or service.rate.take(who.digest):
            return None
        request.state.known = True  # see `connections`
        return who


def _again(body: bytes, receive: Receive) -> Receive:
    """A `receive` that returns the body again, then the messages that follow."""
    body_left = [body]

    async def read() -> Message:
        return {"type": "http.request", "body": body_left.pop(), "more_body": False} if body_left else await receive()

    return read
