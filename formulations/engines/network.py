"""Network simplex (pylmcf), or cost scaling, for flow networks: exact integers from the data to the duals.

pylmcf needs arcs sorted by their ends, costs of at least zero and, for warm starts, no lower bounds. `NormalForm`
converts to and from that: lower bounds become supplies, an arc of negative cost is replaced by its reverse at full
flow, loops are solved separately, and an arc without capacity gets one that no bounded optimum can reach. Where similar
nodes are neighbours, nodes are renumbered by a fixed random permutation: pylmcf searches entering arcs by node number,
which is faster when similar nodes are spread. Other networks keep their order: grids take two to three times as long
when they are renumbered.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, NoReturn, TypeAlias

import numpy as np
import pylmcf
from numpy.typing import NDArray

from flowlex.formulations.engines.cost_scaling import scale_costs
from flowlex.formulations.engines.dense_assignment import solve_dense_assignment
from flowlex.formulations.engines.exact_integers import check_magnitudes, finite_upper
from flowlex.formulations.flow_network import UNBOUNDED, FlowNetwork
from flowlex.formulations.program_arrays import Booleans, Integers, frozen
from flowlex.formulations.solver_outcome import EngineError, Infeasibility, Outcome, SolveOptions, Status

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

_Nodes: TypeAlias = NDArray[np.int32]
#: Networks on which cost scaling comes first: at least so many nodes, at most so many arcs for each, and a node through
#: which one in so many nodes sends; and what it may look at for each arc (it needs 400 to 1600 where it pays).
_CROWDED_NODES, _FEW_ARCS, _CROWD, _SCALING_PER_ARC = 8_000, 3, 20, 2_500
#: ``poll`` counts milliseconds in 32 bits.
_LONGEST_WAIT_S = 1e6


@dataclass(frozen=True)
class NormalForm:
    """The problem in the form that pylmcf needs; ``flows`` converts its answer back."""

    network: FlowNetwork
    order: Integers  # (K,) arcs of the network (loops left out) in pylmcf's order
    reverse: Booleans  # (A,) bool, arcs replaced by their reverse
    upper: Integers  # (A,) finite capacities of the network's arcs
    number: _Nodes  # (N,) pylmcf's number of each node
    #: The normalised problem in pylmcf's numbers; the first four are (K,) in pylmcf's order.
    tail: _Nodes
    head: _Nodes
    capacity: Integers
    cost: Integers
    supply: Integers

    @classmethod
    def of(cls, network: FlowNetwork) -> NormalForm:
        """Normalise a network whose magnitudes have been checked."""
        upper = finite_upper(network)
        reverse = network.cost < 0
        base = np.where(reverse, upper, network.lower)  # network flow at normalised flow 0
        supply = network.supply.copy()
        np.subtract.at(supply, network.tail, base)
        np.add.at(supply, network.head, base)
        count = network.node_count
        number = _spread(count) if network.similar_neighbours else np.arange(count, dtype=np.int32)
        tail, head = number[network.tail], number[network.head]
        if reverse.any():
            tail, head = np.where(reverse, head, tail), np.where(reverse, tail, head)
        numbered = np.empty_like(supply)
        numbered[number] = supply
        order = _by_ends(tail, head)
        loop = tail == head
        order = order[~loop[order]] if loop.any() else order
        return cls(
            network,
            order,
            reverse,
            upper,
            number,
            tail[order],
            head[order],
            (upper - network.lower)[order],
            np.abs(network.cost)[order],
            numbered,
        )

    def graph(self) -> pylmcf.Graph:
        """A pylmcf graph holding the problem."""
        graph = pylmcf.Graph(self.network.node_count, self.tail, self.head)
        graph.set_node_supply(self.supply)
        graph.set_edge_capacities(self.capacity)
        graph.set_edge_costs(self.cost)
        return graph

    def flows(self, result: Integers) -> Integers:
        """Flows on the network's arcs from pylmcf's answer; a loop runs at its cheaper bound."""
        normal = np.zeros(self.network.arc_count, np.int64)
        normal[self.order] = result
        return np.where(self.reverse, self.upper - normal, self.network.lower + normal)


@lru_cache(maxsize=8)  # the same model is often solved again and again
def _spread(count: int) -> _Nodes:
    """(count,) a permutation, always the same."""
    return frozen(np.random.default_rng(0).permutation(count).astype(np.int32))


def _by_ends(tail: _Nodes, head: _Nodes) -> Integers:
    """Order arcs by tail, then by head, in linear time: NumPy's stable sort of 16-bit integers is a radix sort."""
    large = max(tail.max(initial=0), head.max(initial=0)) >= 2**16
    digits = [(head, head >> 16), (tail, tail >> 16)] if large else [(head,), (tail,)]
    return np.lexsort([digit.astype(np.uint16) for end in digits for digit in end])


def solve_network(network: FlowNetwork, options: SolveOptions) -> Outcome:
    """Solve a network exactly; with a time limit, in a child process that can be stopped."""
    check_magnitudes(network)
    if options.time_limit_s is None:
        return _solve(network)
    from multiprocessing.connection import Pipe

    receiver, sender = Pipe(duplex=False)
    # A bare fork: a batch may run in a daemonic worker of multiprocessing, which may not have children.
    child = os.fork()
    if not child:
        receiver.close()
        _solve_into(network, sender)
    sender.close()
    try:
        if not receiver.poll(min(options.time_limit_s, _LONGEST_WAIT_S)):
            message = f"stopped after {options.time_limit_s:.6g} s"
            return Outcome(Status.TIME_LIMIT, "network", seconds=options.time_limit_s, message=message)
        answer = receiver.recv()
    except EOFError as error:
        raise EngineError("the network simplex process ended without an answer") from error
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        receiver.close()
    if isinstance(answer, Exception):
        raise answer
    assert isinstance(answer, Outcome)
    return answer


