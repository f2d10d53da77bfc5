"""A standby, which copies the log of another service to its own folder and takes over on request.

The folder is a byte-for-byte copy; taking over is an ordinary start on it. The other service answers its clients only
once the copy has their records (`flowlex.service.replication`). A takeover therefore loses nothing, even if the other
service was only paused, because it acknowledges nothing without this standby.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import os
import shutil
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from flowlex.instances.file_storage import write_atomically
from flowlex.service.prometheus_metrics import Metrics
from flowlex.service.replication_routes import End, LogChunk, Settings
from flowlex.service.write_ahead_log import Journal, Position
from flowlex.telemetry.access_rights import Admin
from flowlex.telemetry.http_client import Backoff, Refused, TelemetryClient, Unreachable
from flowlex.telemetry.request_limits import RateLimit
from flowlex.telemetry.response_models import refuse
from flowlex.telemetry.rest_app import HANDLERS, equip
from flowlex.telemetry.service_context import Settings as Limits
from flowlex.telemetry.store import Store
from flowlex.telemetry.tokens_and_rights import TokenBook

_LOG = logging.getLogger(__name__)
_WAIT_S = 1.0


class NotComplete(Exception):
    """The copy lacks records that may have been acknowledged."""


class Follower:
    """Copies the folder of a service, and continues to copy its log.

    ``folder``: folder of the copy. Files of an earlier copy of the same service are moved to ``replaced``. ``client``:
    client of the followed service, with an admin's token. ``complete``: whether all acknowledged records are here. Once
    True, it stays so: the service waits for this standby.
    """

    def __init__(self, folder: Path, client: TelemetryClient) -> None:
        self.folder, self.client = folder, client
        self._journal = Journal(folder)  # locks the folder
        self.contact = time.monotonic()
        self.complete = False
        self._stop = threading.Event()
        self._end: Position | None = None  # of the log of a service that has retired
        try:
            self._begin()
            self._number = 0
            self._poll(0.0)
        except BaseException:
            self._journal.close()
            raise
        self._thread = threading.Thread(target=self._run, name="standby", daemon=True)
        self._thread.start()

    def _begin(self) -> None:
        """Copy settings and tokens, and clear the folder for the copy."""
        settings = Settings.model_validate(self.client.call("GET", "/replica/settings"))
        own = self.folder / "service.json"
        if own.is_file() and own.read_text() != settings.service:
            raise ValueError(f"{self.folder} holds another service than {self.client.url}; name another folder")
        name = self.folder / "standby-name"
        if not name.is_file():
            write_atomically(name, uuid.uuid4().hex.encode())
        self._name = name.read_text()
        # The folder may have been the leader's; its log may end with records that were never acknowledged.
        old = [path for kind in ("log-", "state-") for path in self.folder.glob(f"{kind}*")]
        if old:
            replaced = self.folder / "replaced"
            shutil.rmtree(replaced, ignore_errors=True)
            replaced.mkdir()
            for path in old:
                path.rename(replaced / path.name)
        (self.folder / "attached-standby").unlink(missing_ok=True)
        write_atomically(self.folder / "tokens.db", base64.b64decode(settings.tokens))
        write_atomically(own, settings.service.encode())

    @property
    def position(self) -> Position:
        """Number and size in bytes of the last copied log."""
        path = self._journal.path("log-", self._number)
        return self._number, path.stat().st_size if path.is_file() else 0

    def _run(self) -> None:
        waits = Backoff(0.05, 1.0)
        while not self._stop.is_set():
            sent = self.position
            try:
                self._poll(_WAIT_S if self._end is None else 0.0)
            except (Unreachable, Refused, OSError, ValueError) as error:
                _LOG.warning("not following: %s", error)
                self._stop.wait(waits.next())
                continue
            waits.reset()
            self.contact = time.monotonic()
            if self._end is not None and sent >= self._end:
                return

    def _poll(self, wait_s: float) -> None:
        """Confirm the records on this disk, and fetch the following ones."""
        number, offset = self.position
        asked = {"standby": self._name, "number": number, "offset": offset, "wait_s": wait_s}
        chunk = LogChunk.model_validate(self.client.call("GET", "/replica/log", params=asked))
        if chunk.data:
            with self._journal.path("log-", number).open("ab") as stream:
                stream.write(chunk.data.encode("ascii"))
                stream.flush()
                os.fsync(stream.fileno())
        self._fetch_states(chunk.states)
        # If the service has dropped a log, the state after it has just been fetched.
        self._number = max(number + chunk.closed, chunk.first_log)
        self._drop_older(min(chunk.states, default=0), chunk.first_log)
        if chunk.needed is not None and self.position >= chunk.needed:
            self.complete = True

    def _fetch_states(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            path = self._journal.path("state-", number)
            if not path.is_file():
                found = self.client.call("GET", "/replica/state", params={"number": number})
                write_atomically(path, base64.b64decode(found["data"]))

    def _drop_older(self, state: int, log: int) -> None:
        for kind, first in (("state-", state), ("log-", log)):
            for number in self._journal.numbers(kind):
                if number < first:
                    self._journal.path(kind, number).unlink(missing_ok=True)

    def finish(self, force: bool = False) -> None:
        """Ask the service to retire, copy the rest, and release the folder.

        A service that does not answer has acknowledged only records that are here, because it waits for this standby.

        Raises `NotComplete`: the copy is not complete, and ``force`` is false.
        """
        if not (self.complete or force):
            raise NotComplete(
                f"this standby has not copied all that {self.client.url} acknowledged; wait until /healthz says that "
                "it is complete, or ask /v1/promote?force=true and lose what is not here"
            )
        try:
            self._end = End.model_validate(self.client.call("POST", "/replica/retire")).position
            self._thread.join(30)
        except (Unreachable, Refused) as error:
            _LOG.warning("taking over without the other service: %s (silent for %.1f s)", error, self.silent_s)
        self._close()

    @property
    def silent_s(self) -> float:
        """Seconds since the service last answered."""
        return time.monotonic() - self.contact

    def _close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._journal.close()
        self.client.close()

    def close(self) -> None:
        """Stop following; the service no longer waits for this standby."""
        self._stop.set()
        self._thread.join()
        with contextlib.suppress(Unreachable, Refused):
            self.client.call("POST", "/replica/detach")
        self._close()


class _Service:
    """The attributes that the token dependency uses."""

    def __init__(self, store: Store, settings: Limits) -> None:
        self.settings, self.tokens, self.metrics = settings, TokenBook(store), Metrics()
        self.rate = RateLimit(settings.requests_per_s)


def standby_app(follower: Follower, store: Store, settings: Limits, take_over: Callable[[], FastAPI]) -> ASGIApp:
    """Serve only ``POST /v1/promote`` until it is called; then serve the application that ``take_over`` returns."""
    promoted: list[FastAPI] = []
    stack, turn = contextlib.AsyncExitStack(), asyncio.Lock()

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with stack:
            yield
            if not promoted:
                await asyncio.to_thread(follower.close)

    app = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)

    @app.post("/v1/promote")
    async def promote(who: Admin, force: bool = False) -> dict[str, str]:
        """Take over; 409 where not all that was acknowledged is here, unless ``force`` is true."""
        async with turn:
            if not promoted:
                try:
                    await asyncio.to_thread(follower.finish, force)
                except NotComplete as error:
                    raise refuse(409, "incomplete", str(error)) from error
                made = await asyncio.to_thread(take_over)
                await stack.enter_async_context(made.router.lifespan_context(made))
                promoted.append(made)
        return {"status": "serving"}

    @app.get("/healthz")
    async def healthz() -> dict[str, str | float | bool]:
        """Say that the process answers, since when the service did not, and whether the copy is complete."""
        return {"status": "standby", "silent_s": follower.silent_s, "complete": follower.complete}

    @app.api_route("/{path:path}", methods=["GET", "POST", "PUT", "DELETE"])
    async def other(request: Request, path: str) -> JSONResponse:
        """Refuse."""
        detail = {"reason": "standby", "message": f"this is a standby of {follower.client.url}; ask that one"}
        return JSONResponse({"detail": detail}, 503)

    equip(app, _Service(store, settings), (), HANDLERS)

    async def either(scope: Scope, receive: Receive, send: Send) -> None:
        chosen = promoted[0] if promoted and scope["type"] == "http" else app
        await chosen(scope, receive, send)

    return either
