"""Optional phase 3 of pod placement: the cheapest moves of running pods that keep admission and balance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from flowlex.formulations.engines import solve
from flowlex.formulations.program_arrays import Integers
from flowlex.formulations.solver_outcome import EngineName, SolveOptions
from flowlex.instances.pods import PodArrays
from flowlex.models.pods.admission_phase import remaining
from flowlex.models.pods.balance_phase import BalanceOutcome, tangents
from flowlex.models.pods.bounds.branch_and_price import PROVEN
from flowlex.models.pods.problem.balance_measures import SCALE, Measure, to_objective
from flowlex.models.pods.problem.integer_program import PlacementProgram

_ROUNDS = 30


def move_cost_of(view: PodArrays, node: Integers) -> float:
    """Total cost of the moves of running pods in a placement ((P,) nodes, -1: waits)."""
    moved = (view.running >= 0) & (node >= 0) & (node != view.running)
    return float(view.move_cost[moved].sum())


def fewest_moves(
    name: str,
    builder: PlacementProgram,
    measure: Measure,
    admitted: Sequence[int],
    found: BalanceOutcome,
    engine: EngineName,
    options: SolveOptions,
    until: float | None,
) -> BalanceOutcome:
    """Find the placement with the cheapest moves among those with equal balance (to within 1e-6).

    At a time limit, the best known placement is returned, and the message states the proven bound.
    """
    view = builder.view
    best, cost = found.cluster, move_cost_of(view, found.cluster.node)
    value = float(found.outcome.objective or 0.0)
    size = len(view.cards)
    points = tangents(size)
    points.append(SCALE * (best.loads - best.loads.mean()))
    bound = 0.0
    for _ in range(_ROUNDS if cost else 0):
        limit = to_objective(value + 0.9 * PROVEN, measure, size)
        program = builder.balance(name, measure, admitted, points, at_most=limit)
        moved = builder.moved
        price = view.move_cost[builder.groups.first[builder.pairs[0][moved]]]
        program.minimize((program.variable("x")[moved] * price).sum())
        outcome = solve(program, engine, remaining(options, until))
        if outcome.bound is not None and math.isfinite(outcome.bound):
            bound = max(bound, float(outcome.bound))
        if outcome.values is None:
            break
        cluster = builder.expand(outcome.values)
        if cluster is None:
            break
        if measure.value(cluster.loads) <= value + PROVEN:
            if move_cost_of(view, cluster.node) < cost:
                best, cost = cluster, move_cost_of(view, cluster.node)
            break
        points.append(SCALE * (cluster.loads - cluster.loads.mean()))
    if cost - bound <= 1e-6 * max(1.0, cost):
        message = found.outcome.message
    else:
        note = f"the moves cost {cost:g}, proven to be at least {max(0.0, bound):g}"
        message = "; ".join(part for part in (found.outcome.message, note) if part)
    objective = measure.value(best.loads)
    stated = replace(found.outcome, objective=objective, values=best.node, message=message)
    if stated.bound is not None and stated.bound > objective:
        stated = replace(stated, bound=objective)
    return replace(found, outcome=stated, cluster=best)
