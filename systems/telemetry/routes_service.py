"""Routes about the service itself: health, metrics, tokens, and the page that documents them all."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel

from flowlex.systems.telemetry.access_rights import Admin, Anybody, Reader, ServiceDep, only_known_parameters
from flowlex.systems.telemetry.openapi_page import api_page
from flowlex.systems.telemetry.request_documents import Holder, TokenInfo, TokenRequest, TokenSecret
from flowlex.systems.telemetry.response_models import ERRORS, NOT_FOUND, Problem, known, refuse
from flowlex.systems.telemetry.tokens_and_rights import Role, new_token, rotated

health_router: APIRouter = APIRouter(
    tags=["service"], dependencies=[Depends(only_known_parameters)], responses={422: ERRORS[422]}
)
#: Routes of every service.
page_router: APIRouter = APIRouter(tags=["service"], dependencies=[Depends(only_known_parameters)])
router: APIRouter = APIRouter(
    prefix="/v1", tags=["service"], responses=ERRORS, dependencies=[Depends(only_known_parameters)]
)


class Health(BaseModel):
    """The service answers; for readiness, so does its database."""

    status: str
    api: int


@page_router.get("/healthz", responses={422: ERRORS[422]})
async def healthz() -> Health:
    """Say that the process answers; needs no token and no database."""
    return Health(status="ok", api=1)


@health_router.get("/readyz", responses={503: {"model": Problem}})
@health_router.get("/v1/health", responses={503: {"model": Problem}})
def readyz(service: ServiceDep) -> Health:
    """Say that the service takes requests: its database answers and takes writes; needs no token."""
    try:
        service.store.database.ping()
    except Exception as error:
        raise refuse(503, "database", "the database does not answer") from error
    if service.writer.failing:
        raise refuse(503, "database", "the last write failed: the database is locked, full or away")
    if service.writer.full:
        raise refuse(503, "busy", "too many writes wait")
    return Health(status="ok", api=1)


@health_router.get(
    "/metrics",
    response_class=Response,
    responses={**ERRORS, 200: {"content": {"text/plain": {}}, "description": "Prometheus text format"}},
)
def metrics(service: ServiceDep, who: Reader) -> Response:
    """The service's own figures, for Prometheus; needs a reader's token."""
    agents = service.roster.agents()
    alive = sum(map(service.roster.alive, agents))
    service.metrics.nodes.labels("alive").set(alive)
    service.metrics.nodes.labels("silent").set(len(agents) - alive)
    service.metrics.waiting.set(service.writer.waiting)
    service.metrics.clock.set(service.ahead_s)
    return Response(generate_latest(service.metrics.registry), media_type=CONTENT_TYPE_LATEST)


@page_router.get("/docs", include_in_schema=False)
def documentation(request: Request) -> HTMLResponse:
    """All routes on one page that loads nothing from elsewhere."""
    return HTMLResponse(api_page(request.app.openapi()))


@router.get("/whoami")
async def whoami(who: Anybody) -> Holder:
    """Say what the token that asks may do."""
    left = None if who.expires is None else who.expires - time.time()
    return Holder(role=who.role.value, node=who.node, ends_in_s=left, lasts_s=who.lasts)


@router.post("/tokens", status_code=201, responses={400: {"model": Problem}, 409: {"model": Problem}})
async def make_token(service: ServiceDep, who: Admin, wanted: TokenRequest) -> TokenSecret:
    """Make a token; its secret is in the answer and nowhere else."""
    fields = wanted.model_dump(exclude={"role"})
    try:
        token = await service.write(lambda: new_token(service.store, Role(wanted.role), **fields))
    except ValueError as error:
        raise refuse(409, "binding", str(error)) from error
    await run_in_threadpool(service.tokens.refresh, force=True)
    identity = service.tokens.identify(token)
    return TokenSecret(token=token, expires=identity.expires if identity else None)


@router.get("/tokens")
def list_tokens(service: ServiceDep, who: Admin) -> list[TokenInfo]:
    """List the tokens, without their secrets."""
    shown = (asdict(row) | {"digest": row.digest[:12]} for row in service.store.registry.tokens())
    return [TokenInfo(**{name: row[name] for name in TokenInfo.model_fields}) for row in shown]


@router.delete("/tokens/{digest}", responses=NOT_FOUND)
async def revoke_token(
    service: ServiceDep, who: Admin, digest: Annotated[str, Path(pattern="^[0-9a-f]{8,64}$")]
) -> dict[str, int]:
    """Revoke the tokens whose digest begins so; refused everywhere within two seconds."""
    removed = await service.write(lambda: service.store.registry.remove_token(digest))
    known(removed, f"no token's digest starts with {digest}")
    await run_in_threadpool(service.tokens.refresh, force=True)
    return {"removed": removed}


@router.post("/rotate", responses={409: {"model": Problem, "description": "Revoked"}})
async def rotate_token(service: ServiceDep, who: Anybody) -> TokenSecret:
    """Exchange the token that asks for one of the same rights and duration; the old one ends in ten minutes."""
    if not who.digest:
        raise refuse(409, "no_token", "this service runs without tokens; there is none to exchange")
    try:
        token, expires = await service.write(lambda: rotated(service.store, who.digest))
    except ValueError as error:
        raise refuse(409, "revoked", str(error)) from error
    await run_in_threadpool(service.tokens.refresh, force=True)
    return TokenSecret(token=token, expires=expires)
