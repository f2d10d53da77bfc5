"""A standby: follows another service's log into a folder of its own, and takes over when it is told to.

The folder is a copy, byte for byte; taking over is an ordinary start on it. The other service answers its clients only
once the copy has what was acknowledged (`flowlex.service.replication`), so a takeover loses nothing.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from flowlex.instances.storage import write_atomically
from flowlex.service.journal import Journal
from flowlex.service.metrics import Metrics
from flowlex.service.replica_routes import Piece, Settings
from flowlex.telemetry.app import HANDLERS
from flowlex.telemetry.client import Backoff, Refused, TelemetryClient, Unreachable
from flowlex.telemetry.request_limits import HostLimit, RateLimit
from flowlex.telemetry.rights import Admin
from flowlex.telemetry.security import TokenBook
from flowlex.telemetry.service import Settings as Limits
from flowlex.telemetry.store import Store

__all__ = ["Follower", "standby_app"]

_LOG = logging.getLogger(__name__)
_WAIT_S = 1.0


class Follower:
    """Copies the folder of a service, and goes on copying its log.

    Parameters
    ----------
    folder
        Of the copy; an earlier copy of the same service goes on.
    client
        With an admin's token of the service that is followed.
    """

    def __init__(self, folder: Path, client: TelemetryClient) -> None:
        self.folder, self.client = folder, client
        self._journal = Journal(folder)  # nobody else may use the folder meanwhile
        self.heard = time.monotonic()
        self._stop = threading.Event()
        self._retired = False
        settings = Settings.model_validate(client.call("GET", "/replica/settings"))
        own = folder / "service.json"
        if own.is_file() and own.read_text() != settings.service:
            self._journal.close()
            raise ValueError(f"{folder} holds another service than {client.url}; name another folder")
        write_atomically(folder / "tokens.db", base64.b64decode(settings.tokens))
        write_atomically(own, settings.service.encode())
        first = Piece.model_validate(client.call("GET", "/replica/log", params={"number": 0, "offset": 0}))
        self._number = max(first.first_log, *self._journal.numbers("log-"), 0)
        self._keep(first)
        self._thread = threading.Thread(target=self._run, name="standby", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        waits = Backoff(0.05, 1.0)
        while not self._stop.is_set():
            try:
                caught_up = self._poll(0.0 if self._retired else _WAIT_S)
            except (Unreachable, Refused, OSError) as error:
                _LOG.warning("not following: %s", error)
                self._stop.wait(waits.next())
                continue
            waits.reset()
            self.heard = time.monotonic()
            if self._retired and caught_up:
                return

    def _poll(self, wait_s: float) -> bool:
        """Fetch what follows; whether there was nothing."""
        path = self._journal.path("log-", self._number)
        offset = path.stat().st_size if path.is_file() else 0
        asked = {"number": self._number, "offset": offset, "wait_s": wait_s}
        piece = Piece.model_validate(self.client.call("GET", "/replica/log", params=asked))
        with path.open("ab") as stream:
            stream.write(piece.data.encode("ascii"))
            stream.flush()
            os.fsync(stream.fileno())
        if piece.closed:
            self._number += 1
        self._number = max(self._number, piece.first_log)  # the service has dropped what this one was silent for
        self._keep(piece)
        return not (piece.data or piece.closed)

    def _keep(self, piece: Piece) -> None:
        """Fetch new states, and drop the files that the service has dropped."""
        for number in piece.states:
            path = self._journal.path("state-", number)
            if not path.is_file():
                with contextlib.suppress(Refused):  # gone meanwhile
                    found = self.client.call("GET", "/replica/state", params={"number": number})
                    write_atomically(path, base64.b64decode(found["data"]))
        for kind, kept in (("state-", min(piece.states, default=0)), ("log-", piece.first_log)):
            for number in self._journal.numbers(kind):
                if number < kept:
                    self._journal.path(kind, number).unlink(missing_ok=True)

    def finish(self) -> None:
        """Ask the service to hand over, copy the rest, and let the folder go.

        A service that does not answer is taken to be gone: it acknowledged nothing that is not here, unless this
        standby was silent for longer than its lease.
        """
        try:
            self.client.call("POST", "/replica/retire")
            self._retired = True
            self._thread.join(30)
        except (Unreachable, Refused) as error:
            _LOG.warning("taking over without the other service: %s (last heard %.1f s ago)", error, self.silent_s)
        self.close()

    @property
    def silent_s(self) -> float:
        """Seconds since the service was heard."""
        return time.monotonic() - self.heard

    def close(self) -> None:
        """Stop following."""
        self._stop.set()
        self._thread.join()
        self._journal.close()
        self.client.close()


class _Service:
    """What the dependency of tokens needs."""

    def __init__(self, store: Store, settings: Limits) -> None:
        self.settings, self.tokens, self.metrics = settings, TokenBook(store), Metrics()
        self.rate = RateLimit(settings.requests_per_s)


def standby_app(follower: Follower, store: Store, settings: Limits, take_over: Callable[[], FastAPI]) -> ASGIApp:
    """Serve ``POST /v1/promote`` and refuse all else, until that is asked; then what ``take_over`` makes."""
    promoted: list[FastAPI] = []
    stack, turn = contextlib.AsyncExitStack(), asyncio.Lock()

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with stack:
            yield
            if not promoted:
                await asyncio.to_thread(follower.close)

    app = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.state.service = _Service(store, settings)
    for kind, handler in HANDLERS.items():
        app.add_exception_handler(kind, handler)

    @app.post("/v1/promote")
    async def promote(who: Admin) -> dict[str, str]:
        """Take over."""
        async with turn:
            if not promoted:
                await asyncio.to_thread(follower.finish)
                made = await asyncio.to_thread(take_over)
                await stack.enter_async_context(made.router.lifespan_context(made))
                promoted.append(made)
        return {"status": "serving"}

    @app.get("/healthz")
    async def healthz() -> dict[str, str | float]:
        """Say that the process answers."""
        return {"status": "standby", "silent_s": follower.silent_s}

    @app.api_route("/{path:path}", methods=["GET", "POST", "PUT", "DELETE"])
    async def other(request: Request, path: str) -> JSONResponse:
        """Refuse."""
        detail = {"reason": "standby", "message": f"this is a standby of {follower.client.url}; ask that one"}
        return JSONResponse({"detail": detail}, 503)

    if not settings.require_token:
        app.add_middleware(HostLimit)

    async def either(scope: Scope, receive: Receive, send: Send) -> None:
        chosen = promoted[0] if promoted and scope["type"] == "http" else app
        await chosen(scope, receive, send)

    return either
