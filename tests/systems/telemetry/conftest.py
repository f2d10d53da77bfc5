"""Fixtures: a private PostgreSQL server, stores on both databases, an application in memory, real processes."""

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


class Postgres:
    """A PostgreSQL server of its own: a fresh cluster on a Unix socket and a free loopback port."""

    listens = "127.0.0.1"

    def __init__(self, programs: Path) -> None:
        self.programs, self.port = programs, free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="flowlex-pg-"))
        self.data = self.folder / "data"
        self.url = f"postgresql+psycopg://postgres@127.0.0.1:{self.port}/postgres"
        self.as_postgres: list[str] = []
        if os.geteuid() == 0:  # the server refuses to run as root
            account = pwd.getpwnam("postgres")
            os.chown(self.folder, account.pw_uid, account.pw_gid)
            self.as_postgres = ["setpriv", f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"]
        self.run("initdb", "-D", str(self.data), "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8")

    def run(self, program: str, *arguments: str) -> None:
        command = [*self.as_postgres, str(self.programs / program), *arguments]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{program}: {done.stdout}{done.stderr}"

    def start(self) -> None:
        options = f"-c port={self.port} -c listen_addresses={self.listens} -c unix_socket_directories={self.folder}"
        self.run("pg_ctl", "-D", str(self.data), "-l", str(self.folder / "log"), "-o", options, "-w", "start")

    def kill(self) -> None:
        """Kill the server and all its processes with SIGKILL."""
        import psutil

        main = psutil.Process(int((self.data / "postmaster.pid").read_text().split()[0]))
        mine = [*main.children(recursive=True), main]
        for process in [main, *mine]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(mine, timeout=120)

    def remove(self) -> None:
        with contextlib.suppress(AssertionError):  # it may be down
            self.run("pg_ctl", "-D", str(self.data), "-m", "immediate", "-w", "stop")
        shutil.rmtree(self.folder, ignore_errors=True)


def new_postgres() -> Postgres:
    programs = find_postgres()
    if programs is None:
        reason = "no PostgreSQL server is installed (apt-get install postgresql)"
        if os.environ.get("FLOWLEX_REQUIRE_POSTGRES") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return Postgres(programs)


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """One server for all tests of a process."""
    server = new_postgres()
    try:
        server.start()
        yield server.url
    finally:
        server.remove()


@pytest.fixture
def own_postgres() -> Iterator[Postgres]:
    """A server that a test may kill."""
    server = new_postgres()
    try:
        server.start()
        yield server
    finally:
        server.remove()


def find_postgres() -> Path | None:
    """Return the folder of the newest PostgreSQL server programs."""
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
    """Return the URL of an empty database, once for each kind of database."""
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
    from flowlex.systems.telemetry.store import Store

    with contextlib.closing(Store(database_url)) as store:
        yield store


@pytest.fixture
def sqlite_store(tmp_path: Path) -> Iterator[object]:
    from flowlex.systems.telemetry.store import Store

    with contextlib.closing(Store(f"sqlite:///{tmp_path}/service.db")) as store:
        yield store


@pytest.fixture
def api(sqlite_store: object) -> Iterator[object]:
    """An application in memory that demands no tokens."""
    from fastapi.testclient import TestClient

    from flowlex.systems.telemetry.rest_app import create_app
    from flowlex.systems.telemetry.service_context import Settings

    app = create_app(sqlite_store, Settings(require_token=False, retention_s=None))
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def guarded(sqlite_store: object) -> Iterator[object]:
    """An application in memory that demands tokens."""
    from fastapi.testclient import TestClient

    from flowlex.systems.telemetry.rest_app import create_app

    with TestClient(create_app(sqlite_store)) as client:
        yield client


@pytest.fixture
def line_to() -> object:
    """A network line to an application that can be cut, before or after it works, and tampered with (``change``)."""
    import httpx

    class Line(httpx.BaseTransport):
        cut, lose_answers, change = False, 0, staticmethod(lambda content: content)

        def __init__(self, api: object) -> None:
            self.api = api

        def handle_request(self, request: httpx.Request) -> httpx.Response:
            if self.cut:
                raise httpx.ConnectError("cut", request=request)
            answer = self.api.request(
                request.method, str(request.url), content=request.read(), headers=dict(request.headers)
            )
            if self.lose_answers and request.url.path.endswith("/data"):
                self.lose_answers -= 1
                raise httpx.ReadTimeout("answer lost", request=request)
            content = self.change(answer.content)
            return httpx.Response(answer.status_code, headers=answer.headers, content=content, request=request)

    return Line


@pytest.fixture
def line(line_to: Callable[[object], object], api: object) -> object:
    return line_to(api)


@pytest.fixture
def client(line: object) -> Iterator[object]:
    """A client that uses this transport."""
    from flowlex.systems.telemetry.http_client import TelemetryClient

    with TelemetryClient("http://127.0.0.1", transport=line) as client:
        yield client


#: The file named by ``FLOWLEX_TEST_STEP`` has the offset of the process's wall clock in seconds.
STEPPED = """
import os, time
if (place := os.environ.get("FLOWLEX_TEST_STEP")):
    real = time.time
    time.time = lambda: real() + float(open(place).read() or 0)
"""


class Processes:
    """Starts `flowlex telemetry ...` in separate processes and ends exactly those."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: list[subprocess.Popen[bytes]] = []
        self.logs: list[Path] = []

    def start(self, *arguments: str, environment: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        log = self.folder / f"process-{len(self.logs)}.log"
        self.logs.append(log)
        code = STEPPED + "from flowlex.systems.telemetry.command_line import app; app(prog_name='flowlex telemetry')"
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

    def serve(
        self, url: str, port: int, *arguments: str, environment: dict[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a server and wait until it answers."""
        import httpx

        environment = {"FLOWLEX_TELEMETRY_DATABASE": url} | (environment or {})
        process = self.start("serve", "--port", str(port), *arguments, environment=environment)
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
def eventually() -> Callable[..., None]:
    def wait(condition: Callable[[], bool], seconds: float = 120.0) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if condition():
                return
            time.sleep(0.05)
        raise AssertionError(f"did not happen within {seconds} s")

    return wait
