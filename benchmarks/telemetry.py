"""The node information service: reads at 1 000 nodes x 20 names under a steady write load, and with 10 million rows.

Server and writer run in processes of their own on this machine; all traffic is loopback. PostgreSQL is measured
where it is installed, or at the URL of an empty database in ``FLOWLEX_BENCH_POSTGRES``. ``FLOWLEX_BENCH_SECONDS`` makes
the load last longer, ``FLOWLEX_BENCH_ROWS`` the history larger.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["tables"]

NODES, NAMES = 1_000, 20
#: Every node writes its 20 values every 4 seconds.
VALUES_PER_S = 5_000
SECONDS = float(os.environ.get("FLOWLEX_BENCH_SECONDS", "10"))
ROWS = int(os.environ.get("FLOWLEX_BENCH_ROWS", "1000000"))

Row = dict[str, object]

#: Agents write side by side, so that their commits share flushes to disk; a light client, as it shares the machine.
_WRITER = """
import http.client, json, sys, threading, time, urllib.parse
url, nodes, names, rate, seconds = sys.argv[1], *map(int, sys.argv[2:5]), float(sys.argv[5])
threads, latency, start = 16, [], time.monotonic()
def work(first):
    client, n = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc, timeout=30), first
    while (now := time.monotonic()) - start < seconds or (seconds == 0 and n < nodes):
        samples = [{"name": f"v{k}", "time": time.time(), "value": k / 7} for k in range(names)]
        body = json.dumps({"node": f"n{n % nodes}", "samples": samples})
        client.request("POST", "/v1/data", body, {"Content-Type": "application/json"})
        answer = client.getresponse()
        assert answer.status == 200, answer.read()
        answer.read()
        latency.append(time.monotonic() - now)
        n += threads
        if rate:
            time.sleep(max(0.0, start + n * names / rate - time.monotonic()))
