"""Fixtures: a private PostgreSQL server, stores on both databases, an application in memory, real processes."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

if any(find_spec(module) is None for module in ("fastapi", "sqlalchemy", "uvicorn", "httpx", "psycopg")):
    collect_ignore_glob = ["test_*.py"]  # the extra `telemetry` is not installed


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A PostgreSQL server of its own: a fresh cluster on a Unix socket and a free loopback port."""
    programs = find_postgres()
    if programs is None:
        reason = "no PostgreSQL server is installed (apt-get install postgresql)"
        if os.environ.get("FLOWLEX_REQUIRE_POSTGRES") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    folder = Path(tempfile.mkdtemp(prefix="flowlex-pg-"))
    as_postgres: list[str] = []
    if os.geteuid() == 0:  # the server refuses to run as root
        account = pwd.getpwnam("postgres")
        os.chown(folder, account.pw_uid, account.pw_gid)
        as_postgres = ["setpriv", f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"]
    data, port = folder / "data", free_port()
    options = f"-c port={port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder}"

    def run(program: str, *arguments: str) -> None:
        command = [*as_postgres, str(programs / program), *arguments]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{program}: {done.stdout}{done.stderr}"

    try:
        run("initdb", "-D", str(data), "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8")
        run("pg_ctl", "-D", str(data), "-l", str(folder / "log"), "-o", options, "-w", "start")
        try:
            yield f"postgresql+psycopg://postgres@127.0.0.1:{port}/postgres"
        finally:
            run("pg_ctl", "-D", str(data), "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def find_postgres() -> Path | None:
    """The folder of the newest server programs, wherever the packages put them."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: float(p.parent.name))[::-1]
    on_path = shutil.which("pg_ctl")
    if on_path:
        folders.append(Path(on_path).parent)
    return next((f for f in folders if (f / "initdb").exists() and (f / "pg_ctl").exists()), None)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database, once of each sort."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/service.db"
    import sqlalchemy as sa

    url = sa.make_url(request.getfixturevalue("postgres_url"))
    name = f"t{time.time_ns()}"
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sa.text(f'CREATE DATABASE "{name}"'))
    engine.dispose()
    return url.set(database=name).render_as_string(hide_password=False)


@pytest.fixture
def store(database_url: str) -> Iterator[object]:
    from flowlex.telemetry.store import Store

    with contextlib.closing(Store(database_url)) as store:
        yield store


@pytest.fixture
def sqlite_store(tmp_path: Path) -> Iterator[object]:
    from flowlex.telemetry.store import Store

    with contextlib.closing(Store(f"sqlite:///{tmp_path}/service.db")) as store:
        yield store


class Processes:
    """Starts `flowlex telemetry ...` in processes of their own and ends exactly those."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: list[subprocess.Popen[bytes]] = []
        self.logs: list[Path] = []

    def start(self, *arguments: str, environment: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        log = self.folder / f"process-{len(self.logs)}.log"
        self.logs.append(log)
        code = "from flowlex.cli.telemetry import app; app(prog_name='flowlex telemetry')"
        with log.open("wb") as stream:
            process = subprocess.Popen(
                [sys.executable, "-c", code, *arguments],
                cwd=self.folder,
                stdout=stream,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
            )
        self.running.append(process)
        return process

    def serve(self, url: str, port: int, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a server and wait until it answers."""
        import httpx

        process = self.start("serve", "--port", str(port), *arguments, environment={"FLOWLEX_TELEMETRY_DATABASE": url})
        until = time.monotonic() + 120  # a busy machine starts slowly
        while time.monotonic() < until:
            assert process.poll() is None, self.logs[-1].read_text()
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"http://127.0.0.1:{port}/v1/health", trust_env=False).status_code == 200:
                    return process
            time.sleep(0.05)
        raise AssertionError("the server does not answer: " + self.logs[-1].read_text())

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """kill -9."""
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.running.remove(process)

    def stop(self, process: subprocess.Popen[bytes]) -> int:
        process.terminate()
        code = process.wait(90)
        self.running.remove(process)
        return code

    def end(self) -> None:
        for process in self.running:
            process.kill()
        for process in self.running:
            process.wait()

    def text(self) -> str:
        return "\n".join(log.read_text(errors="replace") for log in self.logs)


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    processes = Processes(tmp_path)
    try:
        yield processes
    finally:
        processes.end()


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool], float], None]:
    def wait(condition: Callable[[], bool], seconds: float = 15.0) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if condition():
                return
            time.sleep(0.05)
        raise AssertionError(f"did not happen within {seconds} s")

    return wait
