"""Schedulers that place one task at a time, fed with the events of a live scheduler, and their measured costs.

``python -m flowlex.systems.simulation.experiments.dispatch_schedulers WHO MACHINES EVENTS SEED`` feeds a stream to
one of them in a process of its own, to measure its processor seconds and memory separately.
"""

from __future__ import annotations

import heapq
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from flowlex.instances.flow import FlowInstance
from flowlex.instances.generators import generate
from flowlex.instances.instance_base import Part
from flowlex.systems.scheduler import event_log as ev
from flowlex.systems.scheduler.random_events import event_stream

Rule = Literal["queue", "random"]
_STEPS = 5
_DRAWS = 10


class Dispatcher:
    """Places waiting tasks by priority, then by arrival; a placed task stays on its machine.

    ``instance``: the cluster, and the jobs that wait at the start. ``rule``: ``queue``: to the machine with the largest
    fraction of free slots, scoring all machines for every task, as a Kubernetes-like scheduler does; ``random``:
    to any machine with a free slot. ``seed``: seed of the random choices.
    """

    def __init__(self, instance: FlowInstance, rule: Rule, seed: int = 0) -> None:
        self.rule: Rule
        self.rule, self.random = rule, np.random.default_rng(seed)
        self.number = {machine.name: k for k, machine in enumerate(instance.machines)}
        self.slots = np.array([machine.slots for machine in instance.machines])
        self.up = np.ones(len(self.slots), np.bool_)
        self.used = np.zeros(len(self.slots), np.int64)
        self.running: dict[str, int] = {}
        self.waiting: dict[str, int] = {}  # the newest entry of each task in the queue
        self.job: dict[str, str] = {}
        self.priority: dict[str, int] = {}
        self._queue: list[tuple[int, int, str]] = []
        self._count = 0
        for job in instance.jobs:
            self.handle(ev.Submit(job=job))

    def _wait(self, tasks: Iterable[str]) -> None:
        for name in tasks:
            self._count += 1
            self.waiting[name] = self._count
            heapq.heappush(self._queue, (self.priority[self.job[name]], self._count, name))

    def handle(self, event: Part) -> None:
        """Process an event."""
        if isinstance(event, ev.Submit):
            self.priority[event.job.name] = event.job.priority
            self.job |= {task.name: event.job.name for task in event.job.tasks}
            self._wait(task.name for task in event.job.tasks)
        elif isinstance(event, ev.Finish):
            self.waiting.pop(event.task, None)
            del self.job[event.task]
            machine = self.running.pop(event.task, None)
            if machine is not None:
                self.used[machine] -= 1
        elif isinstance(event, ev.AddMachine):
            self.up[self.number[event.machine.name]] = True
        elif isinstance(event, ev.RemoveMachine):
            lost = self.number[event.machine]
            self.up[lost], self.used[lost] = False, 0
            for name in [name for name, machine in self.running.items() if machine == lost]:
                del self.running[name]
                self._wait([name])
        elif isinstance(event, ev.SetPriority):
            self.priority[event.job] = event.priority
            self._wait([name for name in self.waiting if self.job[name] == event.job])

    def step(self) -> int:
        """Place the tasks that fit, the most important first; return their number."""
        placed, free = 0, int(np.where(self.up, self.slots - self.used, 0).sum())
        while self._queue and free > 0:
            _, entry, name = heapq.heappop(self._queue)
            if self.waiting.get(name) != entry:  # it ended, or waits with another priority
                continue
            del self.waiting[name]
            machine = self._machine()
            self.used[machine] += 1
            self.running[name] = machine
            placed, free = placed + 1, free - 1
        return placed

    def _machine(self) -> int:
        if self.rule == "random":
            for machine in self.random.integers(len(self.slots), size=_DRAWS).tolist():
                if self.up[machine] and self.used[machine] < self.slots[machine]:
                    return int(machine)
        open_ = self.up & (self.used < self.slots)
        if self.rule == "random":  # nearly full: draw among those that are open
            return int(self.random.choice(np.flatnonzero(open_)))
        return int(np.argmax(np.where(open_, 1.0 - self.used / np.maximum(self.slots, 1), -1.0)))


def feed(scheduler: Any, event: Part) -> None:
    """Pass an event to a scheduler, or let it decide."""
    if isinstance(event, ev.Step):
        scheduler.step()
    else:
        scheduler.handle(event)


def cost_of(who: Rule | Literal["live", "nobody"], machines: int, events: int, seed: int) -> Mapping[str, float]:
    """Return processor seconds and peak MB of a process in which one scheduler handles a stream of events.

    ``nobody`` only reads the stream: the cost of the interpreter and the cluster's description.
    """
    command = [sys.executable, "-m", __name__, who, *map(str, (machines, events, seed))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if done.returncode:
        raise RuntimeError(f"measuring {who!r} failed: {done.stderr[-500:]}")
    return cast(Mapping[str, float], json.loads(done.stdout))


def _live(who: str, machines: int, events: int, seed: int) -> dict[str, float]:
    instance = cast(FlowInstance, generate("flow-scale", seed=seed, machines=machines, tasks=2 * machines, slots=24))
    scheduler: Any = None
    if who == "live":  # imported here, since its code is part of its memory
        from flowlex.models.flow.goals import preset
        from flowlex.systems.scheduler.live.scheduler import FlowScheduler

        scheduler = FlowScheduler(instance, preset("quincy"), certify=False)
    elif who != "nobody":
        scheduler = Dispatcher(instance, cast(Rule, who), seed)
    seconds: list[float] = []  # of each step with the events before it; the first places all initially waiting tasks
    since = 0.0
    for event in event_stream(instance, seed=seed, steps=_STEPS, events=events):
        if scheduler is None or isinstance(event, ev.Cluster):
            continue
        began = time.process_time()
        feed(scheduler, event)
        since += time.process_time() - began
        if isinstance(event, ev.Step):
            seconds.append(since)
            since = 0.0
    return {"start_s": seconds[0] if seconds else 0.0, "steps_s": sum(seconds[1:]), "peak_mb": _peak_mb()}


def _peak_mb() -> float:
    """Return the peak memory of this process; on Linux not from ``getrusage``, which includes that of its parent."""
    status = Path("/proc/self/status")
    if status.exists():
        return float(status.read_text().partition("VmHWM:")[2].split()[0]) / 1024.0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0**2


if __name__ == "__main__":
    chosen, *numbers = sys.argv[1:]
    sys.stdout.write(json.dumps(_live(chosen, *map(int, numbers))))
