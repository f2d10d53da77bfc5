"""Load partition restated from its instance: what each evaluation says a node can do, targets, times and moves.

The unchanged problem takes items of each block from a holder (``take``) and moves them to a node (``move``; a node to
itself: they stay). A changed one follows every block on its way (``x``) and counts the finish times that pass
(``late``). Under ``makespan`` the unchanged problem has the least time as data: `least_time` finds it in exact numbers.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from flowlex.instances.exact_rationals import rational
from flowlex.instances.load import LoadNode, LoadPartitionInstance
from flowlex.validation.certificates.certificate import Check, Finding
from flowlex.validation.certificates.exact_numbers import agrees
from flowlex.validation.certificates.verifier_interface import Claimed, Numeric, Strict, Verifier
from flowlex.validation.proofs.exact_program import Exact, ExactProgram, Positions, Whole, narrow
from flowlex.validation.proofs.program_builder import ProgramBuilder, texts_at
from flowlex.validation.restated.program_finding import program_finding

_ONE = Fraction(1)
_EVALUATIONS = ("configuration", "cpu_load", "history", "performance")


class LoadOptions(Strict):
    """Load partition; a capacity may also be the name of a user's own function."""

    capacity: str = "configuration"
    objective: Literal["targets", "makespan"] = "targets"
    level: Literal["node", "item"] = "node"


class Move(Strict):
    """Items that go from one node to another, and the seconds that takes."""

    source: str
    target: str
    items: int
    seconds: Numeric


class LoadAnswer(Strict):
    """Items of each node, moves between nodes, and how many items of each block every node processes."""

    items: dict[str, int]
    moves: list[Move]
    blocks: dict[str, dict[str, int]]


def capacity_of(node: LoadNode, evaluation: str) -> Fraction:
    """The capacity by its name, from the figures of the node."""
    if evaluation == "cpu_load":
        return min(_ONE, rational(node.cpu_free or 0) / rational(node.cpu_required))
    if evaluation == "history":
        items, seconds = (
            sum((rational(getattr(r, n)) for r in node.history), Fraction(0)) for n in ("items", "seconds")
        )
        return items / seconds
    found = {"configuration": node.configuration, "performance": node.performance}[evaluation]
    if found is None:
        raise ValueError(f"node {node.name!r} has no {evaluation}")
    return rational(found)


def quotas(capacity: Sequence[Fraction], total: int) -> list[int]:
    """Largest remainders, ties to the earlier node."""
    everything = sum(capacity)
    each = [c / everything * total for c in capacity]
    targets = [int(q) for q in each]
    left = sorted(range(len(each)), key=lambda i: targets[i] - each[i])
    for i in left[: total - sum(targets)]:
        targets[i] += 1
    return targets


def least_time(capacity: Sequence[Fraction], total: int) -> Fraction:
    """The first time by which the nodes together can end all items: bisection, then the next end of an item.

    No node ends more than capacity times time, and it loses less than an item to the end of the last one.
    """
    working, everything = [c for c in capacity if c], sum(capacity)

    def enough(time: Fraction) -> bool:
        return sum(int(c * time) for c in working) >= total

    low, high = Fraction(total) / everything, Fraction(total + len(working)) / everything
    if enough(low):
        return low
    while max(working) * (high - low) >= 1:  # until no node ends more than one item between too early and enough
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return next(time for time in sorted((int(c * low) + 1) / c for c in working) if enough(time))


