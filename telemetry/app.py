"""The REST interface, version 1; its OpenAPI page is at ``/docs``."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.routing import compile_path

from flowlex.telemetry import routes_data, routes_manage
from flowlex.telemetry.limits import BodyLimit
from flowlex.telemetry.service import Service, Settings
from flowlex.telemetry.store import Store

__all__ = ["create_app"]


def create_app(store: Store, settings: Settings | None = None) -> FastAPI:
    """Build the application over a store; closing the application commits what waits.

    Parameters
    ----------
    store
        Where everything is kept; stays open, the caller closes it.
    settings
        Defaults demand tokens.
    """
    settings = settings or Settings()
    service = Service(store, settings)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        retention = asyncio.create_task(service.keep_retention())
        yield
        retention.cancel()
        await asyncio.to_thread(service.writer.close)

    app = FastAPI(
        title="flowlex node information service",
        version="1",
        summary="Last values, histories and the collectors that make them.",
        lifespan=lifespan,
    )
    app.state.service = service
    app.include_router(routes_manage.router)
    app.include_router(routes_data.router)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _refused)
    app.add_middleware(BodyLimit, max_bytes=settings.max_body_bytes)
    if not settings.require_token:
        # Without tokens a web page could reach the service through a name that it points at 127.0.0.1.
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost", "testserver"])
    return app


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    """Say what is wrong with a request without repeating its content, which may be secret or not text."""
    assert isinstance(error, RequestValidationError)
    detail = [
        {"loc": [_plain(step) for step in problem["loc"]], "msg": _plain(problem["msg"]), "type": problem["type"]}
        for problem in error.errors()[:20]
    ]
    return JSONResponse({"detail": detail}, 422)


async def _refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    detail = error.detail if isinstance(error.detail, dict) else {"reason": "refused", "message": error.detail}
    headers = dict(error.headers or {})
    if error.status_code == 405:  # the framework names the first route's methods only
        headers["allow"] = ", ".join(_methods(request))
    return JSONResponse({"detail": detail}, error.status_code, headers=headers)


def _methods(request: Request) -> list[str]:
    paths = request.app.openapi()["paths"]
    fitting = (verbs for path, verbs in paths.items() if compile_path(path)[0].match(request.url.path))
    return sorted({verb.upper() for verbs in fitting for verb in verbs})


def _plain(step: Any) -> Any:
    return step if isinstance(step, int) else str(step).encode("utf-8", "backslashreplace").decode()
