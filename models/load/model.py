r"""Which node processes which items, so that all nodes finish together and moves are cheapest?

Items are stored on nodes (a block may have replicas on several nodes). The capacity of a node is its speed; it comes
from one of several evaluations, independent of the model. ``targets``: each node gets its share of the items by
capacity, rounded to integers, at minimum moving cost. ``makespan``: the last node finishes as early as possible with
indivisible items; among these partitions, moving cost is minimised.

An item that is processed where it is stored costs nothing. A moved item costs the seconds of the link, or a default
number of seconds without a link. Costs are exact: rational numbers in their largest common unit.

The problem is stated once, in `flowlex.models.load.statement`. It is solved as a minimum-cost flow, from the group of
an item over a holder to a node. The matrix is totally unimodular, so flows are integral without integer programming.

A changed model is an integer program. User-written constraints hold in every stage. The stage ``makespan`` counts the
finish times after the least makespan of the unchanged model until the last node ends (0: no later), the stage ``moved``
sums the seconds of all moves.

Duals, in seconds: ``group`` is what one more item costs of the blocks that lie where this one lies, ``holder`` what one
more item that lies on the node costs, ``node`` what one item less for the node costs.

Source: Hu, Zhu, Liu, Wang, algorithm 1 (targets); cost, replicas and makespan are ours. The CPU-load formula is
reconstructed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import numpy as np

from flowlex.formulations.flow_network import FlowNetwork
from flowlex.formulations.program_arrays import Floats, Integers
from flowlex.formulations.solver_outcome import EngineError, EngineName, SolveOptions, Status
from flowlex.instances.load import LoadNode, LoadPartitionInstance
from flowlex.models.load.node_speed import capacities, largest_remainder, least_makespan_loads
from flowlex.models.load.partition_network import (
    HolderGroups,
    PartitionNetwork,
    build_network,
    moved_cost,
    moves_of,
    summed,
)
from flowlex.models.load.solution import PartitionSolution
from flowlex.models.load.statement import NEEDED, ROWS, state
from flowlex.models.model_base import Dual, Model, Run
from flowlex.models.solution import plain

if TYPE_CHECKING:
    from flowlex.models.problem import Problem

Capacity: TypeAlias = Literal["configuration", "cpu_load", "history", "performance"] | Callable[[LoadNode], float]


@dataclass(frozen=True, eq=False, repr=False)
class LoadPartition(Model[LoadPartitionInstance, PartitionSolution]):
    """Partition of items over nodes (see the module).

    Parameters
    ----------
    instance
        Nodes, items, move costs.
    capacity
        Evaluation of a node's capacity: a name, or a function of the node.
    objective
        ``targets`` or ``makespan``.
    level
        ``node``: use only the first copy of each block. ``item``: also use replicas.

    Raises
    ------
    ModelError
        A node lacks the data of the evaluation, a capacity is negative, or all are zero.
    """

    capacity: Capacity = "configuration"
    objective: Literal["targets", "makespan"] = "targets"
    level: Literal["node", "item"] = "node"

    name: ClassVar[str] = "load-partition"
    title: ClassVar[str] = "Load partition"
    comparison: ClassVar[str] = "flowlex.models.load.baselines:compare"
    needed: ClassVar[Mapping[str, str]] = NEEDED
    examples: ClassVar[tuple[tuple[str, str, Mapping[str, Any]], ...]] = (
        ("Targets, as in the paper", "inference-cluster", {}),
        ("The least makespan, with replicas", "inference-cluster", {"objective": "makespan", "level": "item"}),
    )
    main_stage: ClassVar[str] = "moved"

    @classmethod
    def declared(cls) -> frozenset[str]:
        """The names that rows of statements and networks may have."""
        return ROWS

    def _check(self) -> None:
        _ = self.capacities

    @cached_property
    def capacities(self) -> tuple[Fraction, ...]:
        """Exact capacities of the N nodes."""
        return capacities(self.instance.nodes, self.capacity)

    @cached_property
    def total(self) -> int:
        """Total number of items."""
        return int(self.instance.arrays.count.sum())

    @cached_property
    def targets(self) -> Integers:
        """(N,) target number of items of each node: its quota by capacity, rounded."""
        return largest_remainder(self.capacities, self.total)

    @cached_property
    def partition(self) -> PartitionNetwork:
        """The network, with the meaning of its arcs."""
        groups = HolderGroups.of(self.instance.arrays, replicas=self.level == "item")
        most = least_makespan_loads(self.capacities, self.total)[1] if self.objective == "makespan" else None
        one_way = most is None and self.level == "node"  # the paper's problem
        return build_network(self.instance, groups, self.targets, most, one_way=one_way, rows=self.declared())

    def _formulate(self) -> FlowNetwork:
        return self.partition.network

    def state(self, p: Problem) -> None:
        """State targets or makespan, and least cost.

        Parameters
        ----------
        p
            The problem to state.
        """
        targets, every = self.targets if self.objective == "targets" else None, self.level == "item"
        state(p, self.instance, targets=targets, capacity=self.capacities, replicas=every)

    @property
    def unchangeable(self) -> str:
        """Why the model takes no changes; empty if it does."""
        if isinstance(self.capacity, str):
            return ""
        return (
            "no file can hold a function as capacity; write its figures as the nodes' `performance` and use "
            "capacity='performance'"
        )

    def _solution_of(self, values: Mapping[str, Floats] | None, facts: dict[str, Any]) -> PartitionSolution:
        if values is None:
            return self._partitioned(facts)
        index, x = self.problem.blocks["x"].index, values["x"]
        items = np.rint(x).astype(np.int64)
        block, holder, node = (index.codes[level].astype(np.int64) for level in ("block", "holder", "node"))
        used = np.flatnonzero(items)
        moves = np.zeros((len(self.instance.nodes),) * 2, np.int64)
        np.add.at(moves, (holder, node), items)
        np.fill_diagonal(moves, 0)
        if np.abs(x - items).max(initial=0) > 1e-6:
            note = "Items are split: the table shows them rounded to integers; see `stated.values`."
            facts = facts | {"message": f"{facts['message']} {note}".lstrip()}
        return self._partitioned(facts, summed(block[used], node[used], items[used]), moves)

    def _partitioned(
        self,
        facts: dict[str, Any],
        parts: tuple[Integers, Integers, Integers] | None = None,
        moves: Integers | None = None,
        **proven: Any,
    ) -> PartitionSolution:
        size = len(self.instance.nodes)
        after = np.zeros(size, np.int64)
        if parts is not None:
            np.add.at(after, parts[1], parts[2])
        return PartitionSolution(
            **facts,
            **proven,
            capacity=np.array(self.capacities, dtype=np.float64),
            before=self.instance.arrays.load,
            after=after,
            parts=parts,
            moves=np.zeros((size, size), np.int64) if moves is None else moves,
        )

    @property
    def _is_network(self) -> bool:
        return True

    def _run(self, engine: EngineName, options: SolveOptions) -> Run:
        if engine == "network" or options.solver is not None:
            return super()._run(engine, options)
        try:
            run = super()._run(engine, options)
            reason = run.outcome.message or str(run.outcome.status)
            if run.outcome.status in (Status.OPTIMAL, Status.TIME_LIMIT) or run.outcome.values is not None:
                return run
        except EngineError as error:
            reason = str(error)
        exact = super()._run("network", SolveOptions(time_limit_s=options.time_limit_s)).outcome
        message = f"solved by engine 'network', as {engine!r} found no exact answer ({reason}). {exact.message}".strip()
        return Run(replace(exact, message=message))

    def _interpret(self, run: Run) -> PartitionSolution:
        built, outcome, view, facts = self.partition, run.outcome, self.instance.arrays, self._facts(run)
        if outcome.values is None:
            return self._partitioned(facts)
        parts = built.parts(outcome.values, view.count)
        moves = moves_of(view, built.groups, parts)
        seconds = moved_cost(view, moves)
        facts |= {"objective": plain(seconds), "exact_objective_s": seconds}
        if outcome.duals is None or outcome.duals.dtype.kind != "i":
            return self._partitioned(facts, parts, moves)
        proven, found = built.prices(outcome.values, outcome.duals)
        blocks = built.network.node_blocks
        prices = {name: found[block.slice] for name, block in blocks.items()}
        bound = seconds
        if not proven:  # costs were rounded, and the flow is not proven optimal for the exact ones
            assert outcome.bound is not None
            unit = built.units.unit
            bound = max(unit * int(outcome.bound) - built.units.error * self.total, Fraction(0))
            why = (
                f"Move costs have no common unit that 64 bits hold and were rounded to one of {float(unit):.3g} s; "
                "write them with fewer digits for a proven optimum."
            )
            facts |= {"status": Status.FEASIBLE, "message": f"{outcome.message} {why}".lstrip()}
        gap = float((seconds - bound) / max(seconds, Fraction(1)))
        facts |= {"bound": plain(bound), "exact_bound_s": bound, "gap": gap}
        duals = {n: Dual.of_block(blocks[n], np.array(prices[n], np.float64)) for n in ("group", "holder", "node")}
        # Seconds per additional item of a node: the proof of minimum cost.
        node = prices["node"]
        if self.objective == "makespan":
            node = [max(price - prices["end"][0], Fraction(0)) for price in node]
        exact = dict(zip((each.name for each in self.instance.nodes), node, strict=True))
        return self._partitioned(facts, parts, moves, duals=duals, node_price=exact)
