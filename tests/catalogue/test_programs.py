"""Named tiny programs with known answers, by every engine and algorithm that takes them.

A comment on each entry derives its answer by hand; `test_models.py` does the same for instances.
"""

from typing import Any

import numpy as np
import pulp
import pytest

from flowlex.formulations import ENGINES, UNBOUNDED, FlowNetwork, LinearProgram, Outcome, solve
from flowlex.validation.certificates import certify_network, certify_program

#: name: (arcs as (tail, head, lower, upper, cost), supply of the nodes, status, optimum)
NETWORKS: dict[str, tuple[list[tuple[int, int, int, int, int]], list[int], str, int | None]] = {
    # 3 units at 1, one forced at 6, 2 at 4
    "transport": (
        [(0, 2, 0, 3, 1), (0, 3, 0, 9, 6), (1, 2, 1, 9, 6), (1, 3, 0, 9, 4)],
        [3, 3, -4, -2],
        "optimal",
        17,
    ),
    # one unit over node 1 at cost 1 + 1 (capacity 1), the other directly at cost 5
    "detour": ([(0, 1, 0, 1, 1), (1, 2, 0, UNBOUNDED, 1), (0, 2, 0, 4, 5)], [2, 0, -2], "optimal", 7),
    # no supply, but lower bounds force 2 units around the cycle at cost 4 + 1
    "forced ring": ([(0, 1, 2, 3, 4), (1, 0, 0, 9, 1)], [0, 0], "optimal", 10),
    # each of 2 units around the cycle gains 5 - 1
    "paying ring": ([(0, 1, 0, 3, -5), (1, 0, 0, 2, 1)], [0, 0], "optimal", -8),
    # the cheaper of two parallel paths carries 2 of 5 units
    "parallel": ([(0, 1, 0, 2, 1), (0, 1, 0, 9, 4)], [5, -5], "optimal", 14),
    # a self-loop does not enter the balance: 4 units at cost -3; the other node has no arc
    "loop": ([(0, 0, 0, 4, -3)], [0, 0], "optimal", -12),
    # backwards: at least -2 units at cost 3 pay 6 when the other arc brings them round free of charge
    "negative bound": ([(0, 1, -2, 5, 3), (0, 1, 0, 5, 0)], [0, 0], "optimal", -6),
    # 5 units, capacity 4
    "cut": ([(0, 1, 0, 4, 1)], [5, -5], "infeasible", None),
    # arc 0 must carry 3 into a node that passes on 2
    "starved": ([(0, 1, 3, 9, 0), (1, 0, 0, 2, 0)], [0, 0], "infeasible", None),
    # an uncapacitated cycle of cost -1
    "endless ring": ([(0, 1, 0, UNBOUNDED, -1), (1, 0, 0, UNBOUNDED, 0)], [0, 0], "unbounded", None),
    # networkx.network_simplex never terminates here; arcs 0 and 5 are an uncapacitated cycle of cost -3
    "cycles": (
        [
            (1, 0, 0, UNBOUNDED, -4),
            (1, 0, 1, 6, -5),
            (0, 1, 0, 3, -2),
            (1, 0, 0, UNBOUNDED, -3),
            (1, 0, 2, 3, 7),
            (0, 1, 2, UNBOUNDED, 1),
            (1, 0, 2, UNBOUNDED, 3),
            (0, 1, 1, 2, 6),
        ],
        [-3, 3],
        "unbounded",
        None,
    ),
}

Rows = list[tuple[list[float], str, float]]
FREE = -np.inf

