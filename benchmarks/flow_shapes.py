"""Steps of 100 and 1000 events and shocks on clusters of several shapes, compared with OR-Tools from scratch.

Each step withdraws random tasks and submits as many; it is timed from events to changes, the certificate separately.
The tables give the median, 99th percentile and maximum over all steps (full garbage collections are postponed, see
`collect_on_request`), and the seconds of OR-Tools from arrays to flows on the final network; if stages are solved one
after the other, the sum over their networks. The optima must be equal. A shock is one step after many simultaneous
changes; OR-Tools then gets the network that the step has to solve. All times are processor times. ``busy``: load
average per core at the end of the run.

Every shape ends after its number of steps or `_MOST_S` seconds, whichever comes first (column ``steps``), so that the
benchmark takes about eight minutes on an idle machine, and fifteen at most.
If OR-Tools refuses the costs (BAD_COST_RANGE), it gets equivalent smaller ones (see `ortools`), reported in column
``its costs``; ``nan``: it refuses these, too.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from copy import deepcopy
from typing import Any

import numpy as np

from benchmarks import Row, Tables
from benchmarks.flow_scheduling import GOALS, SEED, Life, ortools, use_processor_time
from flowlex.instances.generators.flow import flow_scale
from flowlex.models.flow.goals import Continuity, FairShares
from flowlex.systems.scheduler.live import exact_state
from flowlex.systems.scheduler.live.garbage_collection import collect_on_request
from flowlex.systems.scheduler.live.scheduler import FlowScheduler
from flowlex.systems.scheduler.warm_network.staged_network import PhasedSession

#: Time limit of the steps of a shape, in seconds.
_MOST_S = 25.0


def tables(*, quick: bool = False) -> Tables:
    use_processor_time()
    machines, steps = (200, 1) if quick else (10_000, 100)
    spare = {"machines": machines, "tasks": 2 * machines}
    nearly_full = {"machines": machines, "tasks": machines * 285 // 100}
    overfull = {"machines": machines, "tasks": machines * 104 // 100, "slots": 1}
    shared = (*GOALS, FairShares())
    shapes: list[tuple[str, dict[str, int], dict[str, Any], int]] = [
        ("spare", spare, {}, 20 * steps),  # 2000 steps, for a meaningful 99th percentile
        ("nearly full", nearly_full, {}, 20 * steps),
        ("overfull", overfull, {}, 20 * steps),
        ("FairShares, spare", spare, {"goals": shared}, 20 * steps),
        (
            "FairShares, overfull",
            {"machines": machines, "tasks": machines * 104 // 100, "slots": 1},
            {"goals": shared},
            20 * steps,
        ),
        ("phases", spare, {"method": "phases", "lexicographic": True}, 20 * steps),
        ("lexicographic", spare, {"lexicographic": True}, 20 * steps),
    ]
    title = f"{machines:,} machines".replace(",", " ")
    many = 10 if quick else 1000
    return [
        (f"{title}, steps of 100 events", [_shape(*shape) for shape in shapes]),
        (f"{title}, steps of {many} events", [_shape(*shape, events=many, most_s=_MOST_S / 5) for shape in shapes]),
        (
            f"{title}, shocks",
            _shocks({"spare": spare, "nearly full": nearly_full, "overfull": overfull}, 1 if quick else 5),
        ),
    ]


def _busy() -> float:
    return round(os.getloadavg()[0] / (os.cpu_count() or 1), 1)


def _peer(session: Any) -> tuple[float, int, str]:
    """Return OR-Tools' seconds on a network (NaN if refused), number of stages, and which costs."""
    session.solve()
    stages: list[Any] = session.stages if isinstance(session, PhasedSession) else [session]
    for lowered in (False, True):
        try:
            found = [ortools(stage, lowered=lowered) for stage in stages]
        except RuntimeError as error:  # costs out of its range
            print(error, file=sys.stderr)
            continue
        for stage, (_, cost) in zip(stages, found, strict=True):
            assert stage.objective == cost, "the optima differ"
        return sum(seconds for seconds, _ in found), len(stages), "lowered" if lowered else "the same"
    return float("nan"), len(stages), "refused"


def _shape(
    name: str,
    sizes: dict[str, int],
    options: dict[str, Any],
    steps: int,
    *,
    events: int = 100,
    most_s: float = _MOST_S,
) -> Row:
    life = Life.of(flow_scale(seed=SEED, **sizes), **options)
    life.scheduler.step()
    collect_on_request()
    life.step(10)
    seconds: list[dict[str, float]] = []
    ends = time.monotonic() + most_s
    while len(seconds) < steps and time.monotonic() < ends:
        seconds.append(life.step(events))
    life.scheduler.prepare()  # placing tasks has changed costs since the step
    peer, stages, costs = _peer(life.scheduler.state.session)
    ms = 1e3 * np.array([s["total"] - s["check"] for s in seconds])
    return {
        "shape": name,
        "steps": len(seconds),
        "stages": stages,
        "median ms": round(float(np.median(ms)), 2),
        "p99": round(float(np.percentile(ms, 99)), 2),
        "worst": round(float(ms.max()), 2),
        "certificate ms": round(1e3 * float(np.median([s["check"] for s in seconds])), 2),
        "OR-Tools ms": round(1e3 * peer, 1),
        "its costs": costs,
        "x OR-Tools": round(1e3 * peer / float(np.median(ms)), 1),
        "busy": _busy(),
    }


def _shocks(shapes: dict[str, dict[str, int]], rounds: int) -> list[Row]:
    """Measure two shocks, each round on a copy: another tenth of the machines fails, or all tasks grow a minute older.

    The worst ratio stands beside the median.
    """
    assert any(isinstance(goal, Continuity) for goal in GOALS)
    rows: list[Row] = []
    for shape, sizes in shapes.items():
        first = Life.of(flow_scale(seed=SEED, **sizes)).scheduler
        first.step(0.0)
        state, goals = exact_state.write(first.state), first.state.goals
        for name in ("a tenth of the machines fails", "all tasks grow a minute older"):
            found = []
            for k in range(rounds):
                scheduler = FlowScheduler.continued(exact_state.read(state, goals))
                collect_on_request()
                found.append(_shock(scheduler, k if name.startswith("a tenth") else None))
                gc.unfreeze()
            seconds = {part: float(np.median([each[part] for each in found])) for part in found[0]}
            ratios = [(each["events"] + each["solve"] + each["read"]) / each["OR-Tools"] for each in found]
            row: Row = {"cluster": shape, "shock": name, "rounds": rounds, "moved": seconds.pop("moved")}
            row |= {f"{part} ms": round(1e3 * value, 1) for part, value in seconds.items()}
            rows.append(row | {"times OR-Tools": round(float(np.median(ratios)), 2), "worst": round(max(ratios), 2)})
    return rows


def _shock(scheduler: FlowScheduler, failing: int | None) -> dict[str, float]:
    """Return the seconds of the parts of a shock, and of OR-Tools on the network that the step has to solve."""
    started = time.process_time()
    for machine in [] if failing is None else list(scheduler.state.cluster.machines)[failing::10]:
        scheduler.remove_machine(machine)
    now_s = 60.0 if failing is None else 1.0
    scheduler.prepare(now_s)
    events_s = time.process_time() - started
    asked = deepcopy(scheduler.state.session)
    delta = scheduler.step(now_s)
    parts = {"events": events_s, "solve": delta.seconds["solve"], "read": delta.seconds["read"]}
    return {"moved": len(delta.moved) + len(delta.stopped), **parts, "OR-Tools": _peer(asked)[0]}
