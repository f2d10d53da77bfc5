"""Slow and many connections over real sockets: deadlines, limits per address, known and unknown clients."""

import contextlib
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import uvicorn

from flowlex.systems.telemetry.connection_limits import ConnectionLimits, Connections
from flowlex.systems.telemetry.rest_app import create_app
from flowlex.systems.telemetry.service_context import Settings
from flowlex.systems.telemetry.store import Store
from flowlex.systems.telemetry.tokens_and_rights import Role, new_token


@pytest.fixture
def serve(sqlite_store):
    """Serve with given limits in a thread; returns port, connections and a reader's token."""
    with contextlib.ExitStack() as stack:

        def start(**limits):
            connections = Connections(ConnectionLimits(**limits))
            app = create_app(sqlite_store, Settings(requests_per_s=None))
            config = uvicorn.Config(app, port=0, http=connections.protocol, ws="none", log_config=None)
            server, listener = uvicorn.Server(config), config.bind_socket()
            thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
            thread.start()
            stack.callback(thread.join, 60)
            stack.callback(setattr, server, "should_exit", True)
            port = listener.getsockname()[1]
            until = time.monotonic() + 60
            while not server.started:
                assert time.monotonic() < until
                time.sleep(0.01)
            return port, connections, new_token(sqlite_store, Role.READER, label="test")

        yield start


def connect(port, text=b""):
    made = socket.create_connection(("127.0.0.1", port), timeout=60)
    made.sendall(text)
    return made


def ended(connection):
    """Whether the server closed a connection; waits for it."""
    with contextlib.suppress(ConnectionError):
        return connection.recv(1) == b""
    return True


ASK = "/v1/data?name=v&node=n"
HALF = b"GET /v1/health HTTP/1.1\r\nHost: a\r\n"
BODY = b"POST /v1/data HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\nAuthorization: Bearer TOKEN\r\n\r\nabc"


@pytest.mark.parametrize(
    ("text", "limits", "reason"),
    [
        (b"", {"header_s": 0.2}, "header"),
        (HALF, {"header_s": 0.2}, "header"),
        (BODY, {"header_s": 60, "body_s": 0.2}, "body"),
    ],
)
def test_what_does_not_arrive_in_time_is_closed(serve, text, limits, reason):
    port, connections, token = serve(**limits)
    with connect(port, text.replace(b"TOKEN", token.encode())) as slow:
        while not ended(slow):  # an answer may come first
            pass
    assert connections.closed == {reason: 1}


def test_an_idle_connection_between_requests_stays(serve):
    port, connections, token = serve(header_s=0.3)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http:
        for _ in range(3):
            answer = http.get(
                "/v1/data", params={"name": "v", "node": "n"}, headers={"Authorization": f"Bearer {token}"}
            )
            assert answer.status_code == 200
            time.sleep(0.5)
    assert not connections.closed


def test_connections_of_one_address_are_bounded(serve):
    port, connections, _ = serve(per_address=3)
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(connect(port, HALF)) for _ in range(3)]
        assert ended(stack.enter_context(connect(port)))
        held.pop().close()
        until = time.monotonic() + 60
        while httpx.get(f"http://127.0.0.1:{port}/healthz", trust_env=False).status_code != 200:
            assert time.monotonic() < until
    assert set(connections.closed) == {"address"}


def test_strangers_do_not_shut_known_clients_out(serve):
    port, connections, token = serve(strangers=5, per_address=1000, header_s=60)
    known = {"Authorization": f"Bearer {token}"}
    with contextlib.ExitStack() as stack:
        http = stack.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60))
        assert http.get(ASK, headers=known).status_code == 200
        for count in range(60):
            stack.enter_context(connect(port, HALF))
            if count % 10 == 0:
                assert http.get(ASK, headers=known).status_code == 200
        fresh = stack.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60))
        assert fresh.get(ASK, headers=known).status_code == 200
    assert connections.closed["strangers"] >= 50


#: Opens connections from several addresses at a given rate and sends one header byte per second on each.
SLOW = """
import asyncio, sys
port, count, addresses, rate = map(int, sys.argv[1:])
async def slow(k):
    await asyncio.sleep(k / rate)
    while True:
        try:
            _, out = await asyncio.open_connection("127.0.0.1", port, local_addr=(f"127.0.1.{1 + k % addresses}", 0))
            out.write(b"GET /v1/health HTTP/1.1\\r\\nX: ")
            while True:
                out.write(b"a")
                await out.drain()
                await asyncio.sleep(1)
        except OSError:
            await asyncio.sleep(count / rate)  # closed: it comes again
async def all_of_them():
    print("begun", flush=True)
    await asyncio.gather(*(slow(k) for k in range(count)))
asyncio.run(all_of_them())
"""


@pytest.mark.timeout(300)
@pytest.mark.rare
@pytest.mark.parametrize(
    ("count", "addresses", "seconds"), [(600, 10, 2), pytest.param(10_000, 50, 30, marks=pytest.mark.slow)]
)
def test_agents_are_answered_beside_slow_connections(processes, port, tmp_path, count, addresses, seconds):
    url = f"sqlite:///{tmp_path}/s.db"
    with contextlib.closing(Store(url)) as store:
        tokens = [new_token(store, Role.AGENT, node=f"n{k}", label="test") for k in range(20)]
    processes.serve(url, port)
    times: list[float] = []
    stop = threading.Event()

    def agent(number):
        headers = {"Authorization": f"Bearer {tokens[number]}"}
        with httpx.Client(base_url=f"http://127.0.0.1:{port}/v1", headers=headers, trust_env=False, timeout=60) as http:
            while not stop.wait(0.2):
                began = time.monotonic()
                sample = {"name": "v", "time": time.time(), "value": 1}
                answer = http.post("/data", json={"node": f"n{number}", "samples": [sample]})
                assert answer.status_code == 200, answer.text
                times.append(time.monotonic() - began)

    command = [sys.executable, "-c", SLOW, str(port), str(count), str(addresses), "1000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as flood, ThreadPoolExecutor(len(tokens)) as pool:
        try:
            assert flood.stdout is not None and flood.stdout.readline() == b"begun\n"
            agents = [pool.submit(agent, number) for number in range(len(tokens))]
            stop.wait(seconds)
            assert flood.poll() is None
        finally:
            stop.set()
            flood.kill()
        for each in agents:
            each.result()  # none was refused or cut off
    times.sort()
    print(f"{len(times)} writes, p99 {1000 * times[int(0.99 * len(times))]:.0f} ms, worst {1000 * times[-1]:.0f} ms")
    assert len(times) > len(tokens)