def _solve_into(network: FlowNetwork, sender: Connection) -> NoReturn:
    """Solve in the forked child, and always end its process here."""
    try:
        try:
            sender.send(_solve(network))
        except Exception as error:  # handed to the parent, which raises it
            sender.send(error)
    finally:
        os._exit(0)


def _solve(network: FlowNetwork) -> Outcome:
    started = time.perf_counter()
    if (found := solve_dense_assignment(network)) is not None:
        flow, potentials = found
        cost = network.total_cost(flow)
        return Outcome(
            Status.OPTIMAL,
            "network",
            cost,
            cost,
            flow,
            potentials,
            network.reduced_costs(potentials),
            "assignment by shortest augmenting paths",
            seconds=time.perf_counter() - started,
        )
    normal = NormalForm.of(network)
    if not len(normal.order):
        return _without_arcs(network, normal, started)
    if _crowds_a_node(normal) and (found := _by_cost_scaling(normal)) is not None:
        return _outcome(network, normal, *found, started, "cost scaling")
    graph = normal.graph()
    try:
        graph.solve()
    except RuntimeError as error:
        if "INFEASIBLE" not in str(error).upper():
            raise EngineError(f"network simplex failed: {error}") from error
        inside = graph.infeasibility_cut()
        if inside is None:
            raise EngineError("network simplex finds no flow, yet there is no cut; please report this") from error
        return _infeasible(np.asarray(inside, bool)[normal.number], started)
    # pylmcf's reduced cost is cost + pi[tail] - pi[head]
    return _outcome(network, normal, graph.result(), -graph.potentials()[normal.number], started)


def _crowds_a_node(normal: NormalForm) -> bool:
    """Whether a pivot of the simplex would often change the potentials of most nodes.

    So it is where few arcs leave a node, and one node lies on the paths of a large part of the others, as the cluster
    does between tasks and machines. Time then grows with the square of the nodes: 5 s at 35 000 nodes and 92 000 arcs.
    """
    nodes = len(normal.supply)
    if nodes < _CROWDED_NODES or len(normal.order) > _FEW_ARCS * nodes:
        return False
    through = np.minimum(np.bincount(normal.tail, minlength=nodes), np.bincount(normal.head, minlength=nodes))
    return int(through.max()) * _CROWD >= nodes


def _by_cost_scaling(normal: NormalForm) -> tuple[Integers, Integers] | None:
    """Flows in pylmcf's order and potentials of the network's nodes, if cost scaling proves them within its budget."""
    tail, head, capacity, cost = normal.tail, normal.head, normal.capacity, normal.cost
    found = scale_costs(tail, head, capacity, cost, normal.supply, _SCALING_PER_ARC * len(tail))
    if found is None:
        return None
    flow, potentials = found
    reduced = cost - potentials[tail] + potentials[head]
    if ((reduced < 0) & (flow < capacity)).any() or ((reduced > 0) & (flow > 0)).any():
        return None
    return flow, potentials[normal.number]


def _infeasible(cut: Booleans, started: float) -> Outcome:
    reason = Infeasibility("no flow", cut=cut)
    return Outcome(Status.INFEASIBLE, "network", seconds=time.perf_counter() - started, infeasibility=reason)


def _without_arcs(network: FlowNetwork, normal: NormalForm, started: float) -> Outcome:
    if normal.supply.any():
        return _infeasible(normal.supply[normal.number] > 0, started)
    none = np.zeros(0, np.int64)
    return _outcome(network, normal, none, np.zeros(network.node_count, np.int64), started)


def _outcome(
    network: FlowNetwork,
    normal: NormalForm,
    result: Integers,
    potentials: Integers,
    started: float,
    method: str = "network simplex",
) -> Outcome:
    reduced, missing = network.reduced_costs(potentials), network.upper == UNBOUNDED
    # A bounded optimum stays below every stand-in capacity, so no such arc can have a negative reduced cost.
    if (missing & (reduced < 0)).any():
        return Outcome(Status.UNBOUNDED, "network", seconds=time.perf_counter() - started)
    flow = normal.flows(result)
    if (missing & (flow >= normal.upper)).any():
        # A cycle of zero cost runs at its stand-in capacity; with reduced costs as costs, no such arc starts full.
        priced = _solve(replace(network, cost=reduced))
        assert priced.values is not None and priced.duals is not None
        flow, potentials = priced.values, potentials + priced.duals
        reduced = network.reduced_costs(potentials)
    cost, took = network.total_cost(flow), time.perf_counter() - started
    return Outcome(Status.OPTIMAL, "network", cost, cost, flow, potentials, reduced, method, seconds=took)


def infeasible_cut(network: FlowNetwork) -> Booleans | None:
    """Nodes that must send out more than the arcs out of them carry, or None if the network is feasible."""
    check_magnitudes(network)
    normal = NormalForm.of(network)
    if not len(normal.order):
        return normal.supply[normal.number] > 0 if normal.supply.any() else None
    cut = normal.graph().infeasibility_cut()
    return None if cut is None else np.asarray(cut, bool)[normal.number]


def solve_exactly(network: FlowNetwork) -> tuple[Integers, Integers] | None:
    """Flows and potentials of an optimum, or None. Magnitudes are not checked: the caller judges the answer."""
    outcome = _solve(network)
    if outcome.status is not Status.OPTIMAL:
        return None
    assert outcome.values is not None and outcome.duals is not None
    return outcome.values, outcome.duals
