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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flowlex.instances.pods import Pod, PodInstance, PodNode
from flowlex.validation.proofs.blocks import best_filling
from flowlex.validation.proofs.exact_program import Block, Exact, ExactProgram, Positions, Whole
from flowlex.validation.proofs.program_builder import ProgramBuilder
from flowlex.validation.restated.pods.domain_bounds import GangBounds
from flowlex.validation.restated.pods.rules import RuleBook
from flowlex.validation.restated.pods.sizes import (
    Level,
    fits_wishes,
    kind_of,
    machine_kind,
    need_of,
    rates_of,
    size_of,
    units_of,
    wants_gpu,
)
from flowlex.validation.restated.pods.values import levels_of

#: Loads are rounded to this share of a node's capacity.
_LOAD = Fraction(1, 10**9)
#: Steps of the search for the best pattern of one kind of nodes.
_STEPS = 4_000_000
#: The cost of a copy where there is none.
_NONE = Fraction(10**30)
#: Rounding error of a sum, relative to its size.
_ROUNDING = 1e-11


class Shape(NamedTuple):
    """What a pod takes of a node: cores, memory, total GPU memory, GPU memory of each slot, slots; its load."""

    cpu: Fraction
    memory: Fraction
    gpu: Fraction
    slot: Fraction
    slots: int
    load: int


