"""Pod placement as an integer program by pod, node and card: admission level by level, then balance and moves."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from flowlex.formulations.linear_expression import Expression, Variables
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.processor_clock import processor_seconds
from flowlex.formulations.program_arrays import Floats, Integers
from flowlex.formulations.solver_outcome import SolveOptions, Status
from flowlex.instances.exact_rationals import rational
from flowlex.instances.pods import PodInstance
from flowlex.models.model_base import ModelError
from flowlex.models.pods.formulation_labels import column_labels, row_labels
from flowlex.models.pods.problem.balance_measures import MEASURES, SCALE, Balance, squares
from flowlex.models.pods.problem.integer_program import PlacementProgram, partition
from flowlex.models.pods.problem.node_fill_state import Cluster
from flowlex.models.statement.rows_and_objectives import Stage, Statement
from flowlex.models.statement.solve_statement import StatementRun, run_statement

#: Largest number of columns of a statement by pod, node and card.
LARGEST_STATEMENT = 200_000
#: Largest denominator of the unit of loads; loads without such a unit are rounded.
_LOAD_UNIT = 10**9
#: Scale of the balance stage, so that rounded multipliers prove it to far less than 1e-6.
_FINE = 10**6
#: Largest coefficient that HiGHS accepts.
_EXACT = 10**15
#: Initial tangent points in percent; denominator of the grid of further points; rounds of adding them; relative gap of
#: variance and bound that counts as zero (the accuracy of squares in programs).
_TANGENTS, _GRID, _ROUNDS, _MET = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0), 2**16, 40, 1e-6

_NO_BALANCE = "the balance would have no meaning"
_NEEDED = {
    "pod": "a pod would run more than once",
    "running": "a running pod stops only at a price; give it a preempt_cost instead",
    "card_link": "GPU pods would run without their cards",
    "card_distinct": "a pod would use one card several times",
    **dict.fromkeys(("largest", "mean", "above", "below", "distance", "tangent"), _NO_BALANCE),
    "count": "numbers of equal pods would have no meaning",
    "fair": "shares would have no meaning",
}


def placement_statement(
    instance: PodInstance,
    builder: PlacementProgram,
    balance: Balance,
    *,
    fewest_moves: bool,
    points: Collection[tuple[int, Fraction]] = (),
) -> Statement:
    """Return the statement by pod, node and card; ``builder`` has single pods and integer units.

    ``points``: further tangent points (node, distance from the mean in percent) of the squares of
    ``balance="deviation"``, whose stage is the variance in squared percent. Raises `ModelError` if the instance is too
    large, or its numbers have too many digits.
    """
    _refuse(instance, builder)
    program, x = builder.program(instance.name)
    placed = _Placed.of(program, instance, builder, x)
    size, (load, unit), node = len(instance.nodes), _loads(instance), builder.pairs[1]
    loads = placed.total(load[placed.pod, node], node, size)
    top = -(-int(load.sum(axis=0).max(initial=0)) // unit)
    stages = _admission(program, builder, placed)
    if balance == "deviation":
        stages.append(
            Stage("balance", _squares(program, loads * SCALE, unit, points) * 1e3, unit=Fraction(1, 1000 * size))
        )
        top *= int(SCALE)
    else:
        objective = MEASURES[balance].expression(program, loads, np.ones(size), [], unit=unit)
        each = 1 if balance == "max_load" else size
        stages.append(Stage("balance", objective * float(_FINE), unit=Fraction(1, _FINE * each)))
    if fewest_moves and builder.moved.any():
        cost = np.rint(builder.view.move_cost[builder.pairs[0][builder.moved]] * builder.move_unit)
        stages.append(Stage("moves", (x[builder.moved] * cost).sum(), unit=Fraction(1, builder.move_unit)))
    statement = _labelled(program, instance, builder, top)
    return replace(statement, scales=_scales(instance, builder, unit), needed=_NEEDED).with_stages(*stages)


def _refuse(instance: PodInstance, builder: PlacementProgram) -> None:
    """Raise `ModelError` if there are too many columns, or sizes that doubles cannot represent."""
    if builder.columns > LARGEST_STATEMENT:
        raise ModelError(
            f"a changed pod placement is stated by pod, node and card: {builder.columns} columns, at most "
            f"{LARGEST_STATEMENT}; change a smaller instance, or restrict pods by node_labels"
        )
    exact, rules = instance.arrays.exact, instance.arrays.rules
    largest = max(
        exact.node.max(), exact.card.max(), exact.whole, rules.capacity.max(initial=0), rules.base.max(initial=0)
    )
    if exact.rounded or largest > _EXACT:
        raise ModelError("sizes of pods and nodes have no common unit that is exact; write fewer digits")


@dataclass(frozen=True, eq=False)
class _Placed:
    """Columns x (pod on node), and counts of equal pods, on which proofs branch because they break symmetry."""

    x: Variables
    count: Variables | None
    pod: Integers  # (columns x,) pod of each x
    # alone, first: columns x of pods without equals; one counted column x of each count
    alone: Integers
    first: Integers

    @classmethod
    def of(cls, program: LinearProgram, instance: PodInstance, builder: PlacementProgram, x: Variables) -> _Placed:
        """Add variables and rows ``count`` for pods that are equal except for their names."""
        pod, node = builder.groups.first[builder.pairs[0]], builder.pairs[1]
        alike = (each.model_dump_json(exclude={"name", "created_s"}) for each in instance.pods)
        like, first_pod, many = partition(alike)
        key = like[pod] * len(instance.nodes) + node
        several = np.flatnonzero(many[like[pod]] > 1)
        _, at, of = np.unique(key[several], return_index=True, return_inverse=True)
        first, count = several[at], None
        if len(first):
            labels = first_pod[like[pod[first]]], node[first]
            count = program.variables("count", len(first), upper=many[like[pod[first]]], integer=True, labels=labels)
            program.constrain("count", x[several].sum_by(of, len(first)) - count, "==", 0.0, labels=labels)
        return cls(x, count, pod, np.flatnonzero(many[like[pod]] == 1), first)

    def total(self, weight: Integers, key: Integers, size: int) -> Expression:
        """Sums of weight times x by key; weights and keys ((columns x,)) must be equal for equal pods."""
        parts = [(self.x, self.alone, self.alone)]
        if self.count is not None:
            parts.append((self.count, np.arange(len(self.first)), self.first))
        found = Expression.empty(size)
        for variables, column, of in parts:
            used = (key[of] >= 0) & (weight[of] != 0)
            found = found + (variables[column[used]] * weight[of[used]].astype(np.float64)).sum_by(key[of[used]], size)
        return found


def _admission(program: LinearProgram, builder: PlacementProgram, chosen: _Placed) -> list[Stage]:
    """A stage for each level; for fair admission, the sums of the 1, 2, ... least shares, then the other pods.

    Shares are integer multiples of a common unit, so that the sums are integral (Ogryczak; see
    `flowlex.models.pods.fair_admission`).
    """
    levels, x = builder.levels, chosen.x
    placed = chosen.total(levels.worth[chosen.pod], levels.of[chosen.pod], len(levels.keys))
    many, stages = len(levels.weight), list[Stage]()
    if many:
        step = [unit / weight for unit, weight in zip(levels.unit, levels.weight, strict=False)]
        start = levels.shares([0] * many)
        whole = math.lcm(*(each.denominator for each in (*step, *start)))
        top = max(levels.shares(levels.total(levels.of >= 0))) * whole
        if top > _LOAD_UNIT:
            raise ModelError("shares of queues have no common unit that is exact; write weights with fewer digits")
        level = program.variables("level", many, upper=float(top), integer=True)
        below = program.variables("below", many * many, upper=float(top), integer=True)
        k, q = np.repeat(np.arange(many), many), np.tile(np.arange(many), many)
        of = levels.of[chosen.pod]
        column = np.tile(mine := np.flatnonzero((of >= 0) & (of < many)), many)
        worth = levels.worth[chosen.pod[column]]
        shares = (x[column] * (worth * np.array([float(each * whole) for each in step])[of[column]])).sum_by(
            np.repeat(np.arange(many), len(mine)) * many + of[column], many * many
        )
        given = np.array([float(each * whole) for each in start])
        program.constrain("fair", level[k] - below - shares, "<=", given[q])
        sums = level * np.arange(1.0, many + 1) - below.sum_by(k, many)
        stages = [
            Stage(f"admission fair {n + 1}", sums[[n]], maximize=True, unit=Fraction(1, whole)) for n in range(many)
        ]
    return stages + [
        Stage(f"admission {key}", placed[[level]], maximize=True, unit=levels.unit[level])
        for level, key in enumerate(levels.keys)
        if level >= many
    ]


def _squares(
    program: LinearProgram, loads: Expression, unit: int, points: Collection[tuple[int, Fraction]]
) -> Expression:
    """Sum of squared distances of loads from their centre, in squared percent, approximated by tangents."""
    every = [(n, Fraction(sign * a)) for a in _TANGENTS for sign in (-1.0, 1.0) for n in range(loads.count)]
    node, at = zip(*dict.fromkeys((*every, *points)), strict=True)
    place, labels = np.array(node), (np.array(node), np.array([str(each) for each in at], object))
    return squares(program, loads, place, np.array([float(each) for each in at]), float(unit), labels).sum()


def with_tangents(
    state: Callable[[Collection[tuple[int, Fraction]]], Statement], options: SolveOptions, start: Floats | None
) -> StatementRun:
    """Solve the statement of the variance repeatedly, with new tangents at the last solution.

    ``state``: returns the changed statement with these tangent points.
    """
    until = math.inf if options.time_limit_s is None else processor_seconds() + options.time_limit_s
    options = replace(options, gap=max(options.gap, 0.5 * _MET))
    points: dict[tuple[int, Fraction], None] = {}
    for _ in range(_ROUNDS):
        left = None if options.time_limit_s is None else max(0.1, until - processor_seconds())
        found = run_statement(state(points), replace(options, time_limit_s=left), main="balance", start=start)
        if not found.answered:
            return found
        squared = with_squares(found)
        steps = np.rint(np.cumsum(squared.values["distance"]) * _GRID)  # rounded so that the sum is kept
        new = dict.fromkeys((n, Fraction(int(step), _GRID)) for n, step in enumerate(np.diff(steps, prepend=0.0)))
        if squared.outcome.status is found.outcome.status or {*new} <= {*points} or processor_seconds() > until:
            return squared
        points, start = points | new, squared.outcome.values
    return squared


def with_squares(run: StatementRun) -> StatementRun:
    """Return the run with true squares instead of tangents; not optimal if the variance exceeds the bound."""
    statement = run.statement
    assert run.outcome.values is not None
    values = _squared(statement, run.outcome.values)
    stage = statement.stage("balance")
    value, bound = stage.value_of(float(stage.cost(len(values)) @ values)), run.bounds.get("balance")
    outcome = replace(run.outcome, values=values)
    if outcome.status is Status.OPTIMAL and bound is not None and value - bound > 0.9 * _MET * max(1.0, float(value)):
        message = f"the variance is {float(value):g}, at least {float(bound):g}, in squared percent"
        outcome = replace(outcome, status=Status.FEASIBLE, message=message)
    return replace(run, outcome=outcome, stages={**run.stages, "balance": value})


def _squared(statement: Statement, values: Floats) -> Floats:
    """Values with true squares around the mean load, or around the present centre if a change excludes the mean.

    With tangents, several centres may have equal objectives; true squares are minimal around the mean.
    """
    program, arrays = statement.program, statement.program.arrays()
    centre, distance, square = (program.variable_blocks[name].columns for name in ("centre", "distance", "square"))
    matrix, own = arrays.matrix.tocsr(), program.constraint_blocks["distance"].rows
    moved, mean = np.r_[centre, distance], values.copy()
    mean[moved] = 0.0
    loads = (matrix @ mean)[own] / -matrix[[own.start], [centre.start]]
    mean[centre], mean[distance] = loads.mean(), loads - loads.mean()
    mean[square] = mean[distance] ** 2
    added = [program.constraint_blocks[name].rows for name in statement.own if name in program.constraint_blocks]
    activity = matrix @ mean
    holds = _within(mean, arrays.column_lower, arrays.column_upper) and all(
        _within(activity[rows], arrays.row_lower[rows], arrays.row_upper[rows]) for rows in added
    )
    if holds and not any(stage.cost(len(mean))[moved].any() for stage in statement.stages):
        return mean
    values = values.copy()
    values[square] = values[distance] ** 2
    return values


def _within(values: Floats, lower: Floats, upper: Floats) -> bool:
    slack = 1e-7 * np.maximum(1.0, abs(values))
    return bool(((values >= lower - slack) & (values <= upper + slack)).all())


def _loads(instance: PodInstance) -> tuple[Integers, int]:
    """(P, N) load of each pod on each node, as integer multiples of 1 / (the number returned)."""
    nodes, pods, view = instance.nodes, instance.pods, instance.arrays
    has = [[rational(n.card_gb) * n.cards, rational(n.cpu_cores), rational(n.memory_gb)] for n in nodes]
    total = [sum(column, Fraction(0)) for column in zip(*has, strict=True)]
    first_pod, first_node = (np.unique(k, return_index=True)[1].tolist() for k in (view.load.row, view.load.column))
    table: list[list[Fraction]] = [[] for _ in first_pod]
    for n in first_node:
        rate = _rates(has[n], total, instance.load_reading)
        for r, p in enumerate(first_pod):
            pod = pods[p]
            gpu = (rational(pod.gpu_memory_gb) + rational(pod.gpu_share) * rational(nodes[n].card_gb)) * pod.gpu_cards
            used = (gpu, rational(pod.cpu_cores), rational(pod.memory_gb))
            table[r].append(sum(((u * w) for u, w in zip(used, rate, strict=True)), Fraction(0)))
    unit = min(_LOAD_UNIT, math.lcm(*(load.denominator for row in table for load in row)))
    whole = np.array([[round(load * unit) for load in row] for row in table], np.int64)
    return whole.reshape(len(first_pod), len(first_node))[np.ix_(view.load.row, view.load.column)], unit


def _rates(has: Sequence[Fraction], total: Sequence[Fraction], reading: str) -> list[Fraction]:
    """Load per unit of each resource, on a node with the amounts ``has`` of a cluster with ``total``."""
    share = [h / t if t else Fraction(0) for h, t in zip(has, total, strict=True)]
    if reading == "equal":
        share = [Fraction(h > 0) for h in has]
    whole = Fraction(3) if reading == "raw" else sum(share, Fraction(0))
    of = total if reading == "cluster" else has
    return [s / whole / o if h else Fraction(0) for s, h, o in zip(share, has, of, strict=True)]


def _scales(instance: PodInstance, builder: PlacementProgram, load_unit: int) -> dict[str, Fraction]:
    """Scale factors of rows, relative to cores, GB, cards and loads."""
    exact, node = builder.view.exact, instance.nodes[0]
    card = next(
        (Fraction(int(exact.card[n])) / rational(m.card_gb) for n, m in enumerate(instance.nodes) if m.cards), 1
    )
    balance = dict.fromkeys(("largest", "mean", "above", "below", "distance"), Fraction(load_unit))
    return {
        "cpu": Fraction(int(exact.node[0, 0])) / rational(node.cpu_cores),
        "memory": Fraction(int(exact.node[0, 1])) / rational(node.memory_gb),
        "card": Fraction(card),
        "gpu": Fraction(card),
        "compute": Fraction(exact.whole),
        "move_budget": Fraction(builder.move_unit),
        **balance,
    }


def _labelled(program: LinearProgram, instance: PodInstance, builder: PlacementProgram, top: int) -> Statement:
    """Label all columns and rows, and add missing bounds of variables."""
    columns = column_labels(program, instance, builder)
    label = row_labels(instance, builder, columns)
    bounded = dict.fromkeys(("largest_load", "centre", "apart", "distance"), float(top))
    bounded |= {"emptiest": float(len(instance.pods)), "square": float(top * top)}
    columns = {name: columns[name] for name in program.variable_blocks}
    rows = {name: of(block) if callable(of := label[name]) else of for name, block in program.constraint_blocks.items()}
    named = LinearProgram(program.name)
    for name, block in program.variable_blocks.items():
        upper = np.full(block.count, bounded[name]) if name in bounded else block.upper
        lower = -upper if name == "distance" else block.lower
        integer, labels = block.integer or name == "emptiest", tuple(columns[name].texts())
        named.variable_blocks[name] = replace(block, lower=lower, upper=upper, integer=integer, labels=labels)
    for name, constraint in program.constraint_blocks.items():
        named.constraint_blocks[name] = replace(constraint, labels=tuple(rows[name].texts()))
    return Statement(named, columns, rows)


def pods_of_values(
    instance: PodInstance, builder: PlacementProgram, values: Mapping[str, Floats]
) -> tuple[Cluster, list[str]]:
    """Return the placement of integrally placed pods, and the names of pods with fractional values."""
    view, (group, at) = builder.view, builder.pairs
    pod, (pair, card) = builder.groups.first[group], builder.card_slots
    x = values["x"]
    placed = np.flatnonzero(x > 1 - 1e-6)
    node = np.full(len(view.cpu), -1)
    node[pod[placed]] = at[placed]
    start = np.cumsum(view.cards) - view.cards
    on: dict[int, list[int]] = {int(p): [] for p in pod[placed] if builder.cards and view.gpu_cards[p]}
    for k in np.flatnonzero(values["y"] > 1 - 1e-6).tolist() if on else ():
        on.setdefault(int(pod[pair[k]]), []).append(int(card[k] - start[at[pair[k]]]))
    for p, cards in on.items():
        if len(cards) != view.gpu_cards[p]:
            node[p] = -1
    parts = {int(p) for p in pod[x > 1e-6] if node[p] < 0}
    used = {p: np.array(cards, np.int64) for p, cards in on.items() if node[p] >= 0}
    return Cluster.of(view, node, used, cards=builder.cards), [instance.pods[p].name for p in sorted(parts)]
