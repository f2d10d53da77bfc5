"""A full disk under the database, and wall clocks that jump by an hour."""

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import sqlalchemy as sa

from flowlex.systems.scheduler import replica
from tests.systems.scheduler.conftest import wait_until
from tests.systems.scheduler.processes import audit, committed
from tests.systems.telemetry.conftest import own_postgres as own_postgres


def submit(api, name):
    event = {"event": "submit", "job": {"name": name, "tasks": [{"name": name}]}}
    return api.post("/v1/events", json={"events": [event]})


class TestFullDisk:
    """Tables (and log) of SQLite, tables of PostgreSQL, or log of PostgreSQL on a small disk."""

    @pytest.fixture
    def small_disk(self):
        place = Path(tempfile.mkdtemp(prefix="flowlex-disk-"))  # pytest's folders are private
        mount = ["mount", "-t", "tmpfs", "-o", f"size={self.size}", "tmpfs", str(place)]
        if os.getuid() or subprocess.run(mount, capture_output=True).returncode:
            pytest.skip("mounting a small disk needs root")
        yield place
        subprocess.run(["umount", "-l", str(place)], check=True)
        place.rmdir()

    def heal(self):
        """Start what the full disk ended."""

    def fill(self, place):
        """Leave no room, and none that was reserved."""
        with (place / "filler").open("wb", buffering=0) as stream, contextlib.suppress(OSError):
            while True:
                stream.write(bytes(4096))

    size = "3m"

    @pytest.fixture
    def url(self, small_disk):
        return f"sqlite:///{small_disk}/scheduler.db"

    def test_acknowledges_nothing_and_loses_nothing(self, small_disk, start, url):
        """Leader and follower share the disk; requests are refused while it is full, and taken again afterwards."""
        services = [start(), start(leads=False)]
        names = (f"t{k}" for k in range(10**6))
        taken = {name for name in (next(names) for _ in range(5)) if submit(services[0], name).status_code == 200}
        self.fill(small_disk)
        said, refused = {}, 0
        for _ in range(300):  # the log may still have room in pages that it holds already
            for api in services:
                name = next(names)
                answer = submit(api, name)
                assert answer.status_code in (200, 503)
                taken |= {name} if answer.status_code == 200 else set()
                if answer.status_code == 503 and answer.json()["detail"]["reason"] == "storage":
                    refused += 1
                    said[answer.json()["detail"]["message"]] = answer.headers["retry-after"]
            if refused > 3:
                break
        words = ("full", "space", "closed", "recovery mode", "connection failed")
        assert refused > 3 and any(word in message for message in said for word in words), said
        (small_disk / "filler").unlink()
        self.heal()
        wait_until(lambda: any(api.replica.term is not None and not api.replica.failing for api in services))
        wait_until(lambda: any(submit(api, name := next(names)).is_success and not taken.add(name) for api in services))
        wait_until(lambda: len({api.replica._memory.number for api in services}) == 1)
        here, wrong = audit(committed(url))
        assert not wrong and taken <= here
        assert len(here - taken) <= (0 if url.startswith("sqlite") else 1)  # its answer may have been lost on the way
        for api in services:
            assert set(api.replica._memory.core.scheduler.state.tasks) == here


@pytest.mark.slow
class TestFullTablesOfPostgres(TestFullDisk):
    size = "24m"

    @pytest.fixture
    def url(self, small_disk, own_postgres):
        shutil.chown(small_disk, "postgres")
        self.server = own_postgres
        with contextlib.closing(
            sa.create_engine(own_postgres.url, isolation_level="AUTOCOMMIT").connect()
        ) as connection:
            connection.execute(sa.text(f"CREATE TABLESPACE small LOCATION '{small_disk}'"))
            connection.execute(sa.text("CREATE DATABASE small TABLESPACE small"))
        yield f"{own_postgres.url.rpartition('/')[0]}/small"
        own_postgres.kill()


@pytest.mark.slow
class TestFullLogOfPostgres(TestFullTablesOfPostgres):
    size = "40m"

    @pytest.fixture
    def url(self, small_disk, own_postgres):
        self.server, log = own_postgres, own_postgres.data / "pg_wal"
        own_postgres.run("pg_ctl", "-D", str(own_postgres.data), "-w", "stop")
        shutil.copytree(log, small_disk, dirs_exist_ok=True)
        shutil.rmtree(log)
        log.symlink_to(small_disk)
        subprocess.run(["chown", "-R", "postgres", str(small_disk)], check=True)
        own_postgres.start()
        yield own_postgres.url
        own_postgres.kill()

    def fill(self, place):
        super().fill(place)
        engine = sa.create_engine(self.server.url, isolation_level="AUTOCOMMIT")
        with contextlib.suppress(sa.exc.OperationalError), engine.connect() as connection:
            for _ in range(3):  # the server goes down where it finds no room for its log
                connection.execute(sa.text("CREATE TABLE IF NOT EXISTS noise (x int)"))
                connection.execute(sa.text("INSERT INTO noise VALUES (1)"))
                connection.execute(sa.text("SELECT pg_switch_wal()"))
        engine.dispose()

    def heal(self):
        with contextlib.suppress(AssertionError):  # it may have started again by itself
            self.server.start()


@pytest.mark.parametrize("jump_s", [3600, -3600])
def test_wall_clocks_that_jump_change_no_lease_and_turn_no_time_back(start, monkeypatch, jump_s):
    api, follower = start(), start(leads=False)
    submit(api, "a")
    api.post("/v1/step")
    real = time.time
    monkeypatch.setattr(
        replica,
        "time",
        SimpleNamespace(monotonic=time.monotonic, perf_counter=time.perf_counter, time=lambda: real() + jump_s),
    )
    time.sleep(1.0)  # two leases
    assert api.replica.term == 1 and follower.replica.term is None
    api.post("/v1/step")
    api.__exit__()
    wait_until(lambda: follower.replica.term == 2)
    follower.post("/v1/step")
    first, second, third = (each["at_s"] for each in follower.replica.decisions())
    assert first <= second <= first + 60 and second <= third
