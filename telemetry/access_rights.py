"""FastAPI dependencies: the shared service, and the client's identity, rights and request rate."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from flowlex.telemetry.response_models import refuse
from flowlex.telemetry.service_context import Service
from flowlex.telemetry.tokens_and_rights import Identity, Role

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


def require(*roles: Role) -> Callable[..., Awaitable[Identity]]:
    """Return the dependency that admits these roles."""

    # Asynchronous, to avoid a change of thread; only re-reading the tokens needs one.
    async def identify(
        request: Request,
        service: ServiceDep,
        credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)],
    ) -> Identity:
        identity = None
        if not service.settings.require_token:
            identity = Identity(Role.AGENT if Role.AGENT in roles else Role.ADMIN)
        elif credentials is not None:
            if not service.tokens.fresh:
                await run_in_threadpool(service.tokens.refresh)
            identity = service.tokens.identify(credentials.credentials)
        address = request.client.host if request.client else "unknown"
        wait = service.rate.take(identity.digest if identity and identity.digest else address)
        if wait:
            service.metrics.refused.labels("rate").inc()
            raise refuse(429, "too_often", f"come again in {wait:.1f} s", wait_s=wait)
        if identity is None:
            service.metrics.refused.labels("token").inc()
            raise refuse(401, "no_token", "give a valid token: Authorization: Bearer TOKEN")
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
