"""Claim: Sirius' weight w_priority = sum w_i omega makes priorities strict. Our search refutes it.

The search uses none of our models: SciPy solves random tables of costs as assignment problems, once with the paper's
weight, and once with a weight that is large enough to be strict.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from flowlex.validation.claims.claim_interface import Claim, Finding, Outcome

OMEGA = 10
#: Exceeds all other costs together.
NEVER = 10**6


def waiting_by_class(cost: NDArray[np.int64], important: NDArray[np.bool_], gap: int) -> tuple[int, int]:
    """Tasks left waiting in the least-cost schedule: important ones, others.

    ``cost``: (tasks, machines) cost in 0..omega, `NEVER` where the task cannot run.
    ``important``: (tasks,) which tasks are of the high class: waiting costs them one gap more.
    ``gap``: weight of a step of priority.
    """
    tasks = len(cost)
    wait = np.full((tasks, tasks), NEVER, np.int64)
    np.fill_diagonal(wait, np.where(important, 2 * gap, gap))
    task, place = linear_sum_assignment(np.hstack([cost, wait]))
    waits = place >= cost.shape[1]
    return int(np.sum(waits & important[task])), int(np.sum(waits & ~important[task]))


def search(samples: int = 40_000, *, seed: int = 0) -> NDArray[np.int64] | None:
    """Look for costs of three important tasks and one other on three machines on which the weight is not strict."""
    generator = np.random.default_rng(seed)
    important = np.array([True, True, True, False])
    for _ in range(samples):
        cost = generator.choice([0, OMEGA, NEVER], (4, 3))
        paper, strict = (waiting_by_class(cost, important, gap) for gap in (OMEGA + 1, 100 * OMEGA))
        if paper[0] > strict[0]:
            return np.asarray(cost)
    return None


def _check() -> Finding:
    cost = search()
    if cost is None:
        return Finding(
            Outcome.NOT_REPRODUCIBLE, "no counter-example among 40 000 random tables of 4 tasks on 3 machines"
        )
    words = [["-" if value == NEVER else str(value) for value in row] for row in cost.tolist()]
    rows = "; ".join(f"{name}: {' '.join(row)}" for name, row in zip(("H1", "H2", "H3", "L"), words, strict=True))
    text = (
        f"costs on machines M0 M1 M2, omega = {OMEGA}, gap {OMEGA + 1}: {rows}. The optimum leaves an important task "
        "waiting and runs L, though all important ones that the strict order places could run"
    )
    return Finding(Outcome.FAILS, text, {"cost": cost.tolist(), "omega": OMEGA})


STRICT_WEIGHT = Claim(
    "sirius-strict-weight",
    "With w_priority = sum w_i omega a task of higher priority always goes before one of lower priority.",
    "Chen et al. 2017 (Sirius)",
    _check,
)
