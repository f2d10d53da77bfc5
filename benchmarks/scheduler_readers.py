"""The scheduler service beside readers: decisions over HTTP alone, and while 50 clients ask.

The service runs in a process of its own, the readers in another. Each reader asks twice a second: where a task is, and
every tenth time why a task waits. The cluster is nearly full; each decision takes 100 events.
"""

from __future__ import annotations

import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from flowlex.client import Refused, Scheduler
from flowlex.instances.events import Finish, Submit
from flowlex.instances.files import write_instance
from flowlex.instances.flow import FlowInstance, FlowJob, FlowTask, Machine

__all__ = ["tables"]

Row = dict[str, object]
_EVENTS = 50
_READ = "from benchmarks.scheduler_readers import read; read({url!r}, {readers})"
_SERVE = "from flowlex.cli import main; main()"


def tables(*, quick: bool = False) -> list[tuple[str, list[Row]]]:
    """Title and rows of every table."""
    machines, steps, readers = (50, 5, 3) if quick else (10_000, 100, 50)
    title = f"{machines:,} machines, {2 * machines:,} slots, {2 * _EVENTS} events a decision, {readers} readers"
    return [(title, _rows(machines, steps, readers))]


def _rows(machines: int, steps: int, readers: int) -> list[Row]:
    with tempfile.TemporaryDirectory() as place:
        cluster = Path(place, "cluster.json")
        racks = (Machine(name=f"m{k}", slots=2, rack=f"r{k // 40}") for k in range(machines))
        write_instance(FlowInstance(name="readers", machines=tuple(racks)), cluster)
        options = ["--no-auth", "--port", "0", "--on-request", "--requests-per-s", "0", "--goals", "quincy"]
        command = [sys.executable, "-c", _SERVE, "serve", "scheduler", "--state", f"{place}/state", *options]
        command += ["--cluster", str(cluster)]
        quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
        with subprocess.Popen(command, **quiet) as service:
            assert service.stdout is not None
            url = next(found[1] for line in service.stdout if (found := re.search(r"Serving (\S+)", line)))
            try:
                return _measured(url, machines, steps, readers)
            finally:
                service.terminate()


def _measured(url: str, machines: int, steps: int, readers: int) -> list[Row]:
    rng, rows = random.Random(0), list[Row]()
    with Scheduler(url, patience_s=300.0, timeout_s=300.0) as scheduler:
        for at in range(0, 2 * machines, 500):
            scheduler.send(*(_submit(f"first{k}") for k in range(at, at + 500)))
            scheduler.step()
        _decide(scheduler, rng, 5, "warm")
        for label, count in (("alone", 0), (f"{readers} readers", readers)):
            command = [sys.executable, "-c", _READ.format(url=url, readers=count)]
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout is not None and process.stdout.readline() == "ready\n"
                ms = _decide(scheduler, rng, steps, label)
                explained = [float(each) for each in process.communicate("stop\n")[0].split()] or [np.nan]
            figures = {"p50 ms": np.median(ms), "p99 ms": np.quantile(ms, 0.99)}
            figures["explanation p50 ms"] = np.median(explained)
            rows.append({"decisions": label} | {name: round(float(value), 1) for name, value in figures.items()})
    return rows


def _submit(name: str) -> Submit:
    return Submit(job=FlowJob(name=name, tasks=(FlowTask(name=name),)))


def _decide(scheduler: Scheduler, rng: random.Random, steps: int, label: str) -> list[float]:
    """Milliseconds of decisions, as a client has them."""
    found = []
    for step in range(steps):
        ended = rng.sample(sorted(scheduler.placements().places), _EVENTS)
        scheduler.send(*(Finish(task=task) for task in ended))
        scheduler.send(*(_submit(f"{label}-{step}-{k}") for k in range(_EVENTS + 1)))
        started = time.perf_counter()
        scheduler.step()
        found.append(1e3 * (time.perf_counter() - started))
    return found


def read(url: str, readers: int) -> None:
    """Ask until standard input says to stop; then write the milliseconds of explanations."""
    stop, ms = threading.Event(), list[float]()

    def ask(seed: int) -> None:
        rng, waiting = random.Random(seed), list[str]()
        with Scheduler(url, timeout_s=300.0) as scheduler:
            places = sorted(scheduler.placements().places)
            for count in range(10**9):
                if stop.wait(rng.uniform(0.25, 0.75)):
                    return
                if count % 10 == seed % 10:
                    waiting = [each[0] for decision in scheduler.decisions() for each in decision.waiting][-20:]
                started = time.perf_counter()
                try:
                    if waiting and count % 10 == seed % 10:
                        scheduler.explain(rng.choice(waiting))
                        ms.append(1e3 * (time.perf_counter() - started))
                    else:
                        scheduler.task(rng.choice(places))
                except Refused:  # it ended, or runs meanwhile
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
