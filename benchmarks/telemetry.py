"""The node information service: 1 000 nodes x 20 names write periodically while single values are read; long histories.

Server and load run in separate processes on this machine; all traffic is loopback. PostgreSQL is measured if it is
installed, or at the URL of a superuser's empty database in ``FLOWLEX_BENCH_POSTGRES``. ``FLOWLEX_BENCH_SECONDS`` sets
the duration of the load, ``FLOWLEX_BENCH_ROWS`` the length of the histories (0: none).
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

from benchmarks import Row, Tables
from benchmarks.peers import memory_mb, processor_s

NODES, NAMES = 1_000, 20
#: Every node writes its 20 values every 4 seconds; rates of written values and of single reads.
VALUES_PER_S, READS_PER_S = 5_000, 100
SECONDS = float(os.environ.get("FLOWLEX_BENCH_SECONDS", "10"))
ROWS = int(os.environ.get("FLOWLEX_BENCH_ROWS", "1000000"))


def tables(quick: bool = False) -> Tables:
    seconds, rows = (2.0, 10_000) if quick else (SECONDS, ROWS)
    loaded, others, long = [], [], []
    for name, database in (("SQLite", _nothing), ("PostgreSQL", postgres_server)):
        with database() as url:
            if name == "PostgreSQL" and url is None:
                continue
            row, calls = _under_load(name, url, seconds)
            loaded.append(row)
            others.append((f"Other reads beside the same load, {name}", calls))
        if rows:
            with database() as url:
                long.append(
                    (f"{rows} stored rows of {NODES} nodes x {NAMES} names, in process, {name}", _long(url, rows))
                )
    title = (
        f"{NODES} nodes x {NAMES} names write {VALUES_PER_S} values per second, {READS_PER_S} single reads per second"
    )
    return [(title, loaded), *others, *long]


@contextlib.contextmanager
def _nothing() -> Iterator[None]:
    """Yield None: SQLite needs no server, its database is a file in a temporary folder."""
    yield None


@contextlib.contextmanager
def postgres_server() -> Iterator[str | None]:
    """The database of ``FLOWLEX_BENCH_POSTGRES``, or a server of our own where one is installed."""
    from tests.systems.telemetry.conftest import Postgres, find_postgres

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


def _under_load(name: str, database: str | None, seconds: float) -> tuple[Row, list[Row]]:
    with tempfile.TemporaryDirectory() as folder:
        port = _free_port()
        serve = "from flowlex.systems.telemetry.command_line import app; app()"
        command = [sys.executable, "-c", serve, "serve", "--no-auth", "--requests-per-s", "0", "--port", str(port)]
        command += ["--connections-per-address", "3000"]
        environment = {**os.environ, "FLOWLEX_TELEMETRY_DATABASE": database or f"sqlite:///{folder}/s.db"}
        with (Path(folder) / "log").open("wb") as log:
            server = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        try:
            _wait(f"http://127.0.0.1:{port}")
            _told(_load("write", port, 0, 0.0))
            row = _measured(name, port, server.pid, seconds)
            beside = _load("write", port, VALUES_PER_S, min(seconds, 20.0))
            calls = _reads(f"http://127.0.0.1:{port}", min(seconds, 20.0) - 1)
            _told(beside)
        finally:
            server.terminate()
            server.wait()
    return row, calls


def _measured(name: str, port: int, server: int, seconds: float) -> Row:
    """Return one row: accepted values per second, latencies, and processor time of server, database and load."""
    mb, spent, others = round(memory_mb("VmRSS", server)), processor_s(server), _postgres_s()
    writer, reader = _load("write", port, VALUES_PER_S, seconds), _load("read", port, READS_PER_S, seconds)
    written, read = _told(writer), _told(reader)
    values = written["rate"] * seconds
    return {
        "database": name,
        "seconds": seconds,
        "accepted values/s": round(written["rate"]),
        "turns skipped": written["skipped"],
        "read ms: median": read["median"],
        "p99": read["p99"],
        "worst": read["worst"],
        "write ms: median": 1e3 * written["median"],
        "p99 ": 1e3 * written["p99"],
        "server's MB": f"{mb} -> {round(memory_mb('VmRSS', server))}",
        "us of processor per value: server": (processor_s(server) - spent) / values * 1e6,
        "PostgreSQL": (_postgres_s() - others) / values * 1e6 if name == "PostgreSQL" else "",
        "load": written["us per value"] + read["us per read"] * read["reads"] / values,
    }


def _long(database: str | None, rows: int) -> list[Row]:
    """Measure a long history: reads, steps of retention and aggregation, opening of the database."""
    from flowlex.systems.telemetry.request_documents import Sample
    from flowlex.systems.telemetry.store import Store

    with tempfile.TemporaryDirectory() as folder:
        url = database or f"sqlite:///{folder}/s.db"
        store = Store(url)
        for n in range(NODES):
            samples = [Sample(name=f"v{k}", time=1.0, value=0.5) for k in range(NAMES)]
            store.writer.write([(f"n{n}", None, samples)], 1.0)
        with store.database.write() as connection:
            if store.database.dialect == "postgresql":  # skips the foreign-key check of each row
                connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
            connection.exec_driver_sql("DROP INDEX sample_history")  # rebuilding it at once is far faster
            connection.exec_driver_sql(
                _FILL.format(row=_ROW[store.database.dialect].format(rows), series=NODES * NAMES)
            )
            connection.exec_driver_sql("CREATE INDEX sample_history ON sample (series, time)")
            if store.database.dialect == "postgresql":
                connection.exec_driver_sql("ANALYZE")
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
        timed("one last value", lambda: store.reader.latest_one("v3", node()[0]), 300)
        timed("newest 1 000 of a node's history", lambda: store.reader.history([], node(), 0, 1e12, 1_000), 50)
        timed("newest 10 000 of a node's history", lambda: store.reader.history([], node(), 0, 1e12, 10_000), 10)
        timed("60 s of one name on all nodes", lambda: store.reader.history(["v3"], [], until - 60, 1e12, 10_000), 5)
        timed("one step of aggregation (5 000 rows)", lambda: store.upkeep.roll_up(1e12), 20)
        timed("one step of retention (5 000 rows)", lambda: store.upkeep.forget_some(1e12), 20)
        store.close()
        timed("open the database again", lambda: Store(url).close(), 3)
    return found


_ROW = {
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {0})",
    "postgresql": "WITH n(i) AS (SELECT generate_series(1, {0}))",
}
_FILL = """
INSERT INTO sample (series, time, arrived, value, number, unit, exit_code, error)
{row}
SELECT i - i / {series} * {series} + 1, 1e6 + i / 5000.0, 1e6 + i / 5000.0, '0.5', 0.5, '', 0, '' FROM n
"""


def _postgres_s() -> float:
    """Processor seconds of all PostgreSQL processes on this machine."""
    import psutil

    total = 0.0
    for process in psutil.process_iter(["name", "cpu_times"]):
        if process.info["name"] == "postgres" and process.info["cpu_times"]:
            total += sum(process.info["cpu_times"][:2])
    return total


def _reads(url: str, seconds: float) -> list[Row]:
    import httpx

    rng = np.random.default_rng(0)
    names = [f"v{k}" for k in range(NAMES)]
    with httpx.Client(base_url=f"{url}/v1", timeout=30, trust_env=False) as client:

        def node() -> int:
            params = {"name": names, "node": f"n{rng.integers(NODES)}"}
            return len(client.get("/data", params=params).raise_for_status().json()["readings"])

        def name() -> int:
            return len(client.get("/data", params={"name": names[0]}).raise_for_status().json()["readings"])

        def all_() -> int:
            return len(client.get("/data").raise_for_status().json()["readings"])

        return [
            _latency("20 names of one node", node, seconds * 0.4),
            _latency("one name of 1 000 nodes", name, seconds * 0.3),
            _latency("all 20 000 values", all_, seconds * 0.3),
        ]


def _latency(call: str, function: Callable[[], int], seconds: float) -> Row:
    times, until = [], time.monotonic() + seconds
    while time.monotonic() < until:
        started = time.perf_counter()
        assert function()
        times.append(1e3 * (time.perf_counter() - started))
    median, high = np.percentile(times, [50, 99])
    return {"call": call, "median ms": float(median), "p99 ms": float(high), "calls": len(times)}


def _load(what: str, port: int, rate: float, seconds: float) -> subprocess.Popen[bytes]:
    arguments = [str(value) for value in (port, NODES, NAMES, rate, seconds)]
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.telemetry_load", what, *arguments], stdout=subprocess.PIPE
    )


def _told(load: subprocess.Popen[bytes]) -> Any:
    text = load.communicate()[0]
    if load.returncode:
        raise RuntimeError("the load failed; what went wrong is above")
    return json.loads(text)


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