class _Data:
    """The instance under its options, by position."""

    def __init__(self, instance: LoadPartitionInstance, options: Mapping[str, Any]) -> None:
        self.instance = instance
        self.names = [node.name for node in instance.nodes]
        self.place = {name: i for i, name in enumerate(self.names)}
        self.makespan, self.replicas = options.get("objective") == "makespan", options.get("level") == "item"
        evaluation = str(options.get("capacity", "configuration"))
        self.capacity = [capacity_of(node, evaluation) for node in instance.nodes]
        self.total = sum(block.items for block in instance.blocks)
        self.targets = quotas(self.capacity, self.total)
        lies = [0] * len(self.names)
        for block in instance.blocks:
            lies[self.place[block.holders[0]]] += block.items
        size = len(self.names)
        #: (N, N) whether items of a node may be processed on another.
        self.leads: NDArray[np.bool_] = np.ones((size, size), bool)
        if not self.makespan and not self.replicas:  # the paper's problem
            above = np.array(lies, object) > np.array(self.targets, object)
            self.leads = (above[:, None] & ~above) | np.eye(size, dtype=bool)
        costs = [Fraction(0), rational(instance.seconds_per_item)]
        costs += [rational(link.seconds_per_item) for link in instance.links]
        self.seconds = Exact.of(costs)
        #: (N, N) which of ``seconds`` a move takes.
        self.code: Positions = np.ones((size, size), np.int64)
        sources, targets = ([self.place[getattr(k, end)] for k in instance.links] for end in ("source", "target"))
        self.code[sources, targets] = np.arange(2, len(costs))
        np.fill_diagonal(self.code, 0)

        #: (N, N) seconds of a move, in the unit of ``seconds``.
        self.cost: Whole = self.seconds.numbers[self.code]
        home = [self.place[block.holders[0]] for block in instance.blocks]
        #: Nodes from which items of each block may be taken, in the order of the nodes.
        self.holders = [[each] for each in home]
        if self.replicas:
            self.holders = [sorted(self.place[name] for name in block.holders) for block in instance.blocks]
        self._home = np.array(home, np.int64)

    def sources(self, block: Positions, node: Positions) -> Positions:
        """Where the items of shares come from: the node itself if it holds them, else the first cheapest holder."""
        found: Positions = self._home[block]
        for k in range(len(block)) if self.replicas else ():
            holders, n = self.holders[block[k]], int(node[k])
            found[k] = n if n in holders else holders[int(self.cost[holders, n].argmin())]
        return found


def restate_moves(data: _Data) -> tuple[ExactProgram, Positions, Positions]:
    """The unchanged problem; the first column of each block; (N, N) the column of each move, -1 where there is none."""
    size, blocks = len(data.names), data.instance.blocks
    holders = data.holders
    count = np.array([len(each) for each in holders], np.int64)
    block, holder = np.repeat(np.arange(len(blocks)), count), np.array([h for each in holders for h in each], np.int64)
    source, target = np.nonzero(data.leads)
    items = narrow([b.items for b in blocks])
    limit = data.targets
    if data.makespan:
        time = least_time(data.capacity, data.total)
        limit = [int(c * time) for c in data.capacity]
    names, block_names, of = data.names, [b.name for b in blocks], ProgramBuilder()

    take = np.arange(len(block))
    of.columns(
        "take", list, len(take), texts=lambda: texts_at((block_names, block), (names, holder)), upper=items[block]
    )
    start = of.columns(
        "move", list, len(source), texts=lambda: texts_at((names, source), (names, target)), upper=data.total
    )
    move = start + np.arange(len(source))
    of.rows("group", "==", block_names, items, (block, take, 1), empty=True)
    of.rows("holder", "==", names, 0, (source, move, 1), (holder, take, -1), empty=True)
    of.rows("node", "<=" if data.makespan else "==", names, limit, (target, move, 1), empty=True)
    of.objective("moved", (move, Exact(data.cost[source, target], data.seconds.unit)))
    place = np.full((size, size), -1, np.int64)
    place[source, target] = move
    return of.program(tolerance=0), np.cumsum(count) - count, place