@dataclass(frozen=True, eq=False)
class NodeKind:
    """Equal nodes on which the same pods stay, and to which the same pods may return."""

    node: PodNode
    many: int
    held: tuple[tuple[Shape, int], ...]  # shapes of the pods that stay there, and their numbers
    # shapes, of: shapes of the pods that may come, and the number of that of each of its columns
    shapes: tuple[Shape, ...]
    of: Positions
    #: Whether cards are distinguished, and the size of a card (else of all).
    cards: bool
    whole: Fraction

    def held_of(self, what: str) -> Fraction:
        """What the pods that stay on a node use together."""
        return sum((Fraction(getattr(shape, what)) * many for shape, many in self.held), Fraction(0))

    @cached_property
    def _sizes(self) -> tuple[NDArray[np.int64], NDArray[np.int64], int, NDArray[np.int64]]:
        """(H, 5) sizes of shapes, (4,) what is free, the size of a card, (S, 2) slots that are held, with owners."""
        distinct = self.shapes
        node, one = self.node, self.whole
        cards = node.cards if self.cards else min(1, node.cards)
        room = [size_of(node.cpu_cores) - self.held_of("cpu"), size_of(node.memory_gb) - self.held_of("memory")]
        room = [max(Fraction(0), left) for left in (*room, one * cards - self.held_of("gpu"))]
        slots = [(s, pod) for s, many in self.held if s.slots for pod in range(many)]
        cpu, most_cpu = _in_units([s.cpu for s in distinct], room[:1])
        memory, most_memory = _in_units([s.memory for s in distinct], room[1:2])
        needs = [[s.gpu for s in distinct], [s.slot for s in distinct], [s.slot for s, _ in slots]]
        gpu, (most_gpu, card) = _in_units([need for part in needs for need in part], [room[2], one])
        n = len(distinct)
        large = cards - sum(s.slots * many for s, many in self.held if 2 * s.slot > one)
        sizes = np.array([cpu, memory, gpu[:n], gpu[n : 2 * n], [s.slots for s in distinct]], np.int64)
        owners = enumerate(zip(gpu[2 * n :], slots, strict=True))
        rows = [(size, owner) for owner, (size, (s, _)) in owners for _ in range(s.slots)]
        held = np.array(sorted(rows, key=lambda row: (-row[0], row[1])), np.int64).reshape(len(rows), 2)
        left = np.array([*most_cpu, *most_memory, most_gpu, max(0, large)])
        return sizes.reshape(5, n).T.copy(), left, card, held

    def cheapest(
        self, cost: NDArray[np.float64], many: Positions, law: int, low: float, high: float, fine: float
    ) -> float:
        """A lower bound on the costs of the pods of a node and of its load; ``many``: pods of each column."""
        from flowlex.validation.restated.pods.node_patterns import best_pattern

        distinct, of, (sizes, room, card, held) = self.shapes, self.of, self._sizes
        start, earns = float(self.held_of("load") * _LOAD), -cost
        loads = np.array([float(s.load * _LOAD) for s in distinct])
        none = loads[of] <= 0
        free = math.fsum((np.maximum(earns, 0.0) * many)[none].tolist())
        best = np.full(len(distinct), -np.inf)
        np.maximum.at(best, of, earns)
        chosen = np.flatnonzero(loads > 0)
        chosen = chosen[np.argsort(-best[chosen] / loads[chosen], kind="stable")]
        most = np.zeros(len(distinct), np.int64)
        np.add.at(most, of, many)
        sizes, loads, most = sizes[chosen], loads[chosen], most[chosen]
        for r in range(3):
            most = np.where(sizes[:, r] > 0, np.minimum(most, room[r] // np.maximum(sizes[:, r], 1)), most)
        width = int(most.max(initial=0)) + 1
        profit = np.zeros((len(chosen), width + 1))
        order = np.lexsort((-earns, of))
        starts = np.searchsorted(of[order], np.arange(len(distinct) + 1))
        for row, h in enumerate(chosen.tolist()):
            mine = order[starts[h] : starts[h + 1]]
            each = np.repeat(earns[mine], np.minimum(many[mine], width))[:width]
            profit[row, 1 : len(each) + 1] = np.cumsum(each)
        slots = np.argsort(-sizes[:, 3], kind="stable").astype(np.int64)
        cards = self.node.cards if self.cards else 0
        bounds = np.array([low, high, 0.0, start, max(1.0, start)])
        found = best_pattern(
            sizes, loads, most, profit, room, card // 2, held, slots, card, cards, law, bounds, fine, _STEPS
        )
        return -(free + float(found))


class Kinds:
    """Equal pods and equal nodes of an instance, and the problems over them."""

    def __init__(self, instance: PodInstance, options: Mapping[str, Any]) -> None:
        self.options: Mapping[str, Any]
        self.instance, self.options = instance, options
        self.cards: bool = bool(options.get("cards", True))
        self.budget: Fraction = size_of(float(options.get("move_budget", 0.0)))
        groups: dict[tuple[object, ...], list[Pod]] = {}
        for pod in instance.pods:
            groups.setdefault(kind_of(pod), []).append(pod)
        self.groups: list[list[Pod]] = [*groups.values()]
        self.pod: list[Pod] = [pods[0] for pods in self.groups]
        of = {pod.name: level for pod, level in zip(instance.pods, levels_of(instance, options), strict=True)}
        self.level: list[Level | None] = [of[pod.name] for pod in self.pod]
        self.unit: dict[str, Fraction] = units_of(each for each in self.level if each is not None)

    # Pods and nodes

    def pinned(self, pod: Pod) -> bool:
        """Whether a pod runs and cannot move; it may still be stopped."""
        return pod.node is not None and (pod.move_cost is None or size_of(pod.move_cost) > self.budget)

    def held(self, k: int) -> bool:
        """Whether pods of a group stay where they are in every placement."""
        return self.pinned(self.pod[k]) and self.level[k] is None

    def whole(self, node: PodNode) -> Fraction:
        """GB of a card, or of all cards if these are not distinguished."""
        return size_of(node.card_gb) * (1 if self.cards else node.cards)

    def need(self, pod: Pod, node: PodNode) -> Fraction:
        """GB on each card, or on the node."""
        return need_of(pod, node) * (1 if self.cards else pod.gpu_cards)

    def fits(self, pod: Pod, node: PodNode) -> bool:
        """Whether a pod fits the node when it is empty."""
        if pod.cpu_cores > node.cpu_cores or pod.memory_gb > node.memory_gb or not fits_wishes(pod, node):
            return False
        if not wants_gpu(pod):
            return True
        whole, need = self.whole(node), self.need(pod, node)
        return bool(whole) and need <= whole and pod.gpu_cards <= node.cards

    @cached_property
    def bounds(self) -> GangBounds:
        """What gangs and spreads exclude."""
        return GangBounds(self)

    @cached_property
    def lost(self) -> dict[str, Fraction]:
        """By level, the value of pods that fit nowhere, and of the gangs of such pods."""
        alone: set[str | None] = {*self.bounds.nowhere}
        able = set(self._pairs[0].tolist()) | {k for k in range(len(self.pod)) if self.held(k)}
        alone |= {pod.gang for k, pod in enumerate(self.pod) if k not in able} - {None}
        lost: dict[str, Fraction] = {}
        for k, (pods, level) in enumerate(zip(self.groups, self.level, strict=True)):
            if level is not None and (k not in able or self.pod[k].gang in alone):
                lost[level.key] = lost.get(level.key, Fraction(0)) + level.worth * len(pods)
        return lost

    @cached_property
    def _nodes(self) -> list[tuple[PodNode, list[PodNode], Counter[int]]]:
        """One node of each kind, all of them, and the groups of the pods that stay there."""
        stays: dict[str, Counter[int]] = {}
        home: set[str] = set()
        for k, pods in enumerate(self.groups):
            at = self.pod[k].node
            if at is not None and self.held(k):
                stays.setdefault(at, Counter())[k] += len(pods)
            elif at is not None:
                home.add(at)
        kinds: dict[tuple[object, ...], list[PodNode]] = {}
        asks = [(*_asked(pod), pod.gpu_compute) for pod in self.pod]
        for node in self.instance.nodes:
            there: Counter[object] = Counter()
            for k, many in stays.get(node.name, Counter[int]()).items():
                there[asks[k]] += many
            own = node.name if node.name in home else None
            kinds.setdefault((machine_kind(node), frozenset(there.items()), own), []).append(node)
        return [(nodes[0], nodes, stays.get(nodes[0].name, Counter())) for nodes in kinds.values()]

    @cached_property
    def _pairs(self) -> tuple[Positions, Positions]:
        """Group and kind of nodes of every column ``pods``: those that stay, and gangs without a place, have none."""
        may: list[list[int]] = []
        known: dict[tuple[object, ...], list[int]] = {}
        for k, pod in enumerate(self.pod):
            if self.held(k) or pod.gang in self.bounds.nowhere:
                may.append([])
                continue
            key = (
                *_asked(pod),
                frozenset(pod.node_labels.items()),
                *map(frozenset, (pod.tolerations, pod.card_models)),
            )
            if key not in known:
                known[key] = [c for c, (node, _, _) in enumerate(self._nodes) if self.fits(pod, node)]
            pinned = self.pinned(pod)
            may.append([c for c in known[key] if not pinned or self._nodes[c][0].name == pod.node])
        group = np.repeat(np.arange(len(may)), [len(each) for each in may])
        return group, np.array([c for each in may for c in each], np.int64)

    @cached_property
    def kinds(self) -> list[NodeKind]:
        """The kinds of nodes, with the shapes of the pods that may come."""
        group, kind = self._pairs
        rates = dict(zip((n.name for n in self.instance.nodes), rates_of(self.instance).tolist(), strict=True))
        found = []
        for c, (node, nodes, held) in enumerate(self._nodes):
            mine = group[kind == c].tolist()
            asks = {_asked(self.pod[k]): k for k in mine}
            shape = {ask: self._shape(self.pod[k], node, rates[node.name]) for ask, k in asks.items()}
            number = {each: h for h, each in enumerate(dict.fromkeys(shape.values()))}
            place = {ask: number[each] for ask, each in shape.items()}
            of = np.array([place[_asked(self.pod[k])] for k in mine], np.int64)
            stays = tuple((self._shape(self.pod[k], node, rates[node.name]), many) for k, many in held.items())
            found.append(NodeKind(node, len(nodes), stays, tuple(number), of, self.cards, self.whole(node)))
        return found

    def _shape(self, pod: Pod, node: PodNode, rates: Sequence[float]) -> Shape:
        need = self.need(pod, node) if wants_gpu(pod) else Fraction(0)
        slots = (pod.gpu_cards if self.cards else 1) if wants_gpu(pod) else 0
        load = rates[0] * float(need * slots) + rates[1] * pod.cpu_cores + rates[2] * pod.memory_gb
        whole = round(load / float(_LOAD))
        return Shape(size_of(pod.cpu_cores), size_of(pod.memory_gb), need * slots, need, slots, whole)

    # Labels: any pod stands for its group, any node for its kind

    @cached_property
    def label_of_pod(self) -> dict[str, str]:
        """By name of a pod, the label of its group."""
        return {pod.name: pods[0].name for pods in self.groups for pod in pods}

    @cached_property
    def label_of_node(self) -> dict[str, str]:
        """By name of a node, the label of its kind."""
        return {each.name: node.name for node, nodes, _ in self._nodes for each in nodes}

    # Rows and blocks that both phases share

    def _start(self, *, rules: bool) -> tuple[ProgramBuilder, dict[str, Sequence[Block]]]:
        """Columns ``pods`` and ``slots``, their rows, and the blocks of cards."""
        of, (group, kind), kinds = ProgramBuilder(), self._pairs, self.kinds
        many = np.array([len(pods) for pods in self.groups], np.int64)
        names = [pods[0].name for pods in self.groups]
        of.columns(
            "pods",
            [{"pod": names[g], "node": kinds[c].node.name} for g, c in zip(group.tolist(), kind.tolist(), strict=True)],
            upper=many[group].tolist(),
        )
        must = np.array([level is None for level in self.level], bool)
        there = np.zeros(len(many), bool)
        there[group] = True
        for name, relation, which in (("pod", "<=", ~must), ("running", "==", must)):
            rows = np.flatnonzero(which & there)
            mine = np.flatnonzero(which[group])
            terms = np.searchsorted(rows, group[mine]), mine, 1
            of.rows(name, relation, [names[g] for g in rows.tolist()], many[rows], terms, empty=True)
        nodes, every = [each.node.name for each in kinds], np.arange(len(group))
        for name, field in (("cpu", "cpu_cores"), ("memory", "memory_gb")):
            sizes = Exact.of(size_of(getattr(pod, field)) for pod in self.pod)
            free = [k.many * (size_of(getattr(k.node, field)) - k.held_of(name)) for k in kinds]
            of.rows(name, "<=", nodes, free, (kind, every, Exact(sizes.numbers[group], sizes.unit)), empty=True)
        blocks = self._slots(of)
        if (away := self._moves()).any():
            of.rows("moves", "<=", [""], self.budget, (0 * every, every, away.tolist()))
        if rules:
            self._rules(of)
        return of, {"card": blocks}

    def _slots(self, of: ProgramBuilder) -> list[Block]:
        """Slots by kind of nodes and size: as many as pods need; what a card holds."""
        _, kind = self._pairs
        labels, upper, blocks, places = list[Any](), list[int](), list[Block](), dict[tuple[int, float], int]()
        used, rhs = list[tuple[int, int, int]](), list[int]()
        start = of.count
        for c, each in enumerate(self.kinds):
            cards = each.node.cards if self.cards else min(1, each.node.cards)
            needed: dict[float, Fraction] = {}
            for shape in (*each.shapes, *(s for s, _ in each.held)):
                if shape.slots:
                    part = shape.slot / each.whole
                    needed[float(part)] = min(part, needed.get(float(part), part))
            for share, part in needed.items():
                places[c, share] = len(labels)
                labels.append({"node": each.node.name, "share": share})
                upper.append(each.many * cards * int(1 / part))
                taken = sum(s.slots * n for s, n in each.held if s.slots and float(s.slot / each.whole) == share)
                rhs.append(-each.many * taken)
            row_of = [places[c, float(s.slot / each.whole)] if s.slots else -1 for s in each.shapes]
            for column_of, h in zip(np.flatnonzero(kind == c).tolist(), each.of.tolist(), strict=True):
                if row_of[h] >= 0:
                    used.append((row_of[h], column_of, each.shapes[h].slots))
            if needed:
                parts = list(needed.values())
                card = math.lcm(*(part.denominator for part in parts))
                sizes = [int(part * card) for part in parts]
                columns = start + np.array([places[c, share] for share in needed], np.int64)

                def least(costs: Whole, unit: Fraction, sizes: list[int] = sizes, card: int = card) -> Fraction:
                    return -best_filling(sizes, [-int(v) for v in costs.tolist()], card) * unit

                blocks.append(Block(each.many * cards, columns, least))
        if labels:
            of.columns("slots", labels, upper=upper)
            row, column, value = np.array(used, np.int64).reshape(-1, 3).T
            names, some = [f"{x['node']},{x['share']!r}" for x in labels], np.arange(len(labels))
            of.rows("slot", "<=", names, rhs, (row, column, value), (some, start + some, -1))
        return blocks

    def _moves(self) -> NDArray[Any]:
        """Cost of the move of each column ``pods``."""
        group, kind = self._pairs
        at = [(self.pod[g], self.kinds[c].node.name) for g, c in zip(group.tolist(), kind.tolist(), strict=True)]
        return np.array(
            [size_of(pod.move_cost or 0.0) if pod.node not in (None, name) else Fraction(0) for pod, name in at], object
        )

    def _rules(self, of: ProgramBuilder) -> None:
        """Quotas and spreads as the share of all that they allow; shares of a placement sum to at most 1."""
        group, _ = self._pairs
        number = {pod.name: p for p, pod in enumerate(self.instance.pods)}
        first = np.array([number[pod.name] for pod in self.pod], np.int64)[group].tolist()
        for name, (asked, whole) in RuleBook(self.instance).totals(self.bounds.of_spread).items():
            used = {j: asked[p] / Fraction(whole) for j, p in enumerate(first) if p in asked}
            held = sum(
                len(pods) * asked.get(number[pods[0].name], 0) for k, pods in enumerate(self.groups) if self.held(k)
            )
            of.row("rule", name, used, "<=", 1 - held / Fraction(whole))

    # Phase 1

    def admission(self, key: str, above: Iterable[str]) -> ExactProgram:
        """The value of a level, after those ``above``."""
        of, blocks = self._start(rules=True)
        for each in (*above, key):
            of.objective(f"admission {each}", self._worths(each), maximize=True)
        program = of.program()
        program.blocks = {
            **blocks,
            "node": [self._node(c, 2, 0.0, math.inf, 1e-6, None) for c in range(len(self.kinds))],
        }
        return program

    def _worths(self, key: str) -> dict[int, Fraction]:
        worth = {g: level.worth for g, level in enumerate(self.level) if level is not None and level.key == key}
        return {j: worth[g] for j, g in enumerate(self._pairs[0].tolist()) if g in worth}

    def _node(self, c: int, law: int, low: float, high: float, fine: float, cost: int | None) -> Block:
        """A node as a block; ``cost``: the column of the cost of its load."""
        group, kind = self._pairs
        mine = np.flatnonzero(kind == c)
        many = np.array([len(pods) for pods in self.groups], np.int64)[group[mine]]
        columns = mine if cost is None else np.append(mine, cost)

        def least(costs: Whole, unit: Fraction) -> Fraction | None:
            own = 1.0
            each = Exact(costs, unit).floats
            if cost is not None:
                own, each = float(each[-1]), each[:-1]
                if not own > 0:
                    return None
            found = self.kinds[c].cheapest(each / own, many, law, low, high, fine)
            if not math.isfinite(found):
                return _NONE if found > 0 else None
            return Fraction(own * (found - _ROUNDING * (1 + abs(found))))

        return Block(self.kinds[c].many, columns, least)

    # Phase 2

    @property
    def size(self) -> int:
        """Number of nodes."""
        return len(self.instance.nodes)

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
        loads = self._loads()
        held = [k.many * k.held_of("load") * _LOAD for k in self.kinds]
        if measure != "max_load":
            centre = of.columns("centre", [{}], lower=Fraction(low), upper=Fraction(high), integer=False)
            every: dict[int, Fraction | int] = {j: load for each in loads for j, load in each.items()}
            of.row("mean", "", {**every, centre: -self.size}, "==", -sum(held, Fraction(0)))
        names = [{"node": k.node.name} for k in self.kinds]
        empty = measure == "max_load" and tangents is None
        cost: list[int | None] = [None] * len(self.kinds)
        if tangents is None:
            if not empty:
                start = of.columns("cost", names, lower=-self.size, upper=10 * self.size, integer=False)
                cost = [start + c for c in range(len(names))]
                of.objective("balance", dict.fromkeys(range(start, of.count), 1))
        elif measure == "max_load":
            largest = of.columns("largest_load", [{}], upper=10**6, integer=False)
            for k, load, there in zip(self.kinds, loads, held, strict=True):
                less = {j: -v for j, v in load.items()}
                of.row("largest", k.node.name, {**less, largest: k.many}, ">=", there)
            of.objective("balance", {largest: 1})
        else:
            apart = of.columns("apart", names, upper=10 * self.size, integer=False)
            for c, (k, load, there) in enumerate(zip(self.kinds, loads, held, strict=True)):
                for name, sign in (("above", 1), ("below", -1)) if measure == "mean_absolute" else ():
                    terms: dict[int, Fraction | int] = {j: -sign * v for j, v in load.items()}
                    terms |= {centre: sign * k.many, apart + c: 1}
                    of.row(name, k.node.name, terms, ">=", sign * there)
                if measure == "deviation":
                    a = tangents.get(k.node.name, Fraction(0))
                    line: dict[int, Fraction | int] = {j: -2 * a * v for j, v in load.items()}
                    line |= {centre: 2 * a * k.many, apart + c: 1}
                    of.row("tangent", k.node.name, line, ">=", 2 * a * there - k.many * a * a)
            of.objective("balance", dict.fromkeys(range(apart, apart + len(names)), 1))
        program = of.program()
        program.blocks = blocks
        if tangents is None:
            law = {"deviation": 0, "mean_absolute": 1, "max_load": 2}[measure]
            each = enumerate(cost)
            program.blocks = {**blocks, "node": [self._node(c, law, low, high, fine, column) for c, column in each]}
        return program, empty

    def _loads(self) -> list[dict[int, Fraction]]:
        """By kind of nodes, the load of each column ``pods``."""
        _, kind = self._pairs
        return [
            {
                j: each.shapes[h].load * _LOAD
                for j, h in zip(np.flatnonzero(kind == c).tolist(), each.of.tolist(), strict=True)
            }
            for c, each in enumerate(self.kinds)
        ]


def _asked(pod: Pod) -> tuple[object, ...]:
    return (pod.cpu_cores, pod.memory_gb, pod.gpu_memory_gb, pod.gpu_share, pod.gpu_cards)


def _in_units(wanted: Sequence[Fraction], held: Sequence[Fraction]) -> tuple[list[int], list[int]]:
    """Sizes and room in a common integer unit; if that exceeds 60 bits, rounded so that never less fits."""
    unit = math.lcm(*{value.denominator for value in (*wanted, *held)})
    largest = max((*held, Fraction(1)))
    if largest * unit < 2**60:
        return [min(int(v * unit), 2**61) for v in wanted], [int(v * unit) for v in held]
    scale = Fraction(2**60) / largest
    return [min(math.floor(v * scale), 2**61) for v in wanted], [math.ceil(v * scale) for v in held]
