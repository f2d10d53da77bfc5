"""The short way of the two requests that come most often: a node's samples, and one last value.

FastAPI resolves what a route depends on anew for every request, which costs more than storing twenty samples. Here a
request of the plain form is answered at once; whatever is unusual in it, wrong or not permitted goes the long way with
its body, so that there is one place that documents, checks and refuses.
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

__all__ = ["ShortWay"]

_ONE = re.compile(rf"/v1/data/({NAME})/({NAME})")
_MAX_AGE = re.compile(rb"(?:max_age=([0-9]{1,9}(?:\.[0-9]{1,6})?))?")


@dataclass(frozen=True)
class _Named:
    """What the figures call a route."""

    path: str


_WRITE, _READ = _Named("/v1/data"), _Named("/v1/data/{name}/{node}")


class ShortWay:
    """ASGI middleware around the application; ``handlers`` answer errors, as they do on the long way."""

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
        """Store samples; no answer, and a way to read the body again, for anything but a valid batch."""
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
        """One last value; no answer where there is none, where it is stale, and for other questions."""
        asked = _MAX_AGE.fullmatch(request.scope["query_string"])
        if asked is None or await self._permitted(request, Role.READER, Role.ADMIN) is None:
            return None
        request.scope["route"] = _READ
        row = await self._service.single.latest(name, node)
        if row is None or row.value is None:
            return None
        ages = Ages(self._service.clock, float(asked[1]) if asked[1] else None)
        return None if ages.of(row)[2] else Response(ages.text(row), media_type="application/json")

    async def _permitted(self, request: Request, *roles: Role) -> Identity | None:
        """Who asks, one request of its rate taken; None for whoever the long way must look at."""
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
        return None if who is None or who.role not in roles or service.rate.take(who.digest) else who


def _again(body: bytes, receive: Receive) -> Receive:
    """The body once more, then what else comes."""
    kept = [body]

    async def read() -> Message:
        return {"type": "http.request", "body": kept.pop(), "more_body": False} if kept else await receive()

    return read
