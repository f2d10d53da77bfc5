"""Engines of the live scheduler beside each other: milliseconds from events to proven differences.

``paths`` is ours (warm shortest paths), ``scaling`` the incremental algorithm that flow schedulers publish (cost
scaling from the last flow, epsilon shrinking), ``highs`` the linear program hot-started. All see the same events, as in
`flow_scheduling`, and every step of each is proven optimal in exact integers. (Of several optima they take different
ones, so that later costs of moving differ.)
"""

from __future__ import annotations

import numpy as np

from flowlex.instances.generators.flow import flow_scale

from .flow_scheduling import Life

__all__ = ["tables"]

Row = dict[str, object]
_CASES = {"slots to spare": 1.0, "nearly full": 1.425}


def tables(*, quick: bool = False) -> list[tuple[str, list[Row]]]:
    """Title and rows of every table."""
    machines, steps = (100, {1: 3, 10: 3}) if quick else (1000, {1: 10, 10: 10, 100: 5})
    return [
        (f"{case}: {machines} machines of 3 slots, {int(2 * load * machines)} tasks", _rows(machines, load, steps))
        for case, load in _CASES.items()
    ]


def _rows(machines: int, load: float, steps: dict[int, int]) -> list[Row]:
    instance = flow_scale(seed=0, machines=machines, tasks=int(2 * load * machines))
    lives = {engine: Life.of(instance, engine=engine) for engine in ("paths", "scaling", "highs")}
    first = {engine: life.step(1)["total"] for engine, life in lives.items()}
    rows: list[Row] = [{"events": "first step", **_shown({e: [s] for e, s in first.items()})}]
    for events, count in steps.items():
        seconds = {engine: [life.step(events)["total"] for _ in range(count)] for engine, life in lives.items()}
        rows.append({"events": events, **_shown(seconds)})
    return rows


def _shown(seconds: dict[str, list[float]]) -> Row:
    median = {engine: 1e3 * float(np.median(found)) for engine, found in seconds.items()}
    row: Row = {f"{engine} ms": round(ms, 2) for engine, ms in median.items()}
    return row | {f"{engine} / paths": round(median[engine] / median["paths"], 1) for engine in ("scaling", "highs")}
