"""Long run of the live scheduler, to check that memory does not grow.

Tasks arrive and depart as in `flow_scheduling` (100 events per step), machines leave and return, every step is
certified. Resident memory is read after each tenth of the run, after a garbage collection.
"""

from __future__ import annotations

import gc
import time

import numpy as np

from benchmarks import Row, Tables
from flowlex.instances.generators.flow import flow_scale
from flowlex.systems.scheduler.live.scheduler import FlowScheduler

from .flow_scheduling import Life
from .peers import memory_mb

_STEP = 100


def tables(*, quick: bool = False) -> Tables:
    events, machines = (20_000, 100) if quick else (1_000_000, 1_000)
    title = f"{events:,} events, {machines} machines of 3 slots, {2 * machines} tasks, {_STEP} events a step"
    return [(title, _life(events, machines))]


def _life(events: int, machines: int) -> list[Row]:
    instance = flow_scale(seed=0, machines=machines, tasks=2 * machines)
    life = Life.of(instance)
    scheduler = life.scheduler
    life.step(_STEP)
    rows, steps, done, ms = [_row(scheduler, 0, [0.0])], events // _STEP, 0, []
    started = time.process_time()
    for number in range(1, steps + 1):
        if number % 50 == 0:  # a machine restarts
            machine = instance.machines[number // 50 % machines]
            scheduler.remove_machine(machine.name)
            scheduler.add_machine(machine)
        ms.append(1e3 * life.step(_STEP)["total"])
        done += _STEP
        if number % (steps // 10) == 0:
            rows.append(_row(scheduler, done, ms) | {"cpu s": round(time.process_time() - started, 1)})
            ms = []
    return rows


def _row(scheduler: FlowScheduler, events: int, ms: list[float]) -> Row:
    gc.collect()
    session = scheduler.state.session
    return {
        "events": events,
        "resident MB": round(memory_mb("VmRSS"), 1),
        "arc slots": len(session.flow),
        "tasks": len(scheduler.state.tasks),
        "median ms": round(float(np.median(ms)), 2),
        "p99 ms": round(float(np.percentile(ms, 99)), 2),
    }
