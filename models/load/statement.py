"""Load partition, stated once in the language: targets or the makespan, then least cost of moves.

``x[block,holder,node]`` items of a block are taken from a holder and processed on a node. ``targets``: a node gets its
quota by capacity, rounded to integers (algorithm 1 of the paper); its nodes above the target only send, the others only
receive, so that the least volume moves. ``makespan`` and replicas are ours: ``late[step]`` is 1 if the last node ends
after a finish time, of all times from the least makespan at which a node can end an item.

Source: Hu, Zhu, Liu, Wang, algorithm 1 (targets). The paper moves between any pair of nodes; costs are ours.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from flowlex.formulations.common_denominator import common_unit
from flowlex.formulations.language.expressions import Expression
from flowlex.formulations.program_arrays import Integers
from flowlex.instances.load import LoadPartitionInstance
from flowlex.models.load.node_speed import least_makespan_loads
from flowlex.models.load.partition_network import sending_nodes
from flowlex.models.solution import ModelError

if TYPE_CHECKING:
    from flowlex.models.problem import Problem

#: Largest number of columns of the statement.
LARGEST = 500_000
#: Names of the rows of statement and network.
ROWS = frozenset({"group", "holder", "usual", "node", "finish", "order", "end"})
#: Rows that no change may drop, and why.
NEEDED = {
    "group": "items would be lost, or processed twice",
    "finish": "the makespan would leave out a node",
    "order": "the makespan would skip finish times",
}


def state(
    p: Problem,
    instance: LoadPartitionInstance,
    *,
    targets: Integers | None,
    capacity: Sequence[Fraction],
    replicas: bool,
) -> None:
    """State the problem.

    ``targets``: (N,) items that each node must process; None: minimise the makespan first. ``capacity``: N capacities.
    ``replicas``: items may be taken from every holder of their block, not only from the first. Raises `ModelError` if
    there are too many variables, or if move costs have no common unit that floats represent exactly.
    """
    import pandas as pd

    view, size = instance.arrays, len(instance.nodes)
    sends, receives = sending_nodes(view, None if replicas else targets)
    leads = (sends[:, None] & receives) | np.eye(size, dtype=bool)
    holds = view.holds if replicas else np.arange(size) == view.home[:, None]
    _limited(int((holds @ leads.sum(axis=1)).sum()), "(block, holder, node) triples")
    total = int(view.count.sum())
    if not common_unit(view.seconds, limit=2**53 // (total + 1)).exact:
        raise ModelError("move costs have no common unit that is exact in a program; write them with fewer digits")
    block, place = np.nonzero(holds)
    start, target = np.nonzero(leads[place])
    block, holder = block[start], place[start]
    names, blocks = [node.name for node in instance.nodes], [b.name for b in instance.blocks]
    p.set("block", blocks, words="blocks of items")
    p.set("holder", names, words="nodes that hold them")
    p.set("node", names, words="nodes that process them")
    ways = pd.MultiIndex.from_arrays(
        [np.array(blocks, object)[block], np.array(names, object)[holder], np.array(names, object)[target]],
        names=["block", "holder", "node"],
    )
    words = "items of a block that are taken from a holder and processed on a node"
    x = p.variables("x", over=ways, upper=view.count[block], integer=True, words=words)
    items = p.data("n", pd.Series(view.count, pd.Index(blocks, name="block")), words="items of a block")
    item = "seconds that one more item costs of the blocks that lie where this one lies"
    p.constrain("group", x.sum(by="block") == items, words="every item of a block is processed once", dual=item)
    on_node, by_node = x.sum(by="node"), pd.Index(names, name="node")
    if targets is None:
        _makespan(p, on_node, capacity, total, by_node)
    else:
        target_of = p.data("t", pd.Series(targets, by_node), words="target of a node")
        p.constrain(
            "node", on_node == target_of, words="a node gets its target", dual="seconds that one item less there costs"
        )
    seconds = np.array(view.seconds, object)[view.cost].ravel()
    pairs = pd.MultiIndex.from_product([names, names], names=["holder", "node"])
    cost = p.data("c", pd.Series(seconds, pairs), unit="s", words="seconds to move an item; 0 where it stays")
    p.minimize("moved", (x * cost).sum(), words="seconds of all moves")


def _makespan(p: Problem, on_node: Expression, capacity: Sequence[Fraction], total: int, nodes: Any) -> None:
    """Add the constraints and the objective of the makespan."""
    import pandas as pd

    least, most = least_makespan_loads(capacity, total)
    most = np.minimum(most, total)
    _limited(sum(total - int(n) for n, c in zip(most, capacity, strict=True) if c), "finish times")
    ends: dict[Fraction, list[int]] = defaultdict(list)
    for i, c in enumerate(capacity):
        for items in range(int(most[i]) + 1, total + 1) if c else ():
            ends[items / c].append(i)
    times = sorted(ends)
    after = [float(time) for time in (least, *times[:-1])] if times else []
    steps = pd.DataFrame({"after": after}, index=pd.RangeIndex(1, len(times) + 1, name="step"))
    late = p.variables("late", over=steps, binary=True, words="whether the last node ends after a finish time")
    more = [(k + 1, nodes[i]) for k, time in enumerate(times) for i in ends[time]]
    later: Any = 0
    if more:
        table = pd.DataFrame(more, columns=["step", "node"]).assign(ends=1)
        ended = p.data("e", table.set_index(["step", "node"])["ends"], words="1 where a node ends an item at the time")
        later = (late.join(table[["step", "node"]]) * ended).sum(by="node")
    within = p.data("u", pd.Series(most, nodes), words="items that a node ends within the least makespan")
    p.constrain("finish", on_node - later <= within, words="each finish time that passes lets a node end an item more")
    if len(times) > 1:
        passed = (late.shift(step=1) - late).sel(step=list(range(2, len(times) + 1)))
        p.constrain("order", passed >= 0, words="finish times pass one after the other")
    p.minimize("makespan", late.sum(), words="finish times that pass until the last node ends")


def _limited(columns: int, what: str) -> None:
    if columns > LARGEST:
        raise ModelError(f"the statement has {columns} {what}, more than {LARGEST}; change a smaller instance")
