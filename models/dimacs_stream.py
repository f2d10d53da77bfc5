"""Solve a minimum-cost flow whose network changes: read rounds of incremental DIMACS, return the optimum of each.

Nodes and arcs are slots of a `NetworkSession`. A lower bound becomes supplies of the arc's ends; a loop has the flow
that minimises its own cost. If the first round has one sink (the node of type 3, or the only one of negative supply),
it takes whatever the others supply from then on, as in Flowlessly; otherwise supplies must sum to zero in every round.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from flowlex.formulations.sessions.live_network import PATH_COST_LIMIT, NetworkSession, NoFlowError, load_kernels
from flowlex.formulations.sessions.residual_network import ENDLESS
from flowlex.formulations.solver_outcome import EngineError
from flowlex.instances.dimacs_live import AddArc, Change, ChangeArc, NewNode, RemoveNode, Round, SetNode, refuse_line
from flowlex.validation.certificates import Certificate, Check

#: All supplies, lower bounds and capacities together stay below this, so that no sum leaves 64 bits.
_MOST_UNITS = ENDLESS
_TASK, _PLACE, _SINK = 1, 2, 3


@dataclass(slots=True)
class _Node:
    slot: int
    supply: int = 0
    type: int | None = None
    arcs: dict[_Arc, None] = field(default_factory=dict)  # incident arcs


@dataclass(slots=True, eq=False)
class _Arc:
    tail: int
    head: int
    lower: int
    capacity: int | None
    cost: int
    slot: int = -1  # a loop has none

    @property
    def units(self) -> int:
        return self.lower + (self.capacity or 0)

    @property
    def room(self) -> int:
        return ENDLESS if self.capacity is None else self.capacity - self.lower


@dataclass(frozen=True)
class LiveOptimum:
    """The optimum of a round."""

    round: int  # its number
    objective: int | None  # least cost, exact; None when no flow satisfies the network
    flows: tuple[tuple[int, int, int], ...]  # (tail, head, flow) of each arc with flow, in the file's node numbers
    reason: str = ""  # why there is no flow; empty otherwise
    #: Of the optimum: feasibility and reduced costs in exact integers; None without one.
    certificate: Certificate | None = None
    seconds: float = 0.0  # from the changes of the round to the optimum


class LiveFlow:
    """A network with the node numbers of a file, solved by a `NetworkSession`.

    >>> from flowlex.instances.dimacs_live import rounds
    >>> live = LiveFlow()
    >>> log = b"p min 2 1;n 1 1;n 2 -1;a 1 2 0 1 5;c EOI;x 1 2 0 1 4".split(b";")
    >>> [live.solve(each).objective for each in rounds(log)]
    [5, 4]
    """

    def __init__(self) -> None:
        load_kernels()
        self._session = NetworkSession()
        self._declared = 0  # nodes 1 to this are there unless removed
        self._removed: set[int] = set()
        self._nodes: dict[int, _Node] = {}
        self._unused: list[tuple[int, int]] = []  # heap of ranges in which numbers may be free
        self._last = 0  # the greatest number so far
        self._between: dict[tuple[int, int], list[_Arc]] = {}
        self._arc_of: dict[int, _Arc] = {}  # by slot
        self._bounded: dict[_Arc, None] = {}  # with a lower bound
        self._loops: dict[_Arc, None] = {}
        self._total = 0  # of all supplies
        self._units = 0
        self._dearest = 0
        self._sink: int | None = None
        self._stated = False  # whether this round states the sink's demand

    # Rounds ----------------------------------------------------------------------------------------------------
    def solve(self, changes: Round) -> LiveOptimum:
        """Apply the changes of a round and bring the flow to minimum cost; after an error the object is unusable.

        Raises `InstanceError`: a line does not fit the network as it is; the line is named.
        """
        started = time.perf_counter()
        if changes.nodes is not None:
            self._declared = self._last = changes.nodes
        for change in changes.changes:
            self._take(change)
        self._settle_sink(changes)
        if self._dearest * (len(self._nodes) + 1) >= PATH_COST_LIMIT:
            refuse_line(changes.line, f"costs up to {self._dearest} over {len(self._nodes)} nodes may leave 64 bits")
        try:
            self._session.solve()
        except NoFlowError as error:
            name = next(number for number, node in self._nodes.items() if node.slot == error.node)
            reason = f"no flow satisfies the network: node {name} cannot be balanced"
            return LiveOptimum(changes.number, None, (), reason, seconds=time.perf_counter() - started)
        except EngineError as error:
            return LiveOptimum(changes.number, None, (), str(error), seconds=time.perf_counter() - started)
        seconds = time.perf_counter() - started
        found = sorted(self._flows(), key=lambda pair: (pair[0].tail, pair[0].head, pair[0].cost))
        objective = sum(flow * arc.cost for arc, flow in found)
        flows = tuple((arc.tail, arc.head, flow) for arc, flow in found)
        return LiveOptimum(changes.number, objective, flows, "", self._prove(changes.number), seconds)

    def assignments(self, optimum: LiveOptimum) -> list[tuple[int, int]]:
        """(task, place) for each unit of an optimum that runs from a node of type 1 through one of type 2."""
        following: dict[int, list[list[int]]] = {}
        for tail, head, flow in optimum.flows:
            if tail != head:
                following.setdefault(tail, []).append([head, flow])
        found = []
        for task in (number for number, node in self._nodes.items() if node.type == _TASK):
            for _ in range(self._nodes[task].supply):
                at, place = task, None
                while ways := following.get(at):
                    at, left = ways[-1]
                    ways[-1][1] -= 1
                    if left == 1:
                        ways.pop()
                    place = at if self._nodes[at].type == _PLACE else place
                if place is not None:
                    found.append((task, place))
        return found

    def _flows(self) -> Iterator[tuple[_Arc, int]]:
        flow = self._session.flow
        for slot in np.flatnonzero(flow).tolist():
            arc = self._arc_of[slot]
            yield arc, arc.lower + int(flow[slot])
        for arc in self._bounded:
            if arc.slot >= 0 and not flow[arc.slot]:
                yield arc, arc.lower
        for arc in self._loops:
            units = arc.lower if arc.cost >= 0 else arc.capacity
            if units:
                yield arc, units

    def _prove(self, number: int) -> Certificate:
        found = self._session.violations()
        checks = (
            Check("flow conservation at every node", not found.conservation, found.conservation),
            Check("flow within the bounds", not found.bounds, found.bounds),
            Check("reduced costs have the right sign", not found.reduced_costs, found.reduced_costs),
        )
        return Certificate("optimal", True, checks).require(f"round {number}")

    def _settle_sink(self, changes: Round) -> None:
        if self._sink is None:
            typed = [number for number, node in self._nodes.items() if node.type == _SINK]
            sinks = typed or [number for number, node in self._nodes.items() if node.supply < 0]
            self._sink = sinks[0] if len(sinks) == 1 else None
        elif self._total and not self._stated:
            self._supply(changes.line, self._sink, self._nodes[self._sink].supply - self._total)
        self._stated = False
        if self._total:
            refuse_line(changes.line, f"supplies sum to {self._total} at the end of round {changes.number}, not to 0")

    # Lines -----------------------------------------------------------------------------------------------------
    def _take(self, change: Change) -> None:
        if isinstance(change, SetNode):
            if change.node > self._last:
                heapq.heappush(self._unused, (self._last + 1, change.node - 1))
                self._last = change.node
            self._removed.discard(change.node)
            self._stated |= change.node == self._sink
            self._put(change.node, change.supply, change.type, change.line)
        elif isinstance(change, NewNode):
            number = self._free_number()
            self._put(number, change.supply, change.type, change.line)
            for arc in change.arcs:
                self._add(arc._replace(tail=arc.tail or number, head=arc.head or number))
        elif isinstance(change, AddArc):
            self._add(change)
        elif isinstance(change, ChangeArc):
            self._change(change)
        else:
            self._remove_node(change)

    def _node(self, number: int, line: int) -> _Node:
        node = self._nodes.get(number)
        if node is None:
            if number > self._declared or number in self._removed:
                refuse_line(line, f"node {number} does not exist")
            node = self._nodes[number] = _Node(self._session.add_node())
        return node

    def _free_number(self) -> int:
        while self._unused:
            first, last = heapq.heappop(self._unused)
            while first <= last and (first in self._nodes or (first <= self._declared and first not in self._removed)):
                first += 1
            if first <= last:
                heapq.heappush(self._unused, (first + 1, last))
                self._removed.discard(first)
                return first
        self._last += 1
        return self._last

    def _put(self, number: int, supply: int, kind: int | None, line: int) -> None:
        node = self._nodes.get(number)
        if node is None:
            node = self._nodes[number] = _Node(self._session.add_node())
        node.type = node.type if kind is None else kind
        self._supply(line, number, supply)

    def _supply(self, line: int, number: int, supply: int) -> None:
        node = self._nodes[number]
        self._count(abs(supply) - abs(node.supply), line)
        if supply != node.supply:
            self._session.add_supply(node.slot, supply - node.supply)
        self._total += supply - node.supply
        node.supply = supply

    def _count(self, more: int, line: int) -> None:
        self._units += more
        if self._units >= _MOST_UNITS:
            refuse_line(
                line, f"supplies and bounds sum to {self._units}, the limit is {_MOST_UNITS}; use a larger unit"
            )

    def _add(self, line: AddArc) -> None:
        tail, head = self._node(line.tail, line.line), self._node(line.head, line.line)
        arc = _Arc(*line[1:])
        self._weigh(arc, line.line)
        tail.arcs[arc] = head.arcs[arc] = None
        if tail is head:
            if arc.cost < 0 and arc.capacity is None:
                refuse_line(line.line, f"a loop at node {arc.tail} costs {arc.cost} and has no capacity; give it one")
            self._loops[arc] = None
            return
        arc.slot = self._session.add_arc(tail.slot, head.slot, arc.room, arc.cost)
        self._arc_of[arc.slot] = arc
        self._bind(arc, arc.lower)
        self._between.setdefault((arc.tail, arc.head), []).append(arc)

    def _weigh(self, arc: _Arc, line: int) -> None:
        self._count(arc.units, line)
        self._dearest = max(self._dearest, abs(arc.cost))

    def _bind(self, arc: _Arc, units: int) -> None:
        """Move ``units`` more of an arc's lower bound into the supplies of its ends."""
        if arc.lower:
            self._bounded[arc] = None
        else:
            self._bounded.pop(arc, None)
        if units:
            self._session.add_supply(self._nodes[arc.tail].slot, -units)
            self._session.add_supply(self._nodes[arc.head].slot, units)

    def _change(self, line: ChangeArc) -> None:
        found = self._between.get((line.tail, line.head), [])
        if line.tail == line.head:
            found = [arc for arc in self._loops if arc.tail == line.tail]
        if len(found) > 1:
            found = [arc for arc in found if arc.cost == line.old]
            if not found:
                said = "say its cost so far" if line.old is None else f"none costs {line.old}"
                refuse_line(line.line, f"several arcs lead from {line.tail} to {line.head}; {said}")
        if not found and line.capacity != 0:
            self._add(AddArc(*line[:6]))
        elif not found:
            self._node(line.tail, line.line), self._node(line.head, line.line)
        elif line.capacity == 0 or found[0].slot < 0:
            self._remove_arc(found[0])
            if line.capacity != 0:
                self._add(AddArc(*line[:6]))
        else:
            self._alter(found[0], line)

    def _alter(self, arc: _Arc, line: ChangeArc) -> None:
        """Change an arc in place, so that it keeps as much of its flow as possible."""
        self._units -= arc.units
        more = line.lower - arc.lower
        arc.lower, arc.capacity, arc.cost = line.lower, line.capacity, line.cost
        self._weigh(arc, line.line)
        self._bind(arc, more)
        self._session.change_arc(arc.slot, self._nodes[arc.tail].slot, self._nodes[arc.head].slot, arc.room, arc.cost)

    def _remove_arc(self, arc: _Arc) -> None:
        self._units -= arc.units
        del self._nodes[arc.tail].arcs[arc]
        self._nodes[arc.head].arcs.pop(arc, None)
        if arc.tail == arc.head:
            del self._loops[arc]
            return
        self._session.remove_arc(arc.slot)
        del self._arc_of[arc.slot]
        self._bind(arc, -arc.lower)
        self._bounded.pop(arc, None)
        others = self._between[arc.tail, arc.head]
        others.remove(arc)
        if not others:
            del self._between[arc.tail, arc.head]

    def _remove_node(self, line: RemoveNode) -> None:
        node = self._node(line.node, line.line)
        for arc in list(node.arcs):
            self._remove_arc(arc)
        self._supply(line.line, line.node, 0)
        self._sink = None if line.node == self._sink else self._sink
        self._session.remove_node(node.slot)
        del self._nodes[line.node]
        if line.node <= self._declared:
            self._removed.add(line.node)
        heapq.heappush(self._unused, (line.node, line.node))
