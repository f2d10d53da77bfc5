"""Load partition as an integer program: items of each block by holder and node, named constraints, ordered objectives.

``x[b,h,n]`` items of block b, taken from holder h, are processed on node n. Under ``makespan``, ``late[s]`` is 1 if the
last node ends after the s-th finish time; finish times are all times from the least makespan at which a node can end.
The first stage minimises the sum of ``late``, the second the seconds of all moves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from flowlex.formulations.common_denominator import common_unit
from flowlex.formulations.linear_expression import Expression
from flowlex.formulations.program_arrays import Floats, Integers
from flowlex.instances.load import LoadPartitionInstance
from flowlex.models.load.node_speed import least_makespan_loads
from flowlex.models.load.partition_network import sending_nodes
from flowlex.models.solution import ModelError
from flowlex.models.statement.rows_and_objectives import Stage, Statement
from flowlex.models.statement.variable_labels import Index

#: Largest number of columns of the statement.
LARGEST = 500_000
_NEEDED = {
    "group": "items would be lost, or processed twice",
    "finish": "the makespan would leave out a node",
    "order": "the makespan would skip finish times",
}


def state(
    instance: LoadPartitionInstance,
    *,
    targets: Integers | None,
    capacity: Sequence[Fraction],
    replicas: bool,
    rows: Collection[str],
) -> Statement:
    """Build the statement.

    ``targets``: (N,) items that each node must process; None: minimise the makespan first. ``capacity``: N capacities.
    ``replicas``: items may be taken from every holder of their block, not only from the first. ``rows``: names of the
    model's equations. Raises `ModelError` if there are too many variables, or if move costs have no common unit that
    floats represent exactly.
    """
    view, size = instance.arrays, len(instance.nodes)
    sends, receives = sending_nodes(view, None if replicas else targets)
    leads = (sends[:, None] & receives) | np.eye(size, dtype=bool)
    holds = view.holds if replicas else np.arange(size) == view.home[:, None]
    _limited(int((holds @ leads.sum(axis=1)).sum()), "(block, holder, node) triples")
    block, place = np.nonzero(holds)
    start, target = np.nonzero(leads[place])
    block, holder = block[start], place[start]

    total = int(view.count.sum())
    s = Statement.start(instance.name, rows, _NEEDED)
    nodes = np.array([node.name for node in instance.nodes], object)
    blocks = tuple(b.name for b in instance.blocks)
    names = tuple(nodes.tolist())
    index = Index.coded(block=(blocks, block), holder=(names, holder), node=(names, target))
    x = s.variables("x", index, upper=view.count[block], integer=True)
    s.constrain("group", x.sum_by(block, len(blocks)), "==", view.count, Index.of(block=blocks))
    on_node = x.sum_by(target, size)
    stages = []
    if targets is not None:
        s.constrain("node", on_node, "==", targets, Index.of(node=names))
    else:
        stages.append(_makespan(s, on_node, capacity, total, names))
    seconds = common_unit(view.seconds, limit=2**53 // (total + 1))
    if not seconds.exact:
        raise ModelError("move costs have no common unit that is exact in a program; write them with fewer digits")
    cost = seconds.whole[view.cost[holder, target]]
    return s.with_stages(*stages, Stage("moved", (x * cost.astype(np.float64)).sum(), unit=seconds.unit))


def _makespan(s: Statement, on_node: Expression, capacity: Sequence[Fraction], total: int, nodes: Any) -> Stage:
    """Add the constraints of the makespan and return its stage."""
    least, most = least_makespan_loads(capacity, total)
    most = np.minimum(most, total)
    _limited(sum(total - int(n) for n, c in zip(most, capacity, strict=True) if c), "finish times")
    ends: dict[Fraction, list[int]] = defaultdict(list)
    for i, c in enumerate(capacity):
        for items in range(int(most[i]) + 1, total + 1) if c else ():
            ends[items / c].append(i)
    times = sorted(ends)
    after = [float(time) for time in (least, *times[:-1])] if times else []
    index = Index.of(step=range(1, len(times) + 1), after=after).named_by("step")
    late = s.variables("late", index, upper=1, integer=True)
    more = [(k, i) for k, time in enumerate(times) for i in ends[time]]
    step, node = (np.array(column, np.int64) for column in zip(*more, strict=True)) if more else (np.zeros(0, int),) * 2
    s.constrain("finish", on_node - late[step].sum_by(node, len(nodes)), "<=", most, Index.of(node=nodes))
    if len(times) > 1:
        steps = np.arange(len(times) - 1)
        s.constrain("order", late[steps] - late[steps + 1], ">=", 0, Index.of(step=range(2, len(times) + 1)))
    return Stage("makespan", late.sum())


def _limited(columns: int, what: str) -> None:
    if columns > LARGEST:
        raise ModelError(f"the statement has {columns} {what}, more than {LARGEST}; change a smaller instance")


@dataclass(frozen=True)
class Shipped:
    """Values of the statement: block, node and items of each part, moves (N, N), and whether items are fractional."""

    parts: tuple[Integers, Integers, Integers]
    moves: Integers
    split: bool

    @classmethod
    def of(cls, index: Index, x: Floats, nodes: int) -> Shipped:
        """Convert values of ``x``, rounded to integers."""
        items = np.rint(x).astype(np.int64)
        used = np.flatnonzero(items)
        block, holder, node = (index.codes[level][used] for level in ("block", "holder", "node"))
        pairs, place = np.unique(block * nodes + node, return_inverse=True)
        amount = np.zeros(len(pairs), np.int64)
        np.add.at(amount, place, items[used])
        moves = np.zeros((nodes, nodes), np.int64)
        np.add.at(moves, (holder, node), items[used])
        np.fill_diagonal(moves, 0)
        split = bool(np.abs(x - items).max(initial=0) > 1e-6)
        return cls((pairs // nodes, pairs % nodes, amount), moves, split)
