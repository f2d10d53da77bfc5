"""Leader, follower, database and the network between any two: killed, stopped, cut off, alone and in pairs.

Sixty runs under twenty clients with ledgers, in network namespaces (root). One cluster lives through the runs of a
database, and everything is healed after each.
"""

import contextlib
import faulthandler
import itertools
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
import sqlalchemy as sa

from tests.systems.scheduler.conftest import wait_until
from tests.systems.scheduler.processes import SERVE, Client, Process, audit, committed
from tests.systems.telemetry.conftest import Postgres, find_postgres

_NET, _FAULT_S, _LATE_S = "10.77.31", 6.0, 10.0
_HOSTS = {"a": 2, "b": 3, "d": 4}
FAULTS = ("kill", "stop", "cut")
Fault = tuple[str, str]  # what happens, to whom
SQLITE: list[tuple[Fault, ...]] = [
    *((((fault, who)),) for who in ("leader", "follower") for fault in FAULTS),
    *(((one, "leader"), (two, "follower")) for one, two in itertools.product(FAULTS, repeat=2)),
]
POSTGRES: list[tuple[Fault, ...]] = [
    *((((fault, who)),) for who in ("leader", "follower", "database") for fault in FAULTS),
    *(
        ((one, first), (two, second))
        for first, second in (("leader", "follower"), ("leader", "database"), ("follower", "database"))
        for one, two in itertools.product(FAULTS, repeat=2)
    ),
    *((("cut", link),) for link in ("leader-database", "follower-database", "leader-follower")),
    *((("cut", "leader-database"), (fault, "follower")) for fault in FAULTS),
    *((("cut", "follower-database"), (fault, "leader")) for fault in FAULTS),
]


def ip(*words: str, check: bool = True) -> None:
    subprocess.run(["ip", *words], check=check, capture_output=True)


@pytest.fixture
def network() -> Iterator[None]:
    """Three hosts on a bridge, where this process is the clients' host."""
    if os.getuid() or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and iproute2")
    with contextlib.ExitStack() as stack:
        ip("link", "add", "fxbr", "type", "bridge")
        stack.callback(ip, "link", "del", "fxbr", check=False)
        ip("addr", "add", f"{_NET}.1/24", "dev", "fxbr")
        ip("link", "set", "fxbr", "up")
        for name, number in _HOSTS.items():
            ip("netns", "add", f"fx{name}")
            stack.callback(ip, "netns", "del", f"fx{name}", check=False)
            ip("link", "add", f"fxv{name}", "type", "veth", "peer", "name", "eth0", "netns", f"fx{name}")
            stack.callback(ip, "link", "del", f"fxv{name}", check=False)  # at once; with the namespace it goes later
            ip("link", "set", f"fxv{name}", "master", "fxbr")
            ip("link", "set", f"fxv{name}", "up")
            ip("-n", f"fx{name}", "addr", "add", f"{_NET}.{number}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                ip("-n", f"fx{name}", "link", "set", device, "up")
        yield


class HostPostgres(Postgres):
    """A PostgreSQL server on host d."""

    listens = "*"

    def __init__(self) -> None:
        super().__init__(find_postgres() or pytest.skip("PostgreSQL is not installed"))
        with (self.data / "pg_hba.conf").open("a") as stream:
            stream.write(f"host all all {_NET}.0/24 trust\n")
        with (self.data / "postgresql.conf").open("a") as stream:
            stream.write("max_connections = 200\n")
        self.as_postgres = ["ip", "netns", "exec", "fxd", *self.as_postgres]
        self.url = f"postgresql+psycopg://postgres@{_NET}.4:{self.port}/postgres"
        self.start()

    def start_again(self) -> None:
        """Start it once the memory of a killed one is free."""
        until = time.monotonic() + 180
        while True:
            try:
                return self.start()
            except AssertionError:
                assert time.monotonic() < until
                time.sleep(0.1)

    def pids(self) -> list[int]:
        main = int((self.data / "postmaster.pid").read_text().splitlines()[0])
        found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(main)], capture_output=True, text=True)
        return [main, *map(int, found.stdout.split())]

    def kill(self) -> None:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            os.kill(self.pids()[0], signal.SIGSTOP)  # so that it starts no process that would survive it
            for pid in self.pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


