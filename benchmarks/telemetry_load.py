"""Load of the telemetry benchmark, in a separate process: nodes that write periodically, or a reader of single values.

Both use HTTP over plain sockets with pre-encoded bodies, because they share the machine with the server; each reports
its processor time: ``python -m benchmarks.telemetry_load write|read PORT NODES NAMES RATE SECONDS``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
import sys
import time
from typing import Any, cast

#: Placeholder of the time in a body, replaced when it is sent.
_TIME = b"1000000000.000"


def write(port: int, nodes: int, names: int, rate: float, seconds: float) -> dict[str, float]:
    """Post all values of each node in turn, one connection per node, with ``rate`` values per second in total.

    The schedule does not depend on the answers: a node that still waits for an answer skips its turn, which is counted.
    With rate 0, every node posts its values once.
    """
    with contextlib.suppress(ImportError):
        import uvloop

        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    return asyncio.run(_write(port, nodes, names, rate, seconds))


async def _write(port: int, nodes: int, names: int, rate: float, seconds: float) -> dict[str, float]:
    loop = asyncio.get_running_loop()
    links = []
    for n in range(nodes):
        link = (await loop.create_connection(lambda n=n: _Node(n, names), "127.0.0.1", port))[1]  # type: ignore[misc]
        links.append(cast(_Node, link))
        links[-1].post()  # otherwise the service closes the oldest of many idle connections
        while n % 50 == 49 and any(link.waits for link in links[-50:]):
            await asyncio.sleep(0.005)
    for link in links if rate else ():
        link.latency.clear()
    started, began, sent, skipped = time.monotonic(), time.process_time(), 0, 0
    while rate and (now := time.monotonic()) - started < seconds:
        while sent + skipped < (now - started) * rate / names:
            link = links[(sent + skipped) % nodes]
            if link.waits:
                skipped += 1
            else:
                link.post()
                sent += 1
        await asyncio.sleep(0.002)
    took = time.monotonic() - started
    until = time.monotonic() + 30
    while any(link.waits for link in links) and time.monotonic() < until:
        await asyncio.sleep(0.01)
    lost = [link.failed for link in links if link.failed]
    if lost or any(link.waits for link in links):
        raise RuntimeError(f"{len(lost)} answers were refusals: {lost[:1]}" if lost else "answers are out after 30 s")
    latency = sorted(second for link in links for second in link.latency)
    return {
        "rate": len(latency) * names / took,
        "skipped": skipped,
        "median": latency[len(latency) // 2],
        "p99": latency[int(len(latency) * 0.99)],
        "us per value": 1e6 * (time.process_time() - began) / (len(latency) * names),
    }


class _Node(asyncio.Protocol):
    """One node's connection."""

    def __init__(self, number: int, names: int) -> None:
        samples = [{"name": f"v{k}", "time": 0, "value": (number * names + k) / 7} for k in range(names)]
        text = json.dumps({"node": f"n{number}", "samples": samples})
        body = text.encode().replace(b'"time": 0', b'"time": ' + _TIME)
        kind = f"Content-Type: application/json\r\nContent-Length: {len(body)}"
        self._request = f"POST /v1/data HTTP/1.1\r\nHost: 127.0.0.1\r\n{kind}\r\n\r\n".encode() + body
        self._answer = b""
        self._sent = 0.0
        self.waits = False
        self.latency: list[float] = []
        self.failed = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def post(self) -> None:
        self.waits, self._answer, self._sent = True, b"", time.monotonic()
        self._transport.write(self._request.replace(_TIME, b"%14.3f" % time.time()))

    def data_received(self, data: bytes) -> None:
        self._answer += data
        if _whole(self._answer):
            self.waits = False
            self.latency.append(time.monotonic() - self._sent)
            if not self._answer.startswith(b"HTTP/1.1 200"):
                self.failed = self._answer.decode()

    def connection_lost(self, error: Exception | None) -> None:
        if self.waits:
            self.waits, self.failed = False, f"the connection ended: {error}"


def _whole(answer: bytes) -> bool:
    """Whether the head and the complete body of an answer have arrived."""
    head, gap, body = answer.partition(b"\r\n\r\n")
    return bool(gap) and len(body) >= int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])


def read(port: int, nodes: int, names: int, rate: float, seconds: float) -> dict[str, Any]:
    """Read a single value ``rate`` times per second; return the latencies in milliseconds."""
    rng, times = random.Random(0), []
    with socket.create_connection(("127.0.0.1", port), timeout=30) as link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        started, began = time.monotonic(), time.process_time()
        while (now := time.monotonic()) - started < seconds:
            path = f"/v1/data/v{rng.randrange(names)}/n{rng.randrange(nodes)}"
            link.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            answer = b""
            while not _whole(answer):
                answer += link.recv(65_536) or b"\r\n\r\n"
            times.append(1e3 * (time.monotonic() - now))
            if not answer.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(answer.decode())
            time.sleep(max(0.0, now + 1 / rate - time.monotonic()))
    times.sort()
    return {
        "reads": len(times),
        "median": times[len(times) // 2],
        "p99": times[int(len(times) * 0.99)],
        "worst": times[-1],
        "us per read": 1e6 * (time.process_time() - began) / len(times),
    }


if __name__ == "__main__":
    _what, _port, _nodes, _names, _rate, _seconds = sys.argv[1:]
    _load = {"write": write, "read": read}[_what]
    print(json.dumps(_load(int(_port), int(_nodes), int(_names), float(_rate), float(_seconds))))
