"""Fixtures: in-memory applications on one database, which a test can start again."""

import contextlib
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

if any(find_spec(module) is None for module in ("fastapi", "sqlalchemy", "uvicorn", "httpx")):
    collect_ignore_glob = ["test_*.py"]  # the extra `telemetry` is not installed

CLUSTER = {"goals": "quincy", "cluster": None, "cost_limit": 10**6, "scale": None, "lexicographic": False}
GPU = {"policy": "FSP", "disk_mb_per_s": 500.0, "rack_mb_per_s": 125.0, "between_racks_mb_per_s": 125.0}
GPU |= {"most_jobs": None}


def wait_until(true: Callable[[], Any], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/scheduler.db"


@pytest.fixture
def start(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Start a service of a kind in memory; it leads unless another one does (``leads=False``: do not wait for it)."""
    from fastapi.testclient import TestClient

    from flowlex.systems.scheduler.database import SchedulerDatabase
    from flowlex.systems.scheduler.replica import Pace, Replica
    from flowlex.systems.scheduler.rest_app import create_app
    from flowlex.systems.telemetry.service_context import Settings

    monkeypatch.setattr("flowlex.systems.scheduler.rest_app._WAIT_S", 120.0)  # loops may be compiled first
    with contextlib.ExitStack() as stack:

        def begin(kind: str = "scheduler", *, auth: bool = False, leads: bool = True, **options: Any) -> TestClient:
            given = CLUSTER if kind == "scheduler" else GPU
            changed = {name: options.pop(name) for name in given if name in options}
            database = stack.enter_context(contextlib.closing(SchedulerDatabase(url)))
            settled, address = database.settled(kind, given | changed, set()), options.pop("url", "")
            replica = Replica(database, settled, Pace(**{"lease_s": 0.5, **options}), address)
            settings = Settings(require_token=auth, requests_per_s=None)
            client = TestClient(create_app(replica, settings), "http://127.0.0.1")
            client.replica = replica  # type: ignore[attr-defined]
            client.store = database  # type: ignore[attr-defined]
            stack.enter_context(client)
            if leads:
                wait_until(lambda: replica.term is not None)
            return client

        yield begin
