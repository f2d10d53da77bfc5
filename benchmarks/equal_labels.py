"""What counting equal labels is worth: tasks of few kinds on machines with two capacities, as large as they grow.

Each problem is solved twice within the same limit: with its equal tasks counted (`flowlex.models.equal_labels`), and
with one right-hand side for each task that makes all of them different without changing an answer. Processor times.
"""

from __future__ import annotations

import time

import numpy as np
import pandas as pd

import flowlex as fx
from benchmarks import Row, Tables


def tables(*, quick: bool = False) -> Tables:
    sizes = [(4, 3, 6)] if quick else [(4, 3, 6), (8, 3, 15), (16, 4, 20), (40, 5, 60), (100, 5, 100)]
    limit = 2.0 if quick else 10.0
    rows = [_row(k, size, counted, limit) for k, size in enumerate(sizes) for counted in (True, False)]
    return [(f"At most {limit:g} s", rows)]


def problem(seed: int, machines: int, kinds: int, tasks: int, *, named: bool = False) -> fx.Problem:
    """Place the tasks that are worth most on machines of two shapes; ``named``: no two tasks are equal."""
    rng = np.random.default_rng(seed)
    at = [f"m{k}" for k in range(machines)]
    kind = np.repeat(rng.integers((3, 5, 1), (20, 60, 9), (kinds, 3)), tasks, axis=0)
    names = pd.Index([f"t{k}" for k in range(len(kind))], name="task")
    each = pd.DataFrame(kind, names, ["cpu", "gb", "worth"])
    p = fx.Problem("tasks")
    x = p.variables("x", task=list(each.index), machine=at, binary=True)
    once = pd.Series(1 + np.arange(len(each)) / 4 / len(each) * named, each.index)
    p.constrain("once", x.sum(by="task") <= once)
    for name, shapes in {"cpu": (16, 32), "gb": (64, 128)}.items():
        room = pd.Series({m: shapes[k % 2] for k, m in enumerate(at)}).rename_axis("machine")
        p.constrain(name, (x * each[name]).sum(by="machine") <= room)
    p.maximize("worth", (x * each["worth"]).sum())
    return p


def _row(seed: int, size: tuple[int, int, int], counted: bool, limit: float) -> Row:
    p = problem(seed, *size, named=not counted)
    started = time.process_time()
    s = p.solve(time_limit_s=limit)
    spent = round(time.process_time() - started, 2)
    machines, kinds, tasks = size
    ends = {"worth": s.objective, "proven at most": s.bound, "seconds": spent}
    return {"machines": machines, "tasks": kinds * tasks, "counted": counted, **ends}