class Cluster:
    """Two processes on hosts a and b, and the faults that befall them."""

    def __init__(self, folder: Path, url: str, database: HostPostgres | None) -> None:
        self.folder, self.url, self.database = folder, url, database
        self.processes: dict[str, Process] = {}
        self.cut: dict[str, float] = {}  # when a host was cut off last; what it was asked then has no answer
        self.start("a")
        self.token = json.loads((folder / "flowlex-scheduler-tokens.json").read_text())["admin"]
        self.start("b", "--follow")

    def start(self, host: str, *more: str) -> None:
        command = [word for word in SERVE if word != "--no-auth"]
        at = ("--host", f"{_NET}.{_HOSTS[host]}", "--plain-http", "--requests-per-s", "0", "--port", "8760")
        rest = ("--database", self.url, "--snapshot-every", "1000", "--every-ms", "50")
        words = [*command, *at, *rest, *more]
        self.processes[host] = Process(self.folder, prefix=("ip", "netns", "exec", f"fx{host}"), command=words)

    def leader(self) -> str | None:
        return next((host for host, each in self.processes.items() if each.ready()), None)

    def befall(self, faults: tuple[Fault, ...]) -> Callable[[], None]:
        """Do it; return what heals it."""
        wait_until(self.leader, 10)  # a decision that was not committed makes it unready until the next one is
        leader = self.leader()
        assert leader is not None
        hosts = {"leader": leader, "follower": "b" if leader == "a" else "a", "database": "d"}
        heal: list[Callable[[], None]] = []
        start: list[Callable[[], None]] = []  # takes seconds, so what only has to wake up goes first
        for fault, whom in faults:
            if fault == "cut" and "-" in whom:
                one, other = (hosts[each] for each in whom.split("-"))
                words = ("blackhole", f"{_NET}.{_HOSTS[other]}/32")
                ip("-n", f"fx{one}", "route", "add", *words)
                heal.append(lambda one=one, words=words: ip("-n", f"fx{one}", "route", "del", *words))
                continue
            host = hosts[whom]
            if fault == "cut":
                self.cut[host] = time.monotonic()
                ip("link", "set", f"fxv{host}", "down")
                heal.append(lambda host=host: ip("link", "set", f"fxv{host}", "up"))
            elif whom == "database":
                assert self.database is not None
                pids = self.database.pids()
                if fault == "kill":
                    self.database.kill()
                    start.append(self.database.start_again)
                else:
                    for pid in pids:
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGSTOP)
                    heal.append(lambda pids=pids: _wake(pids))
            elif fault == "kill":
                self.processes[host].kill()
                start.append(lambda host=host: self.start(host, "--follow"))
            else:
                pid = self.processes[host].process.pid
                os.kill(pid, signal.SIGSTOP)
                heal.append(lambda host=host, pid=pid: self._wake(host, pid))
        return lambda: [each() for each in (*reversed(heal), *reversed(start))]  # type: ignore[func-returns-value, return-value]

    def _wake(self, host: str, pid: int) -> None:
        if self.processes[host].process.poll() is None:
            os.kill(pid, signal.SIGCONT)
        else:  # it was stopped within a commit to SQLite, and ended by the follower
            self.start(host, "--follow")

    def healthy(self) -> bool:
        """One leads, and the other follows."""
        with contextlib.suppress(httpx.HTTPError):
            for each in self.processes.values():
                httpx.get(f"{each.url}/healthz", trust_env=False, timeout=2).raise_for_status()
            return self.leader() is not None
        return False


