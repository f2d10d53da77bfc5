"""FastAPI dependencies: the shared service, and who is asking with which rights."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from flowlex.telemetry.answers import refuse
from flowlex.telemetry.security import Identity, Role
from flowlex.telemetry.service import Service

__all__ = ["Admin", "Agent", "Reader", "ServiceDep", "refuse_other_node"]

_BEARER = HTTPBearer(auto_error=False, description="A token made by `flowlex telemetry token create`.")


async def service_of(request: Request) -> Service:
    """Return the application's service."""
    service: Service = request.app.state.service
    return service


ServiceDep = Annotated[Service, Depends(service_of)]


def _require(*roles: Role) -> Callable[..., Awaitable[Identity]]:
    # Asynchronous, so that it costs no change of thread; only reading the tokens anew does.
    async def identify(
        service: ServiceDep, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)]
    ) -> Identity:
        if not service.settings.require_token:
            return Identity(Role.ADMIN)
        identity = None
        if credentials is not None:
            if not service.tokens.fresh:
                await run_in_threadpool(service.tokens.refresh)
            identity = service.tokens.identify(credentials.credentials)
        if identity is None:
            raise refuse(401, "no_token", "give a valid token: Authorization: Bearer TOKEN")
        if identity.role is not Role.ADMIN and identity.role not in roles:
            raise refuse(403, "no_right", f"a token of role {identity.role.value} may not do this")
        return identity

    return identify


Admin = Annotated[Identity, Depends(_require())]
Agent = Annotated[Identity, Depends(_require(Role.AGENT))]
Reader = Annotated[Identity, Depends(_require(Role.READER))]


def refuse_other_node(identity: Identity, node: str) -> None:
    """Raise 403 when an agent's token is bound to another node."""
    if not identity.may_act_for(node):
        raise refuse(403, "other_node", f"this token may not act for node {node}")
