r"""Pod placement stated again by kinds: equal pods are counted, equal nodes are copies of a block.

Columns ``pods`` count the pods of a kind on the nodes of a kind, ``slots`` the parts of one size on their cards. Rows
are sums of the rows of single nodes, so every placement gives values of the columns. What sums lose is kept by two
sorts of blocks: a ``card`` holds slots (a knapsack), and a ``node`` holds pods (see `node_patterns`).

The balance of N nodes with loads u_i and mean m is bounded for m in [low, high], in one of two ways:

- by lines: loads are summed over the nodes of a kind, squares are replaced by a tangent for each kind;
- by patterns: with the mean in [low, high],

  .. math::

      \sum (u_i - m)^2 \ge \sum (u_i - low)(u_i - high), \quad \sum |u_i - m| \ge \sum \max(0, u_i - high, low - u_i),

  which is a cost of every node. If no load may exceed ``high``, multipliers can show that the pods have no place.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.instances.pods import PodInstance
from flowlex.validation.proofs.blocks import best_filling
from flowlex.validation.proofs.exact_program import Block, Exact, ExactProgram, Positions, Whole, narrow, scaled
from flowlex.validation.proofs.program_builder import ProgramBuilder
from flowlex.validation.restated.pods.instance_data import PodData, kind_of, machine_kind, numbered, rates_of
from flowlex.validation.restated.pods.levels import Level, levels_of, units_of

#: Loads are rounded to this share of a node's capacity.
_LOAD = Fraction(1, 10**9)
#: Steps of the search for the best pattern of one kind of nodes.
_STEPS = 4_000_000
#: The cost of a copy where there is none.
_NONE = Fraction(10**30)
#: Rounding error of a sum, relative to its size.
_ROUNDING = 1e-11
#: Forms of the cost of a load, see `node_patterns`.
_LAWS = {"deviation": 0, "mean_absolute": 1, "max_load": 2}


@dataclass(frozen=True, eq=False)
class NodeKind:
    """Equal nodes on which the same pods stay, and to which the same pods may return."""

    node: int  # the first of them
    many: int
    # shapes: (H, 6) cores, memory, GPU memory in all and of each slot, slots, load of the pods that may come; columns,
    # of: columns ``pods`` of these, and the shape of each
    shapes: Whole
    columns: Positions
    of: Positions
    held: Whole  # (S, 6) the same of each pod that stays there
    room: Whole  # (3,) cores, memory, GPU memory of a node
    whole: int  # size of a card (else of all)
    cards: int  # number of cards; 0 if these are not distinguished

    @cached_property
    def _sizes(self) -> tuple[NDArray[np.int64], NDArray[np.int64], int, NDArray[np.int64]]:
        """(H, 5) sizes of shapes, (4,) what is free, the size of a card, (S, 2) slots that are held, with owners."""
        free = np.maximum(0, self.room - self.held[:, :3].sum(axis=0))
        slots = sorted(((-int(pod[3]), k) for k, pod in enumerate(self.held) for _ in range(pod[4])))
        held = np.array([(-size, k) for size, k in slots], object).reshape(-1, 2)
        sizes, card = self.shapes[:, :5].copy(), self.whole
        # Beyond 60 bits, sizes are rounded so that never less fits.
        for r, columns in ((0, [0]), (1, [1]), (2, [2, 3])):
            top = max(int(free[r]), card if r == 2 else 1)
            if top >= 2**60:
                sizes[:, columns] = sizes[:, columns] * 2**60 // top
                free[r] = -(-int(free[r]) * 2**60 // top)
                if r == 2:
                    held[:, 0], card = held[:, 0] * 2**60 // top, -(-card * 2**60 // top)
            sizes[:, columns] = np.minimum(sizes[:, columns], 2**61)
        large = self.cards - int(self.held[2 * self.held[:, 3] > self.whole, 4].sum())
        left = np.array([*free, max(0, large)], np.int64)
        return sizes.astype(np.int64), left, card, held.astype(np.int64)

    def cheapest(
        self, cost: NDArray[np.float64], many: Positions, law: int, low: float, high: float, fine: float
    ) -> float:
        """A lower bound on the costs of the pods of a node and of its load; ``many``: pods of each column."""
        from flowlex.validation.restated.pods.node_patterns import best_pattern

        of, (sizes, room, card, held), shapes = self.of, self._sizes, len(self.shapes)
        start, earns = float(int(self.held[:, 5].sum()) * _LOAD), -cost
        loads = self.shapes[:, 5].astype(np.float64) * float(_LOAD)
        none = loads[of] <= 0
        free = math.fsum((np.maximum(earns, 0.0) * many)[none].tolist())
        best = np.full(shapes, -np.inf)
        np.maximum.at(best, of, earns)
        chosen = np.flatnonzero(loads > 0)
        chosen = chosen[np.argsort(-best[chosen] / loads[chosen], kind="stable")]
        most = np.zeros(shapes, np.int64)
        np.add.at(most, of, many)
        sizes, loads, most = sizes[chosen], loads[chosen], most[chosen]
        for r in range(3):
            most = np.where(sizes[:, r] > 0, np.minimum(most, room[r] // np.maximum(sizes[:, r], 1)), most)
        width = int(most.max(initial=0)) + 1
        profit = np.zeros((len(chosen), width + 1))
        order = np.lexsort((-earns, of))
        starts = np.searchsorted(of[order], np.arange(shapes + 1))
        for row, h in enumerate(chosen.tolist()):
            mine = order[starts[h] : starts[h + 1]]
            each = np.repeat(earns[mine], np.minimum(many[mine], width))[:width]
            profit[row, 1 : len(each) + 1] = np.cumsum(each)
        slots = np.argsort(-sizes[:, 3], kind="stable").astype(np.int64)
        bounds = np.array([low, high, 0.0, start, max(1.0, start)])
        found = best_pattern(
            sizes, loads, most, profit, room, card // 2, held, slots, card, self.cards, law, bounds, fine, _STEPS
        )
        return -(free + float(found))


class Kinds:
    """Equal pods and equal nodes of an instance, and the problems over them."""

    def __init__(self, instance: PodInstance, options: Mapping[str, Any]) -> None:
        self.options: Mapping[str, Any]
        self.instance, self.options, self.data = instance, options, PodData(instance, options)
        self._group, self._first = numbered(map(kind_of, instance.pods))
        self.many: Positions = np.bincount(self._group, minlength=len(self._first))
        every = levels_of(instance, options)
        self.level: list[Level | None] = [every[p] for p in self._first.tolist()]
        self.unit: dict[str, Fraction] = units_of(self.level)
        #: By name of a pod or node, the name of the first of its kind.
        names = self.data.pod_names
        self.label_of_pod = {name: names[self._first[g]] for name, g in zip(names, self._group.tolist(), strict=True)}

    @property
    def size(self) -> int:
        """Number of nodes."""
        return len(self.instance.nodes)

    @cached_property
    def _held(self) -> NDArray[np.bool_]:
        """(G,) whether pods of a group stay where they are in every placement."""
        data, p = self.data, self._first
        return np.asarray((data.home[p] >= 0) & ~data.movable[p] & data.must[p], bool)

    @cached_property
    def lost(self) -> dict[str, Fraction]:
        """By level, the value of pods that fit nowhere, and of the gangs of such pods."""
        fits = self._held.copy()  # by group of pods
        group, _ = self._pairs
        fits[group] = True
        gangs = [self.instance.pods[p].gang for p in self._first.tolist()]
        broken = {gang for gang, fit in zip(gangs, fits, strict=True) if not fit} - {None}
        lost: dict[str, Fraction] = {}
        for g, level in enumerate(self.level):
            if level is not None and (not fits[g] or gangs[g] in broken):
                lost[level.key] = lost.get(level.key, Fraction(0)) + level.worth * int(self.many[g])
        return lost

    @cached_property
    def _nodes(self) -> tuple[Positions, Positions, list[Counter[int]]]:
        """(N,) kind of each node, the first node of each kind, and the pods that stay there (one of each group)."""
        stays, home = [Counter[int]() for _ in self.instance.nodes], set[int]()
        for g, p in enumerate(self._first.tolist()):
            if (n := int(self.data.home[p])) >= 0 and self._held[g]:
                stays[n][p] += int(self.many[g])
            elif n >= 0:
                home.add(n)
        keys = []
        for n, (node, there) in enumerate(zip(self.instance.nodes, stays, strict=True)):
            asks = Counter[object]()
            for p, many in there.items():
                pod = self.instance.pods[p]
                sizes = (pod.cpu_cores, pod.memory_gb, pod.gpu_memory_gb, pod.gpu_share, pod.gpu_cards)
                asks[*sizes, pod.gpu_compute] += many
            keys.append((machine_kind(node), frozenset(asks.items()), n if n in home else -1))
        of, first = numbered(keys)
        return of, first, [stays[n] for n in first.tolist()]

    @cached_property
    def label_of_node(self) -> dict[str, str]:
        """By name of a node, the name of the first of its kind."""
        names, (of, first, _) = self.data.node_names, self._nodes
        return {name: names[first[c]] for name, c in zip(names, of.tolist(), strict=True)}

    @cached_property
    def _pairs(self) -> tuple[Positions, Positions]:
        """Group and kind of nodes of every column ``pods``; pods that stay have none."""
        _, node, _ = self._nodes
        groups = np.flatnonzero(~self._held)
        group, kind = np.repeat(groups, len(node)), np.tile(np.arange(len(node)), len(groups))
        may = self.data.may(self._first[group], node[kind])
        return group[may], kind[may]

    @cached_property
    def kinds(self) -> list[NodeKind]:
        """The kinds of nodes, with the shapes of the pods that may come."""
        data, (group, kind), (of, first, stays) = self.data, self._pairs, self._nodes
        rates, found = rates_of(self.instance), []

        def shapes(p: Positions, n: int) -> Whole:
            need = np.where(data.gpu[p], data.need(p, np.full(len(p), n)), 0).astype(object)
            slots = np.where(data.gpu[p], data.many[p] if data.cards else 1, 0)
            cores, memory = data.cpu.of_pod[p], data.memory.of_pod[p]
            sizes = (need * slots, data.gb), (cores, data.cpu.unit), (memory, data.memory.unit)
            gpu, cpu, gb = (Exact(numbers, unit).floats for numbers, unit in sizes)
            load = np.rint((gpu * rates[n, 0] + cpu * rates[n, 1] + gb * rates[n, 2]) / float(_LOAD))
            columns = (cores, memory, need * slots, need, slots, load.astype(np.int64))
            return np.stack([np.asarray(each, object) for each in columns], axis=1)

        for c, (n, there) in enumerate(zip(first.tolist(), stays, strict=True)):
            mine = np.flatnonzero(kind == c)
            every = shapes(self._first[group[mine]], n)
            number, one = numbered(map(tuple, every.tolist()))
            held = shapes(np.fromiter(there.elements(), np.int64), n)
            has = data.card[n] * data.has[n]
            room = np.array([data.cpu.of_node[n], data.memory.of_node[n], has], object)
            cards = int(data.has[n]) if data.cards else 0
            many = int((of == c).sum())
            found.append(NodeKind(n, many, every[one], mine, number, held, room, int(data.whole[n]), cards))
        return found

    # Rows and blocks that both phases share

    def _start(self, *, rules: bool) -> tuple[ProgramBuilder, dict[str, Any]]:
        """Columns ``pods`` and ``slots``, their rows, and the blocks of cards."""
        of, data, (group, kind), kinds = ProgramBuilder(), self.data, self._pairs, self.kinds
        p, every = self._first[group], np.arange(len(group))
        pods, nodes = [data.pod_names[i] for i in self._first.tolist()], [data.node_names[k.node] for k in kinds]
        pairs = zip(group.tolist(), kind.tolist(), strict=True)
        of.columns("pods", [{"pod": pods[g], "node": nodes[c]} for g, c in pairs], upper=self.many[group])
        must = data.must[self._first]
        for name, relation, which in (("pod", "<=", ~must), ("running", "==", must)):
            rows, mine = np.unique(group[which[group]]), np.flatnonzero(which[group])
            labels = [pods[g] for g in rows.tolist()]
            placed = np.searchsorted(rows, group[mine]), mine, 1
            of.rows(name, relation, labels, self.many[rows], placed, empty=True)
        for r, (name, sizes) in enumerate((("cpu", data.cpu), ("memory", data.memory))):
            free = narrow([int(k.many * (k.room[r] - k.held[:, r].sum())) for k in kinds])
            used = Exact(sizes.of_pod[p], sizes.unit)
            of.rows(name, "<=", nodes, Exact(free, sizes.unit), (kind, every, used), empty=True)
        blocks = self._slots(of, nodes)
        away = np.flatnonzero((data.home[p] >= 0) & (data.home[p] != self._nodes[1][kind]))
        if (data.move_cost.numbers[p[away]] != 0).any():
            cost = Exact(data.move_cost.numbers[p[away]], data.move_cost.unit)
            of.rows("moves", "<=", [""], data.budget, (0 * away, away, cost))
        for rule in self.data.rules if rules else ():
            whole = 0 if rule.kind in ("gang", "skew") else sum(rule.limit.tolist())
            if not whole:
                continue
            inside = (rule.home < 0) | (rule.domain[rule.home] >= 0)  # one that runs outside of all domains may stay
            asked = rule.asked[inside] * Fraction(1, whole)
            part: dict[int, Any] = dict(zip(rule.pods[inside].tolist(), asked.tolist(), strict=True))
            terms = {j: part[q] for j, q in enumerate(p.tolist()) if q in part}
            stays = zip(self._first[self._held].tolist(), self.many[self._held].tolist(), strict=True)
            of.row("rule", rule.name, terms, "<=", 1 - sum(many * part.get(q, 0) for q, many in stays))
        return of, {"card": blocks}

    def _slots(self, of: ProgramBuilder, nodes: list[str]) -> list[Block]:
        """Slots by kind of nodes and size: as many as pods need; what a card holds."""
        labels, upper, rhs, blocks = list[Any](), list[int](), list[int](), list[Block]()
        used, start = list[tuple[int, int, int]](), of.count
        for k, name in zip(self.kinds, nodes, strict=True):
            cards = int(self.data.has[k.node]) if self.data.cards else min(1, int(self.data.has[k.node]))
            share = {size: float(Fraction(size, k.whole)) for size in {*k.shapes[:, 3], *k.held[:, 3]} - {0}}
            sizes = {share[size]: size for size in sorted(share, reverse=True)}  # of nearly equal ones the least
            place = {each: len(labels) + i for i, each in enumerate(sizes)}
            taken = Counter[float]()
            for pod in k.held[k.held[:, 4] > 0]:
                taken[share[pod[3]]] += pod[4]
            for each, size in sizes.items():
                labels.append({"node": name, "share": each})
                upper.append(k.many * cards * (k.whole // size))
                rhs.append(-k.many * taken[each])
            shapes = ((j, k.shapes[h]) for j, h in zip(k.columns.tolist(), k.of.tolist(), strict=True))
            used += [(place[share[shape[3]]], j, shape[4]) for j, shape in shapes if shape[4]]
            if sizes:
                columns = start + np.array([*place.values()], np.int64)

                def least(costs: Whole, unit: Fraction, sizes: Any = sizes, card: int = k.whole) -> Fraction:
                    return -best_filling([*sizes.values()], [-int(v) for v in costs.tolist()], card) * unit

                blocks.append(Block(k.many * cards, columns, least))
        if labels:
            of.columns("slots", labels, upper=upper)
            row, column, value = np.array(used, np.int64).reshape(-1, 3).T
            names, some = [f"{x['node']},{x['share']!r}" for x in labels], np.arange(len(labels))
            of.rows("slot", "<=", names, rhs, (row, column, value), (some, start + some, -1))
        return blocks

    # Phase 1

    def admission(self, key: str, above: Iterable[str]) -> ExactProgram:
        """The value of a level, after those ``above``."""
        of, blocks = self._start(rules=True)
        for each in (*above, key):
            of.objective(f"admission {each}", self._worths(each), maximize=True)
        program = of.program()
        program.blocks = {**blocks, "node": [self._node(k, 2, 0.0, math.inf, 1e-6, None) for k in self.kinds]}
        return program

    def _worths(self, key: str) -> dict[int, Fraction]:
        worth = {g: level.worth for g, level in enumerate(self.level) if level is not None and level.key == key}
        return {j: worth[g] for j, g in enumerate(self._pairs[0].tolist()) if g in worth}

    def _node(self, k: NodeKind, law: int, low: float, high: float, fine: float, cost: int | None) -> Block:
        """A node as a block; ``cost``: the column of the cost of its load."""
        many = self.many[self._pairs[0][k.columns]]
        columns = k.columns if cost is None else np.append(k.columns, cost)

        def least(costs: Whole, unit: Fraction) -> Fraction | None:
            own = 1.0
            each = Exact(costs, unit).floats
            if cost is not None:
                own, each = float(each[-1]), each[:-1]
                if not own > 0:
                    return None
            found = k.cheapest(each / own, many, law, low, high, fine)
            if not math.isfinite(found):
                return _NONE if found > 0 else None
            return Fraction(own * (found - _ROUNDING * (1 + abs(found))))

        return Block(k.many, columns, least)

    # Phase 2

    def even(
        self,
        measure: str,
        placed: Mapping[str, Fraction],
        low: float,
        high: float,
        tangents: Mapping[str, Fraction] | None,
        fine: float,
    ) -> tuple[ExactProgram, bool]:
        """The sum that measures the balance, for means from ``low`` to ``high``; whether it is shown by having none.

        ``placed``: values of the levels. ``tangents``: by lines, with the distance of the tangent of each kind of nodes
        (for ``deviation``); None: by patterns.
        """
        of, blocks = self._start(rules=False)
        for key, value in placed.items():
            of.row("kept", key, self._worths(key), "==", value)
        kinds, names = self.kinds, [self.data.node_names[k.node] for k in self.kinds]
        node, many = np.arange(len(kinds)), np.array([k.many for k in kinds], np.int64)
        column = np.concatenate([k.columns for k in kinds])
        kind = np.repeat(node, [len(k.columns) for k in kinds])
        load = np.concatenate([k.shapes[k.of, 5] for k in kinds])
        held = narrow([k.many * int(k.held[:, 5].sum()) for k in kinds])
        labels = [{"node": name} for name in names]

        def loads(sign: int | Exact) -> tuple[Positions, Positions, Exact]:
            factor = sign if isinstance(sign, Exact) else Exact(np.full(len(kinds), sign))
            return kind, column, Exact(narrow((factor.numbers[kind] * load).tolist()), factor.unit * _LOAD)

        if measure != "max_load":
            centre = of.columns("centre", [{}], lower=Fraction(low), upper=Fraction(high), integer=False)
            one, (_, _, own) = np.zeros(1, np.int64), loads(1)
            terms = (0 * column, column, own), (one, one + centre, -self.size)
            of.rows("mean", "==", [""], -sum(held.tolist()) * _LOAD, *terms)
        if tangents is None and measure == "max_load":
            cost: list[int | None] = [None] * len(kinds)
        elif tangents is None:
            start = of.columns("cost", labels, lower=-self.size, upper=10 * self.size, integer=False)
            cost = [start + c for c in range(len(kinds))]
            of.objective("balance", (start + node, 0 * node + 1))
        elif measure == "max_load":
            largest = of.columns("largest_load", [{}], upper=10**6, integer=False)
            of.rows("largest", ">=", names, Exact(held, _LOAD), loads(-1), (node, 0 * node + largest, many))
            of.objective("balance", {largest: 1})
        else:
            apart = of.columns("apart", labels, upper=10 * self.size, integer=False)
            for name, sign in (("above", 1), ("below", -1)) if measure == "mean_absolute" else ():
                rest = (node, 0 * node + centre, sign * many), (node, apart + node, 1)
                of.rows(name, ">=", names, Exact(sign * held, _LOAD), loads(-sign), *rest)
            if measure == "deviation":
                a = Exact.of([tangents.get(name, Fraction(0)) for name in names])
                slope = Exact(scaled(a.numbers, 2).astype(object), a.unit)
                side = Exact.of(2 * a[c] * int(held[c]) * _LOAD - k.many * a[c] ** 2 for c, k in enumerate(kinds))
                turned = Exact(narrow((slope.numbers * many).tolist()), slope.unit)
                less = loads(Exact(-slope.numbers, slope.unit))
                middle = (node, 0 * node + centre, turned)
                of.rows("tangent", ">=", names, side, less, middle, (node, apart + node, 1))
            of.objective("balance", (apart + node, 0 * node + 1))
        program = of.program()
        program.blocks = blocks
        if tangents is None:
            each = zip(kinds, cost, strict=True)
            program.blocks["node"] = [self._node(k, _LAWS[measure], low, high, fine, at) for k, at in each]
        return program, tangents is None and measure == "max_load"
