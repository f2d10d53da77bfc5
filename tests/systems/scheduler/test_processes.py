"""Real processes: a takeover under writing clients, and the page that tells how to run them."""

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from tests.documents import ROOT, blocks, lines
from tests.systems.scheduler.conftest import wait_until
from tests.systems.scheduler.processes import Client, Process, audit, committed

pytestmark = pytest.mark.rare


@pytest.mark.timeout(900)
def test_killed_and_paused_leaders_lose_nothing(tmp_path):
    """Twice a follower takes over: from a killed leader, and from one that is stopped and wakes up later.

    Meanwhile the leader's wall clock goes an hour ahead, and those of the others an hour back.
    """
    url = f"sqlite:///{tmp_path}/scheduler.db"
    arguments = ("--database", url, "--every-ms", "20", "--port", "0")
    with contextlib.ExitStack() as stack:
        ahead, behind = tmp_path / "ahead", tmp_path / "behind"
        ahead.touch()
        behind.touch()
        first = Process(tmp_path, *arguments, clock=ahead)
        second, third = (Process(tmp_path, *arguments, "--follow", clock=behind) for _ in range(2))
        for each in (first, second, third):
            stack.callback(each.kill)
        stop = threading.Event()
        clients = [Client(f"c{k}", [first.url, second.url, third.url], stop) for k in range(4)]
        for client in clients:
            client.start()
        wait_until(lambda: all(len(client.times) > 5 for client in clients), 120)
        ahead.write_text("3600")
        behind.write_text("-3600")
        time.sleep(3)  # longer than a lease
        assert first.ready()
        first.kill()
        wait_until(lambda: second.ready() or third.ready(), 60)
        leader, other = (second, third) if second.ready() else (third, second)
        acknowledged = [len(client.times) for client in clients]
        wait_until(lambda: all(len(c.times) > n for c, n in zip(clients, acknowledged, strict=True)), 120)
        os.kill(leader.process.pid, signal.SIGSTOP)
        wait_until(other.ready, 60)
        with contextlib.suppress(ProcessLookupError):
            os.kill(leader.process.pid, signal.SIGCONT)  # it follows now, unless it was stopped within a commit
        time.sleep(2)
        stop.set()
        for client in clients:
            client.join(60)
        assert [client.wrong for client in clients] == [""] * len(clients)
        here, wrong = audit(committed(url))
        assert not wrong
        acknowledged_tasks = set().union(*(client.here for client in clients))
        assert acknowledged_tasks <= here
        assert other.ready() and not leader.ready()


def free_port() -> str:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])


@pytest.mark.timeout(900)
def test_the_page_runs_from_the_first_start_to_a_takeover(tmp_path, monkeypatch):
    text = (ROOT / "docs" / "howto" / "scheduler-service.md").read_text()
    for port in ("8760", "8761"):
        text = text.replace(port, free_port())
    found = blocks(text)
    flowlex = [sys.executable, "-m", "flowlex"]
    served = []
    with contextlib.ExitStack() as stack:
        for line in [line for language, block in found if language == "console" for line in lines(block)]:
            words = shlex.split(line)[1:]
            if words[0] == "serve":
                served.append(Process(tmp_path, command=[*flowlex, *words]))
                stack.callback(served[-1].kill)
            elif words[0] == "generate":
                subprocess.run([*flowlex, *words], cwd=tmp_path, check=True)
        monkeypatch.chdir(tmp_path)
        first, *rest = [block for language, block in found if language == "python"]
        exec(first, {})
        served[0].kill()
        exec(first.replace('name="j"', 'name="k"').replace('name="t"', 'name="u"').replace('"t"', '"u"'), {})
        assert served[1].ready()
        for block in rest:
            exec(block, {})
