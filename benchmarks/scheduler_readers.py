"""The scheduler service over HTTP: 50 readers of a follower beside a working leader, and 200 events per second.

Leader, follower and readers run in a process each. The cluster is nearly full; each decision covers 100 events, two
decisions a second. Of four requests of a reader, two ask why a waiting task waits, one where a task is, and one for
``/metrics``. Once each reader asks at its own seconds (an answer's time counts from the second, even if the answer
before is late), and once each asks again as soon as it is answered. ``served``: the follower's own histogram, from the
request's first byte to the answer's, as a percentage within 50 ms; ``busy``: processor seconds per second.

Under pressure, tasks arrive and end for ten minutes while the service decides twice a second; at the end, the clients'
list of tasks is compared with the service's. Tables give the slowest decision (a bound from ``/metrics``), memory and
processor time of the service over time.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import numpy as np

from benchmarks import Row, Tables
from benchmarks.peers import memory_mb, processor_s
from benchmarks.telemetry import postgres_server
from flowlex.client import Scheduler
from flowlex.instances.files import write_instance
from flowlex.instances.flow import FlowInstance, FlowJob, FlowTask, Machine
from flowlex.systems.scheduler.event_log import Cancel, Finish, Submit

_EVENTS = 50
_READ = "from benchmarks.scheduler_readers import read; read({url!r}, {readers}, {every_s})"
_SERVE = "from flowlex.cli import main; main()"
_ROUTES = {"explanation": "/v1/explanation", "task": "/v1/task", "metrics": "/metrics"}


def tables(*, quick: bool = False) -> Tables:
    machines, steps, readers = (50, 5, 3) if quick else (10_000, 100, 50)
    size = f"{machines:,} machines, {2 * machines:,} slots"
    seconds = 5 if quick else 600
    made = [(f"{size}, {2 * _EVENTS} events a decision, {readers} readers", _beside(machines, steps, readers))]
    made.append((f"{size}, 200 events a second for {seconds} s, SQLite", _under_pressure(machines, seconds, "")))
    with postgres_server() as server:
        if server is not None:
            made.append((f"{size}, the same on PostgreSQL", _under_pressure(machines, seconds, server)))
    return made


def _beside(machines: int, steps: int, readers: int) -> list[Row]:
    with _service(machines, "--on-request", follower=True) as (url, follower, processes):
        return _measured(url, follower, [each.pid for each in processes], machines, steps, readers)


def _under_pressure(machines: int, seconds: int, database: str) -> list[Row]:
    rng, rows = random.Random(0), list[Row]()
    with (
        _service(machines, "--every-ms", "500", database=database) as (url, _, (process,)),
        Scheduler(url, patience_s=300.0, timeout_s=300.0) as scheduler,
    ):
        here = [f"first{k}" for k in range(2 * machines)]
        for at in range(0, len(here), 500):
            scheduler.send(*(_submit(name) for name in here[at : at + 500]))
        scheduler.step()
        late, before, spent, started = 0.0, _decisions(url), processor_s(process.pid), time.monotonic()
        for turn in range(2 * seconds):
            wait = started + turn / 2 - time.monotonic()
            late = max(late, -wait)
            time.sleep(max(wait, 0.0))
            rng.shuffle(here)
            gone, fresh = here[-_EVENTS:], [f"at{turn}-{k}" for k in range(_EVENTS)]
            scheduler.send(*(Cancel(task=task) for task in gone), *(_submit(name) for name in fresh))
            here[-_EVENTS:] = fresh
            if (turn + 1) % max(seconds // 5, 1) == 0:
                now = _decisions(url)
                steps = {bound: count - before[bound] for bound, count in now.items()}
                slowest = next(bound for bound, count in steps.items() if count == steps["+Inf"])
                rows.append({"s": (turn + 1) // 2, "decisions": int(steps["+Inf"]), "all within s": slowest})
                rows[-1] |= {
                    "resident MB": round(memory_mb("VmRSS", process.pid)),
                    "its processor s": round(processor_s(process.pid) - spent, 1),
                    "clients behind by s": round(late, 2),
                }
                late, before, spent = 0.0, now, processor_s(process.pid)
        scheduler.step()
        figures = httpx.get(f"{url}/metrics", timeout=60.0).text
        counted = sum(float(count) for count in re.findall(r'what="tasks_(?:running|waiting)"} (\S+)', figures))
        assert set(scheduler.placements().places) <= set(here) and counted == len(here), "tasks were lost or doubled"
    return rows


def _decisions(url: str, histogram: str = "decision_seconds", route: str = "") -> dict[str, float]:
    """Return the cumulative number of decisions (or of answers to a route) by upper bound of their seconds."""
    text = httpx.get(f"{url}/metrics", timeout=60.0).text
    more = re.escape(f',route="{route}"') if route else ""
    return {
        bound: float(count) for bound, count in re.findall(histogram + r'_bucket{le="(\S+?)"' + more + r"} (\S+)", text)
    }


@contextmanager
def _service(
    machines: int, *options: str, follower: bool = False, database: str = ""
) -> Iterator[tuple[str, str, list[subprocess.Popen[str]]]]:
    """Run a service, and perhaps a follower, in separate processes; yield both addresses and the processes."""
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        cluster = Path(place, "cluster.json")
        racks = (Machine(name=f"m{k}", slots=2, rack=f"r{k // 40}") for k in range(machines))
        write_instance(FlowInstance(name="readers", machines=tuple(racks)), cluster)
        command = [sys.executable, "-c", _SERVE, "serve", "scheduler", *options, "--no-auth", "--port", "0"]
        command += ["--requests-per-s", "0", "--database", database or f"sqlite:///{place}/scheduler.db"]

        def begin(*more: str) -> tuple[str, subprocess.Popen[str]]:
            quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
            service = stack.enter_context(subprocess.Popen([*command, *more], **quiet))
            stack.callback(service.terminate)
            assert service.stdout is not None
            return next(found[1] for line in service.stdout if (found := re.search(r"Serving (\S+)", line))), service

        url, process = begin("--goals", "quincy", "--cluster", str(cluster))
        while httpx.get(f"{url}/readyz", timeout=60.0).status_code != 200:
            time.sleep(0.05)
        if follower:
            its_url, second = begin("--follow")
            yield url, its_url, [process, second]
        else:
            yield url, url, [process]


def _measured(url: str, follower: str, pids: list[int], machines: int, steps: int, readers: int) -> list[Row]:
    rng, rows = random.Random(0), list[Row]()
    with Scheduler(url, patience_s=300.0, timeout_s=300.0) as scheduler:
        for at in range(0, 2 * machines, 500):
            scheduler.send(*(_submit(f"first{k}") for k in range(at, at + 500)))
            scheduler.step()
        _decide(scheduler, rng, 5, "warm")
        paced, pressing = f"{readers} readers, 1 request/s each", f"{readers} readers without pause"
        modes = (("alone", 0, 1.0), (paced, readers, 1.0), (pressing, readers, 0.0), ("alone again", 0, 1.0))
        for label, count, every_s in modes:
            command = [sys.executable, "-c", _READ.format(url=follower, readers=count, every_s=every_s)]
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout is not None and process.stdout.readline() == "ready\n"
                all_pids = dict(zip(("leader", "follower", "readers"), (*pids, process.pid), strict=True))
                began, spent = time.monotonic(), {name: processor_s(pid) for name, pid in all_pids.items()}
                before = {route: _decisions(follower, "request_seconds", _ROUTES[route]) for route in _ROUTES}
                ms = _decide(scheduler, rng, steps, label.replace(" ", "").replace("/", ""))
                seconds = time.monotonic() - began
                busy = {name: (processor_s(pid) - spent[name]) / seconds for name, pid in all_pids.items()}
                found = json.loads(process.communicate("stop\n")[0])
            row = {"decisions": label, "step p50 ms": np.median(ms), "step p99 ms": np.quantile(ms, 0.99)}
            row["answers/s"] = sum(map(len, found.values())) / seconds
            for route, taken in found.items():
                row |= {f"{route} p50 ms": np.median(taken or [np.nan])}
                row |= {f"{route} p99 ms": np.quantile(taken or [np.nan], 0.99)}
                within = _decisions(follower, "request_seconds", _ROUTES[route])
                within = {bound: count - before[route].get(bound, 0.0) for bound, count in within.items()}
                row[f"{route} served"] = 100 * within["0.05"] / within["+Inf"] if within.get("+Inf") else np.nan
            row |= {f"{name} busy": each for name, each in busy.items()}
            rows.append({name: each if isinstance(each, str) else round(float(each), 2) for name, each in row.items()})
    return rows


def _submit(name: str) -> Submit:
    return Submit(job=FlowJob(name=name, tasks=(FlowTask(name=name),)))


def _decide(scheduler: Scheduler, rng: random.Random, steps: int, label: str) -> list[float]:
    """Return the milliseconds of decisions as measured by a client."""
    found, running, begun = [], sorted(scheduler.placements().places), time.monotonic()
    for step in range(steps):
        time.sleep(max(0.0, begun + step / 2 - time.monotonic()))
        rng.shuffle(running)
        ended, running[-_EVENTS:] = running[-_EVENTS:], []
        scheduler.send(*(Finish(task=task) for task in ended))
        scheduler.send(*(_submit(f"{label}-{step}-{k}") for k in range(_EVENTS + 1)))
        started = time.perf_counter()
        decision = scheduler.step()
        found.append(1e3 * (time.perf_counter() - started))
        gone = {task for task, *_ in decision.stopped}
        running = sorted({*running, *(task for task, *_ in decision.placed)} - gone)
    return found


def read(url: str, readers: int, every_s: float) -> None:
    """Send requests until a line arrives on standard input; then print the milliseconds of answers by route."""
    asyncio.run(_read(url, readers, every_s))


async def _read(url: str, readers: int, every_s: float) -> None:
    found: dict[str, list[float]] = {"explanation": [], "task": [], "metrics": []}
    at, waiting, stop = urlsplit(url), dict[str, None](), asyncio.Event()
    places = sorted(httpx.get(f"{url}/v1/placements", timeout=60.0).json()["places"])

    async def asked() -> Callable[[str], Awaitable[tuple[int, bytes]]]:
        """Open a connection; return what sends a request on it."""
        source, sink = await asyncio.open_connection(at.hostname, at.port)

        async def ask(path: str) -> tuple[int, bytes]:
            sink.write(f"GET {path} HTTP/1.1\r\nHost: {at.hostname}\r\n\r\n".encode())
            head = await source.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
            assert length is not None, head
            return int(head.split(maxsplit=2)[1]), await source.readexactly(int(length[1]))

        return ask

    async def follow() -> None:
        """Keep the list of the last tasks that wait."""
        ask, last = await asked(), 0
        while not stop.is_set():
            status, body = await ask(f"/v1/decisions?after={last}")
            for decision in json.loads(body) if status == 200 else ():
                last = decision["number"]
                waiting.update(dict.fromkeys(task for task, _ in decision["waiting"]))
                for task, *_ in decision["placed"]:
                    waiting.pop(task, None)
            for task in list(waiting)[:-20]:
                del waiting[task]
            await asyncio.sleep(0.5)

    async def one(number: int) -> None:
        ask, rng = await asked(), random.Random(number)
        due = time.perf_counter() + every_s * number / max(readers, 1)
        for count in itertools.count(number):
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            if stop.is_set():
                return
            due = due + every_s if every_s else time.perf_counter()
            route = ("explanation", "task", "explanation", "metrics")[count % 4]
            name = rng.choice(list(waiting) if route == "explanation" and waiting else places)
            paths = {"explanation": f"/v1/explanation?task={name}", "task": f"/v1/task?name={name}"}
            status, _ = await ask(paths.get(route, "/metrics"))
            if status == 200:  # others have ended or started meanwhile
                found[route].append(1e3 * (time.perf_counter() - due + every_s))

    tasks = [asyncio.create_task(work) for work in (follow(), *map(one, range(readers)))]
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.readline)
    stop.set()
    await asyncio.gather(*tasks)
    sys.stdout.write(json.dumps(found))
