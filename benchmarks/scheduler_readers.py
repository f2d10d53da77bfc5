"""The scheduler service over HTTP: decisions while 50 clients read, and ten minutes of 200 events per second.

The leader and a follower run in a process each, the readers of the follower in another. Each reader sends two requests
per second: the place of a task, and every tenth time why a task waits. Readers run at low priority (nice), as they are
on other machines in practice. The cluster is nearly full; each decision covers 100 events, two decisions a second.

Under pressure, tasks arrive and end for ten minutes while the service decides twice a second; at the end, the clients'
list of tasks is compared with the service's. Tables give the slowest decision (a bound from ``/metrics``), memory and
processor time of the service over time.
"""

from __future__ import annotations

import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import numpy as np

from benchmarks import Row, Tables
from benchmarks.peers import memory_mb, processor_s
from benchmarks.telemetry import postgres_server
from flowlex.client import Refused, Scheduler
from flowlex.instances.files import write_instance
from flowlex.instances.flow import FlowInstance, FlowJob, FlowTask, Machine
from flowlex.systems.scheduler.event_log import Cancel, Finish, Submit

_EVENTS = 50
_READ = "import os; os.nice(15); from benchmarks.scheduler_readers import read; read({url!r}, {readers})"
_SERVE = "from flowlex.cli import main; main()"


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
    with _service(machines, "--on-request", follower=True) as (url, follower, _):
        return _measured(url, follower, machines, steps, readers)


def _under_pressure(machines: int, seconds: int, database: str) -> list[Row]:
    rng, rows = random.Random(0), list[Row]()
    with (
        _service(machines, "--every-ms", "500", database=database) as (url, _, process),
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


def _decisions(url: str) -> dict[str, float]:
    """Return the cumulative number of decisions by upper bound of their seconds."""
    text = httpx.get(f"{url}/metrics", timeout=60.0).text
    return {bound: float(count) for bound, count in re.findall(r'decision_seconds_bucket{le="(\S+?)"} (\S+)', text)}


@contextmanager
def _service(
    machines: int, *options: str, follower: bool = False, database: str = ""
) -> Iterator[tuple[str, str, subprocess.Popen[str]]]:
    """Run a service, and perhaps a follower, in separate processes; yield both addresses and the leader's process."""
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
        yield url, begin("--follow")[0] if follower else url, process


def _measured(url: str, follower: str, machines: int, steps: int, readers: int) -> list[Row]:
    rng, rows = random.Random(0), list[Row]()
    with Scheduler(url, patience_s=300.0, timeout_s=300.0) as scheduler:
        for at in range(0, 2 * machines, 500):
            scheduler.send(*(_submit(f"first{k}") for k in range(at, at + 500)))
            scheduler.step()
        _decide(scheduler, rng, 5, "warm")
        for label, count in (("alone", 0), (f"{readers} readers", readers)):
            command = [sys.executable, "-c", _READ.format(url=follower, readers=count)]
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout is not None and process.stdout.readline() == "ready\n"
                ms = _decide(scheduler, rng, steps, label)
                explained = [float(each) for each in process.communicate("stop\n")[0].split()] or [np.nan]
            figures = {"p50 ms": np.median(ms), "p99 ms": np.quantile(ms, 0.99)}
            figures |= {"explanation p50 ms": np.median(explained), "its p99 ms": np.quantile(explained, 0.99)}
            rows.append({"decisions": label} | {name: round(float(value), 1) for name, value in figures.items()})
    within = {f"{route}, % within 50 ms": _within(follower, route) for route in ("/v1/explanation", "/v1/task")}
    rows[-1] |= within | {"answers of the follower": int(_answers(follower, "", "+Inf"))}
    return rows


def _within(url: str, route: str) -> float:
    """Percentage of a route's answers whose first byte left the service within 50 ms."""
    return round(100 * _answers(url, route, "0.05") / max(_answers(url, route, "+Inf"), 1), 1)


def _answers(url: str, route: str, bound: str) -> float:
    """Answers of a service on its routes that begin so, by its own clock within a bound."""
    text = httpx.get(f"{url}/metrics", timeout=60.0).text
    wanted = rf'request_seconds_bucket{{le="{re.escape(bound)}",route="{re.escape(route)}[^"]*"}} (\S+)'
    return sum(float(count) for count in re.findall(wanted, text))


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


def read(url: str, readers: int) -> None:
    """Send requests until a line arrives on standard input; then print the milliseconds of explanations."""
    stop, ms = threading.Event(), list[float]()

    def ask(seed: int) -> None:
        rng, waiting, last = random.Random(seed), list[str](), 0
        with Scheduler(url, timeout_s=300.0) as scheduler:
            places = sorted(scheduler.placements().places)
            for count in range(10**9):
                if stop.wait(rng.uniform(0.25, 0.75)):
                    return
                if count % 10 == seed % 10:
                    news = scheduler.decisions(last)
                    last = news[-1].number if news else last
                    waiting = [*waiting, *(each[0] for decision in news for each in decision.waiting)][-20:]
                started = time.perf_counter()
                try:
                    if waiting and count % 10 == seed % 10:
                        scheduler.explain(rng.choice(waiting))
                        ms.append(1e3 * (time.perf_counter() - started))
                    else:
                        scheduler.task(rng.choice(places))
                except Refused:  # it has ended or started meanwhile
                    continue

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(readers)]
    for thread in threads:
        thread.start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    stop.set()
    for thread in threads:
        thread.join()
    sys.stdout.write("\n".join(f"{each:.3f}" for each in ms))