#: name: (costs, minimise or maximise, rows, bounds of all variables, integers, status, optimum)
PROGRAMS: dict[str, tuple[list[float], str, Rows, tuple[float, float], bool, str, float | None]] = {
    # the second variable has the better ratio, 4/3: it gets the whole capacity of 8
    "knapsack relaxed": ([2, 4], "max", [([2, 3], "<=", 8)], (0, 3), False, "optimal", 32 / 3),
    # two of the second (8) and one of the first (2) fit
    "knapsack": ([2, 4], "max", [([2, 3], "<=", 8)], (0, 3), True, "optimal", 10),
    # independent set in a triangle: half of each vertex in the relaxation, one vertex in integers
    "triangle relaxed": (
        [1, 1, 1],
        "max",
        [([1, 1, 0], "<=", 1), ([0, 1, 1], "<=", 1), ([1, 0, 1], "<=", 1)],
        (0, 1),
        False,
        "optimal",
        1.5,
    ),
    "triangle": (
        [1, 1, 1],
        "max",
        [([1, 1, 0], "<=", 1), ([0, 1, 1], "<=", 1), ([1, 0, 1], "<=", 1)],
        (0, 1),
        True,
        "optimal",
        1,
    ),
    # Klee and Minty 1972: Dantzig's rule visits all 8 corners
    "klee-minty": (
        [100, 10, 1],
        "max",
        [([1, 0, 0], "<=", 1), ([20, 1, 0], "<=", 100), ([200, 20, 1], "<=", 10_000)],
        (0, np.inf),
        False,
        "optimal",
        10_000,
    ),
    # Beale 1955: Dantzig's rule cycles; x3 = 1, x1 = 1 / 25
    "beale": (
        [-0.75, 150, -0.02, 6],
        "min",
        [([0.25, -60, -0.04, 9], "<=", 0), ([0.5, -90, -0.02, 3], "<=", 0), ([0, 0, 1, 0], "<=", 1)],
        (0, np.inf),
        False,
        "optimal",
        -0.05,
    ),
    # free variables: x = -5 where y = 1
    "free": ([1, 0], "min", [([1, 1], ">=", -4), ([0, 1], "<=", 1)], (FREE, np.inf), False, "optimal", -5),
    # an even number cannot equal an odd one; the relaxation is feasible
    "parity": ([1], "min", [([2], "==", 1)], (0, 5), True, "infeasible", None),
    "window": ([1], "min", [([1], ">=", 2), ([1], "<=", 1)], (0, 9), False, "infeasible", None),
    "open": ([1, 0], "max", [([1, -1], "<=", 1)], (0, np.inf), False, "unbounded", None),
}

CBC = [("pulp", {"solver": "PULP_CBC_CMD"})] if "PULP_CBC_CMD" in pulp.listSolvers(onlyAvailable=True) else []
WAYS: list[tuple[str, dict[str, Any]]] = [
    *((engine, {}) for engine in ENGINES),
    *((engine, {"algorithm": algorithm}) for engine in ("pulp", "highs") for algorithm in ("simplex", "ipm")),
    *((engine, {"seed": 5, "threads": 1}) for engine in ("pulp", "highs")),
    *CBC,
]


def network(name: str) -> FlowNetwork:
    arcs, supply = NETWORKS[name][:2]
    tail, head, lower, upper, cost = (list(column) for column in zip(*arcs, strict=True))
    return FlowNetwork.from_arrays(tail, head, lower=lower, upper=upper, cost=cost, supply=supply, name=name)


def program(name: str) -> LinearProgram:
    cost, direction, rows, (lower, upper), integer = PROGRAMS[name][:5]
    lp = LinearProgram(name)
    x = lp.variables("x", len(cost), lower=lower, upper=upper, integer=integer)
    for number, (weights, sense, side) in enumerate(rows):
        lp.constrain(f"row{number}", (x * np.array(weights)).sum(), sense, side)
    (lp.maximize if direction == "max" else lp.minimize)((x * np.array(cost)).sum())
    return lp


def agrees(outcome: Outcome, status: str, optimum: float | None) -> None:
    assert outcome.status == status
    if optimum is None:
        assert outcome.objective is None
        assert outcome.infeasibility is not None or outcome.unboundedness is not None
    else:
        assert outcome.objective == pytest.approx(optimum, abs=1e-6)
        assert outcome.bound == pytest.approx(optimum, abs=1e-6)


@pytest.mark.parametrize(("engine", "options"), WAYS, ids=str)
@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name: str, engine: str, options: dict[str, Any]) -> None:
    outcome = solve(network(name), engine, **options)
    agrees(outcome, *NETWORKS[name][2:])
    if outcome.status != "unbounded":  # whose ring is judged in tests/formulations/engines/test_proofs.py
        certificate = certify_network(network(name), outcome)
        assert certificate.ok and certificate.claim == outcome.status


@pytest.mark.parametrize(("engine", "options"), [way for way in WAYS if way[0] != "network"], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, engine: str, options: dict[str, Any]) -> None:
    outcome = solve(program(name), engine, **options)
    agrees(outcome, *PROGRAMS[name][5:])
    if outcome.status == "optimal":
        assert certify_program(program(name), outcome).ok