def _wake(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def collect(url: str, rows: list[tuple[int, int, str]], stop: threading.Event) -> None:
    """Add the records of the log before snapshots replace them."""
    while not stop.wait(1.0):
        with contextlib.suppress(sa.exc.SQLAlchemyError):  # the database is down
            rows += committed(url, len(rows))


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_nothing_is_lost_whatever_fails(kind: str, network: None, tmp_path: Path) -> None:
    faulthandler.cancel_dump_traceback_later()  # all runs take longer than any other test may
    runs = SQLITE if kind == "sqlite" else POSTGRES
    if chosen := os.environ.get(f"FLOWLEX_MATRIX_{kind.upper()}"):  # such as 0,3,7, to repeat some of the runs
        runs = [runs[int(each)] for each in chosen.split(",")]
    database = HostPostgres() if kind == "postgres" else None
    url = f"sqlite:///{tmp_path}/scheduler.db" if database is None else database.url
    with contextlib.ExitStack() as stack:
        if database is not None:
            stack.callback(shutil.rmtree, database.folder, ignore_errors=True)
            stack.callback(database.kill)
        cluster = Cluster(tmp_path, url, database)
        stack.callback(lambda: [each.kill() for each in cluster.processes.values()])
        stop = threading.Event()
        urls = [each.url for each in cluster.processes.values()]
        clients = [Client(f"c{k}", urls, stop, cluster.token) for k in range(20)]
        # These two stay with one process, and give each request more time than any may take.
        patient = {
            host: Client(f"p{host}", [each.url], stop, cluster.token, patience_s=_LATE_S)
            for host, each in cluster.processes.items()
        }
        for client in (*clients, *patient.values()):
            client.start()
        late: list[str] = []
        rows: list[tuple[int, int, str]] = []
        collector = threading.Thread(target=collect, args=(url, rows, stop))
        collector.start()
        stack.callback(stop.set)
        for faults in runs:
            wait_until(cluster.healthy, 120)
            before = [len(client.times) for client in clients]
            wait_until(lambda: all(len(c.times) > n for c, n in zip(clients, before, strict=True)), 60)  # noqa: B023
            heal = cluster.befall(faults)
            began = time.monotonic()
            # The follower and the database are well.
            takeover = {whom for _, whom in faults} <= {"leader", "leader-database"}
            took = None
            if takeover:
                wait_until(lambda: any(c.times[-1][0] > began for c in clients), 60)  # noqa: B023
                took = min(done for c in clients for sent, done in list(c.times) if sent > began) - began
            time.sleep(max(0.0, began + _FAULT_S - time.monotonic()))
            heal()
            slowest = max(client.slowest for client in clients)
            for host, client in patient.items():
                slowest = max(slowest, client.slowest)
                client.slowest, found, client.unanswered = 0.0, client.unanswered, []
                cut_at = cluster.cut.get(host, float("-inf"))
                for asked, gave_up in found:
                    if gave_up < cut_at or asked > cut_at + 2 * _FAULT_S:
                        late.append(f"{kind} {faults}: no answer of {host} for {gave_up - asked:.1f} s")
            said = f"{kind} {faults}: takeover {took and round(took, 2)} s, slowest answer {slowest:.1f} s"
            print(f"{said}, load {os.getloadavg()[0]:.1f}", flush=True)
            assert not [client.wrong for client in (*clients, *patient.values()) if client.wrong]
            if (took or 0.0) >= 5.0 or slowest >= _LATE_S:
                late.append(said)  # the other runs go on
            for client in clients:
                client.slowest = 0.0
        wait_until(cluster.healthy, 120)
        stop.set()
        for client in patient.values():
            client.urls = list(urls)  # what one of them did not answer, the other does
        clients += patient.values()
        for client in clients:
            client.join(60)
            assert not client.is_alive()
        assert not [client.wrong for client in clients if client.wrong]
        collector.join()
        here, wrong = audit(rows + committed(url, len(rows)))
        assert not wrong
        assert set().union(*(client.here for client in clients)) == here
        print(f"{kind}: {len(runs)} runs, {sum(len(client.times) for client in clients)} acknowledged", flush=True)
        assert not late