def restate_load(claimed: Claimed) -> ExactProgram:
    """The problem that changes refer to: ``x`` by block, holder and node, and ``late`` by finish time."""
    instance, data = claimed.instance, _Data(claimed.instance, claimed.document.options)
    triples = [(k, h, n) for k, each in enumerate(data.holders) for h in each for n in np.flatnonzero(data.leads[h])]
    block, holder, node = (np.array([t[i] for t in triples], np.int64) for i in range(3))
    names, blocks, items = data.names, [b.name for b in instance.blocks], [b.items for b in instance.blocks]
    labels = [{"block": blocks[k], "holder": names[h], "node": names[n]} for k, h, n in triples]
    of, x = ProgramBuilder(), np.arange(len(triples))
    of.columns("x", labels, upper=[items[k] for k in block.tolist()])
    of.rows("group", "==", blocks, items, (block, x, 1), empty=True)
    if data.makespan:
        _late(of, data, (node, x, 1))
    else:
        of.rows("node", "==", names, data.targets, (node, x, 1), empty=True)
    of.objective("moved", (x, Exact(data.cost[holder, node], data.seconds.unit)))
    return of.program()


def _late(of: ProgramBuilder, data: _Data, on_node: tuple[Positions, Positions, int]) -> None:
    """``late`` for the finish times after the least, their order and number, and what nodes finish by each."""
    least = least_time(data.capacity, data.total)
    times = sorted({least, *(n / c for c in data.capacity if c for n in range(int(c * least) + 1, data.total + 1))})
    count, place = len(times) - 1, {time: k for k, time in enumerate(times)}
    start = of.columns(
        "late", [{"step": k + 1, "after": float(time)} for k, time in enumerate(times[:-1])], keys=("step",)
    )
    firsts = [min(int(c * least), data.total) for c in data.capacity]
    passed = [
        (i, start + place[n / c] - 1)
        for i, (c, first) in enumerate(zip(data.capacity, firsts, strict=True))
        for n in (range(first + 1, data.total + 1) if c else ())
    ]
    node, late = np.array(passed, np.int64).reshape(-1, 2).T
    of.rows("finish", "<=", data.names, firsts, on_node, (node, late, -1), empty=True)
    pairs = np.arange(max(count - 1, 0))
    order = [str(k + 2) for k in pairs.tolist()]
    of.rows("order", ">=", order, 0, (pairs, start + pairs, 1), (pairs, start + pairs + 1, -1))
    of.objective("makespan", (start + np.arange(count), 1))


def _judge(claimed: Claimed) -> Finding:
    instance, document, answer = claimed.instance, claimed.document, claimed.answer
    evaluation = str(document.options["capacity"])
    known = evaluation in _EVALUATIONS
    data = _Data(instance, dict(document.options) | ({} if known else {"capacity": "configuration"}))
    place = {b.name: k for k, b in enumerate(instance.blocks)}
    block = np.array([place[name] for name, split in answer.blocks.items() for _ in split], np.int64)
    node = np.array([data.place[name] for split in answer.blocks.values() for name in split], np.int64)
    items = narrow([each for split in answer.blocks.values() for each in split.values()])
    holder = data.sources(block, node)
    moved, told, metrics = _figures(data, answer, (holder, node, items))
    most = narrow([instance.blocks[k].items for k in block.tolist()])
    checks = [Check("shares are between 0 and their block", bool(((items >= 0) & (items <= most)).all())), *told]
    if not known:
        totals = {name: sum(split.values()) for name, split in answer.blocks.items()}
        checks += [
            Check("every item is processed once", totals == {b.name: b.items for b in instance.blocks}),
            Check("capacities", True, detail=f"by {evaluation}, a function that no file holds", how="quoted"),
        ]
        ends, objective = document.metrics.keys() - metrics.keys(), metrics["moved_cost_s"]
        return Finding("feasible", tuple(checks), objective, objective, metrics=metrics, unjudged=ends)
    metrics |= _finishes(data, moved.sum(axis=0).tolist())
    program, first, columns = restate_moves(data)
    back = [data.names[h] for h, n in np.argwhere((columns < 0) & (moved != 0)).tolist()]
    checks.append(Check.none("only nodes above their target send", back))
    values = np.zeros(program.count, items.dtype)
    rank = [data.holders[k].index(h) for k, h in zip(block, holder, strict=True)] if data.replicas else 0
    np.add.at(values, first[block] + np.array(rank, np.int64), items)
    values[columns[columns >= 0]] = moved[columns >= 0]
    return program_finding(
        program,
        Exact(values),
        document.proof,
        document.status,
        claimed.budget,
        main="moved",
        checks=checks,
        metrics=metrics,
        stages=False,
    )


