"""FastAPI dependencies: the shared service, and the client's identity, rights and request rate."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from flowlex.systems.telemetry.response_models import refuse
from flowlex.systems.telemetry.service_context import Service
from flowlex.systems.telemetry.tokens_and_rights import Identity, Role

_BEARER = HTTPBearer(auto_error=False, description="A token made by `flowlex telemetry token create`.")


async def service_of(request: Request) -> Service:
    """Return the application's service."""
    service: Service = request.app.state.service
    return service


ServiceDep = Annotated[Service, Depends(service_of)]


async def only_known_parameters(request: Request) -> None:
    """Raise 422 on a query parameter that the route does not have: it would be ignored otherwise."""
    known = {field.alias for field in request.scope["route"].dependant.query_params}
    unknown = sorted(request.query_params.keys() - known)
    if unknown:
        said = f"there is no query parameter {unknown[0][:100]!r}; known: {', '.join(sorted(known)) or 'none'}"
        raise refuse(422, "unknown_parameter", said)


async def admit(service: Service, token: str | None, address: str) -> Identity | None:
    """Count a request and return its holder, None where tokens are not required.

    Raises `HTTPException`: too many requests, or no valid token.
    """
    identity = None
    if service.settings.require_token and token is not None:
        if not service.tokens.fresh:
            await run_in_threadpool(service.tokens.refresh)
        identity = service.tokens.identify(token)
    wait = service.rate.take(identity.digest if identity else address)
    if wait:
        service.metrics.refused.labels("rate").inc()
        raise refuse(429, "too_often", f"come again in {wait:.1f} s", wait_s=wait)
    if identity is None and service.settings.require_token:
        service.metrics.refused.labels("token").inc()
        raise refuse(401, "no_token", "give a valid token: Authorization: Bearer TOKEN")
    return identity


class TokenFirst:
    """ASGI middleware: reads the body of a request only after its token and its rate are checked.

    The framework reads and parses bodies before it asks who sent them, so strangers could occupy the service.
    """

    def __init__(self, app: ASGIApp, service: Any) -> None:
        self._app, self._service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it unread and close the connection."""
        headers = dict(scope["headers"]) if scope["type"] == "http" else {}
        if headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers:
            kind, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
            address = scope["client"][0] if scope.get("client") else "unknown"
            try:
                holder = await admit(self._service, token if kind.lower() == "bearer" else None, address)
            except HTTPException as error:
                headers_out = {**(error.headers or {}), "connection": "close"}
                await JSONResponse({"detail": error.detail}, error.status_code, headers_out)(scope, receive, send)
                return
            scope.setdefault("state", {})["identity"] = holder
        await self._app(scope, receive, send)


def require(*roles: Role) -> Callable[..., Awaitable[Identity]]:
    """Return the dependency that admits these roles."""

    # Asynchronous, to avoid a change of thread; only re-reading the tokens needs one.
    async def identify(
        request: Request,
        service: ServiceDep,
        credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)],
    ) -> Identity:
        if not hasattr(request.state, "identity"):  # no body, which `TokenFirst` has not seen
            token = None if credentials is None else credentials.credentials
            request.state.identity = await admit(service, token, request.client.host if request.client else "unknown")
        identity: Identity = request.state.identity or Identity(Role.AGENT if Role.AGENT in roles else Role.ADMIN)
        request.state.known = True  # see `connection_limits`
        if identity.role not in roles:
            raise refuse(403, "no_right", f"a token of role {identity.role.value} may not do this")
        return identity

    return identify


Admin = Annotated[Identity, Depends(require(Role.ADMIN))]
Agent = Annotated[Identity, Depends(require(Role.AGENT))]
Reader = Annotated[Identity, Depends(require(Role.READER, Role.ADMIN))]
Anybody = Annotated[Identity, Depends(require(*Role))]


def refuse_other_node(identity: Identity, node: str) -> None:
    """Raise 403 when an agent's token is bound to another node."""
    if not identity.may_act_for(node):
        raise refuse(403, "other_node", f"this token may not act for node {node}")
