"""Fixtures: in-memory applications over a folder, which a test can start repeatedly."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

if any(find_spec(module) is None for module in ("fastapi", "sqlalchemy", "uvicorn", "httpx")):
    collect_ignore_glob = ["test_*.py"]  # the extra `telemetry` is not installed


#: Options of `start` that are the snapshots'.
_SNAPSHOTS = {"snapshot_every": "every", "read_back": "read_back"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[..., Any]]:
    """Start a service of a kind in memory; starting again without closing simulates a kill."""
    from fastapi.testclient import TestClient

    from flowlex.service.decision_thread import Worker
    from flowlex.service.prometheus_metrics import Metrics
    from flowlex.service.reader_process import Follower, resolve
    from flowlex.service.rest_app import create_app
    from flowlex.service.state_snapshot_files import Snapshots
    from flowlex.service.write_ahead_log import Journal
    from flowlex.telemetry.service_context import Settings
    from flowlex.telemetry.store import Store

    class ReadersHere:
        """Answer queries in this process, with a separate core."""

        def __init__(self, load: Any) -> None:
            self.load, self.turn = load, threading.Lock()

        def start(self, journal: Any) -> None:
            self.follower = Follower(journal, self.load, journal.end)

        def tell(self, end: Any, lines: bytes) -> None:
            with self.turn:
                self.follower.take(end, lines)

        def ask(self, question: str, *arguments: Any) -> Any:
            future: Future[bytes] = Future()
            with self.turn:
                self.follower.ask(question, arguments, lambda found: resolve(future, found))
            return future

        def close(self) -> None:
            pass

    with contextlib.ExitStack() as stack:

        def begin(load: Any, routes: Any, *, auth: bool = False, **timing: Any) -> TestClient:
            kept = {name: timing.pop(old) for old, name in _SNAPSHOTS.items() if old in timing}
            worker = Worker(Snapshots(Journal(folder), load, **kept), Metrics(), ReadersHere(load), **timing)
            store = stack.enter_context(contextlib.closing(Store(f"sqlite:///{folder}/tokens.db")))
            app = create_app(worker, store, routes, "a test", Settings(require_token=auth, requests_per_s=None))
            client = TestClient(app, base_url="http://127.0.0.1")
            client.store, client.worker = store, worker  # type: ignore[attr-defined]
            return stack.enter_context(client)

        yield begin