def _figures(
    data: _Data, answer: LoadAnswer, shares: tuple[Positions, Positions, Whole]
) -> tuple[Whole, list[Check], dict[str, Any]]:
    """(N, N) items by holder and node; whether totals and moves are those of the answer; its metrics.

    ``shares``: holder, node and items of each share.
    """
    (holder, node, items), size = shares, len(data.names)
    moved = np.zeros((size, size), items.dtype)
    np.add.at(moved, (holder, node), items)
    needed = {(h, n): int(moved[h, n]) for h, n in np.argwhere(moved).tolist() if h != n}
    cost = sum(each * int(data.cost[pair]) for pair, each in needed.items()) * data.seconds.unit
    checks = [
        Check("items of every node", answer.items == dict(zip(data.names, moved.sum(axis=0).tolist(), strict=True))),
        _carried(needed, answer.moves, data),
    ]
    return moved, checks, {"moved_items": sum(needed.values()), "moved_cost_s": cost}


def _carried(needed: Mapping[tuple[int, int], int], stated: Sequence[Move], data: _Data) -> Check:
    """Whether the moves are those that the blocks need, with their seconds."""
    moves = Counter[tuple[int, int]]()
    wrong = []
    for m in stated:
        pair = data.place[m.source], data.place[m.target]
        moves[pair] += m.items
        if m.items < 1 or not agrees(m.seconds, m.items * int(data.cost[pair]) * data.seconds.unit):
            wrong.append(f"{m.items} from {m.source} to {m.target} in {m.seconds} s")
    odd = [pair for pair in sorted({*moves, *needed}) if moves[pair] != needed.get(pair, 0)]
    wrong += [f"{data.names[h]} to {data.names[n]}" for h, n in odd]
    return Check.none("moves are those of the blocks", wrong)


def _finishes(data: _Data, after: Sequence[int]) -> dict[str, Any]:
    """When the first and the last node end, by capacity and by true speed; a node without items ends at once."""
    speeds = {"_finish": data.capacity}
    true = [node.true_items_per_s for node in data.instance.nodes]
    if None not in true:
        speeds["_true_finish_s"] = [rational(each or 0) for each in true]
    found: dict[str, Any] = {}
    for name, speed in speeds.items():
        ends = [items / c if items else Fraction(0) for items, c in zip(after, speed, strict=True)]
        found |= {f"latest{name}": max(ends), f"earliest{name}": min(ends)}
    return found


def _changed_figures(claimed: Claimed, values: Mapping[str, Mapping[str, Any]]) -> Finding:
    """The answer of a changed model: blocks and moves are those of the values."""
    answer, data = claimed.answer, _Data(claimed.instance, claimed.document.options)
    split, shares = Counter[tuple[str, str]](), list[tuple[int, int, int]]()
    for label, value in values.get("x", {}).items():
        block, holder, node = next(csv.reader([label]))
        split[block, node] += int(rational(value))
        shares.append((data.place[holder], data.place[node], int(rational(value))))
    told = {(block, node): n for block, each in answer.blocks.items() for node, n in each.items()}
    same = told == +split and answer.blocks.keys() == {block.name for block in claimed.instance.blocks}
    ends, to, items = np.array(shares, np.int64).reshape(-1, 3).T
    moved, checks, metrics = _figures(data, answer, (ends, to, items))
    metrics |= _finishes(data, moved.sum(axis=0).tolist())
    return Finding("feasible", (Check("answer is that of the values", same), *checks), metrics=metrics)


VERIFIER = Verifier(
    "load-partition",
    LoadAnswer,
    None,
    _judge,
    solvable=True,
    options=LoadOptions,
    restated=restate_load,
    main="moved",
    needed=frozenset({"group", "finish", "order"}),
    figures=_changed_figures,
)