workers = [threading.Thread(target=work, args=(k,)) for k in range(threads)]
[worker.start() for worker in workers]
[worker.join() for worker in workers]
took = time.monotonic() - start
latency.sort()
median, high = latency[len(latency) // 2], latency[int(len(latency) * 0.99)]
print(json.dumps({"rate": len(latency) * names / took, "median": median, "p99": high}))
"""


def tables(quick: bool = False) -> list[tuple[str, list[Row]]]:
    """Title and rows of every table."""
    seconds = 2.0 if quick else SECONDS
    made = [_measured("SQLite", None, seconds)]
    with _postgres() as url:
        if url is not None:
            made.append(_measured("PostgreSQL", url, seconds))
    made.append(_large(10_000 if quick else ROWS))
    return made


@contextlib.contextmanager
def _postgres() -> Iterator[str | None]:
    """The database of ``FLOWLEX_BENCH_POSTGRES``, or a server of our own where one is installed."""
    from tests.telemetry.conftest import Postgres, find_postgres

    programs = find_postgres()
    if (url := os.environ.get("FLOWLEX_BENCH_POSTGRES")) or programs is None:
        yield url
        return
    server = Postgres(programs)
    try:
        server.start()
        yield server.url
    finally:
        server.remove()


def _large(rows: int) -> tuple[str, list[Row]]:
    """A long history on SQLite: a node's history, a window of it, retention in steps, the start of the service."""
    from flowlex.telemetry.schemas import Sample
    from flowlex.telemetry.store import Store

    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/s.db"
        store = Store(url)
        for n in range(NODES):
            samples = [Sample(name=f"v{k}", time=1.0, value=0.5) for k in range(NAMES)]
            store.write([(f"n{n}", None, samples)], 1.0)
        with store._write() as connection:
            connection.exec_driver_sql("DROP INDEX sample_history")  # made anew in one go: far quicker
            connection.exec_driver_sql(_FILL, (rows, NODES * NAMES))
            connection.exec_driver_sql("CREATE INDEX sample_history ON sample (series, time)")
        until = 1e6 + rows / VALUES_PER_S
        found: list[Row] = []

        def timed(call: str, function: Callable[[], Any], repeats: int) -> None:
            times = []
            for _ in range(repeats):
                started = time.perf_counter()
                function()
                times.append(1e3 * (time.perf_counter() - started))
            median, high = np.percentile(times, [50, 99])
            worst = float(max(times))
            found.append({"call": call, "median ms": float(median), "p99 ms": float(high), "worst ms": worst})

        rng = np.random.default_rng(0)
        node = lambda: [f"n{rng.integers(NODES)}"]  # noqa: E731
        timed("one last value", lambda: store.latest_one("v3", node()[0]), 300)
        timed("newest 1 000 of a node's history", lambda: store.history([], node(), 0, 1e12, 1_000), 50)
        timed("newest 10 000 of a node's history", lambda: store.history([], node(), 0, 1e12, 10_000), 10)
        timed("60 s of one name on all nodes", lambda: store.history(["v3"], [], until - 60, 1e12, 10_000), 5)
        timed("one step of retention (5 000 rows)", lambda: store.forget_some(1e12), 20)
        timed("one step of aggregation (5 000 rows)", lambda: store.roll_up(1e12), 20)
        store.close()
        timed("open the database again", lambda: Store(url).close(), 3)
    return f"SQLite with {rows} stored rows of {NODES} nodes x {NAMES} names, in process", found


_FILL = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
INSERT INTO sample (series, time, arrived, value, number, unit, exit_code, error)
SELECT i % ? + 1, 1e6 + i / 5000.0, 1e6 + i / 5000.0, '0.5', 0.5, '', 0, '' FROM n
"""


def _measured(name: str, database: str | None, seconds: float) -> tuple[str, list[Row]]:
    with tempfile.TemporaryDirectory() as folder:
        port = _free_port()
        url = f"http://127.0.0.1:{port}"
        serve = "from flowlex.cli.telemetry import app; app()"
        command = [sys.executable, "-c", serve, "serve", "--no-auth", "--requests-per-s", "0", "--port", str(port)]
        environment = {**os.environ, "FLOWLEX_TELEMETRY_DATABASE": database or f"sqlite:///{folder}/s.db"}
        with (Path(folder) / "log").open("wb") as log:
            server = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        try:
            _wait(url)
            _write(url, 0, 0.0).communicate()
            alone = _alone(url, server.pid, seconds)
            writer = _write(url, VALUES_PER_S, seconds + 3)
            time.sleep(1.0)
            before = _resident_mb(server.pid)
            rows = _reads(url, seconds)
            rows[0]["memory before and after, MB"] = f"{before} -> {_resident_mb(server.pid)}"
            written = json.loads(writer.communicate()[0])
            rows.append(
                {
                    "call": "write 20 values, acknowledged on disk",
                    "median ms": 1e3 * written["median"],
                    "p99 ms": 1e3 * written["p99"],
                    "values per s": round(written["rate"]),
                }
            )
            rows.append(alone)
        finally:
            server.terminate()
            server.wait()
    return f"Reads at {NODES} nodes x {NAMES} names while {VALUES_PER_S} values per second are written, {name}", rows


def _alone(url: str, server: int, seconds: float) -> Row:
    """Writes without reads, and what they cost the server: on a busy machine the figure that says most."""
    before, started = _processor_s(server), time.monotonic()
    written = json.loads(_write(url, VALUES_PER_S, seconds).communicate()[0])
    values = written["rate"] * (time.monotonic() - started)
    return {
        "call": "the same without readers",
        "median ms": 1e3 * written["median"],
        "p99 ms": 1e3 * written["p99"],
        "values per s": round(written["rate"]),
        "server's processor time per value, us": round(1e6 * (_processor_s(server) - before) / values),
    }


def _processor_s(process: int) -> float:
    import psutil

    return float(sum(psutil.Process(process).cpu_times()[:2]))


def _resident_mb(process: int) -> int:
    import psutil

    return int(psutil.Process(process).memory_info().rss // 2**20)


def _reads(url: str, seconds: float) -> list[Row]:
    import httpx

    rng = np.random.default_rng(0)
    names = [f"v{k}" for k in range(NAMES)]
    with httpx.Client(base_url=f"{url}/v1", timeout=30, trust_env=False) as client:

        def one() -> int:
            return len(client.get(f"/data/v{rng.integers(NAMES)}/n{rng.integers(NODES)}").raise_for_status().content)

        def node() -> int:
            params = {"name": names, "node": f"n{rng.integers(NODES)}"}
            return len(client.get("/data", params=params).raise_for_status().json()["readings"])

        def name() -> int:
            return len(client.get("/data", params={"name": names[0]}).raise_for_status().json()["readings"])

        def all_() -> int:
            return len(client.get("/data").raise_for_status().json()["readings"])

        return [
            _latency("one value", one, seconds * 0.3),
            _latency("20 names of one node", node, seconds * 0.3),
            _latency("one name of 1 000 nodes", name, seconds * 0.2),
            _latency("all 20 000 values", all_, seconds * 0.2),
        ]


def _latency(call: str, function: Callable[[], int], seconds: float) -> Row:
    times, until = [], time.monotonic() + seconds
    while time.monotonic() < until:
        started = time.perf_counter()
        assert function()
        times.append(1e3 * (time.perf_counter() - started))
    median, high = np.percentile(times, [50, 99])
    return {"call": call, "median ms": float(median), "p99 ms": float(high), "calls": len(times)}


def _write(url: str, rate: int, seconds: float) -> subprocess.Popen[bytes]:
    arguments = [str(value) for value in (NODES, NAMES, rate, seconds)]
    return subprocess.Popen([sys.executable, "-c", _WRITER, url, *arguments], stdout=subprocess.PIPE)


def _wait(url: str) -> None:
    import httpx

    for _ in range(300):
        try:
            if httpx.get(f"{url}/v1/health", trust_env=False).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise RuntimeError("the server does not answer")


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        number: Any = listener.getsockname()[1]
        return int(number)
