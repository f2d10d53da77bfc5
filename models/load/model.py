r"""Which node processes which items, so that all nodes finish together and moves are cheapest?

Items are stored on nodes (a block may have replicas on several nodes). The capacity of a node is its speed; it comes
from one of several evaluations, independent of the model. ``targets``: each node gets its share of the items by
capacity, rounded to integers, at minimum moving cost. ``makespan``: the last node finishes as early as possible with
indivisible items; among these partitions, moving cost is minimised.

An item that is processed where it is stored costs nothing. A moved item costs the seconds of the link, or a default
number of seconds without a link. Costs are exact: rational numbers in their largest common unit.

The matrix is a node-arc incidence matrix (totally unimodular), so flows are integral without integer programming.
With ``level="node"`` replicas are not used, and ``targets`` is the paper's problem: only nodes above their target
send, only nodes below receive, so the moved volume is minimal.

A changed model is an integer program: ``x[b,h,n]`` items of block b go from holder h to node n. User-written
constraints hold in every stage. ``group``: every item of a block is processed once; ``node``: a node gets its target.
Under ``makespan``, ``finish`` is :math:`z_i \le u_i + \sum_s y_s (u_{is} - u_{i,s-1})`, where node i finishes
:math:`u_{is}` items by the s-th finish time. The stage ``makespan`` counts the finish times after the least makespan
of the unchanged model until the last node ends (0: no later), the stage ``moved`` sums the seconds of all moves.

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
from flowlex.formulations.solver_outcome import EngineError, EngineName, Outcome, SolveOptions, Status
from flowlex.instances.load import LoadNode, LoadPartitionInstance
from flowlex.models.load.node_speed import capacities, largest_remainder, least_makespan_loads
from flowlex.models.load.partition_network import Groups, PartitionNetwork, build_network, moved_cost, moves_of
from flowlex.models.load.reference_formulation import NEEDED, Shipped, state
from flowlex.models.load.solution import PartitionSolution
from flowlex.models.model_base import Dual, Equation, Model, ModelError, Run, Symbol
from flowlex.models.solution import plain
from flowlex.models.statement.rows_and_objectives import Statement

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
    sets: ClassVar[tuple[Symbol, ...]] = (
        Symbol("N", "nodes"),
        Symbol("K", "groups of items that lie on the same nodes"),
    )
    parameters: ClassVar[tuple[Symbol, ...]] = (
        Symbol("n_k", "items of group k"),
        Symbol("H_k", "nodes that hold the items of group k"),
        Symbol("C_i", "capacity of node i"),
        Symbol("t_i", "target of node i: its quota by capacity, rounded to an integer"),
        Symbol("u_i", "upper bound on the items that node i ends within the least makespan"),
        Symbol("c_{hi}, d", "seconds to move an item from node h to node i: along a link, without one"),
    )
    unknowns: ClassVar[tuple[Symbol, ...]] = (
        Symbol("x_{kh}", "items of group k that are taken from holder h"),
        Symbol("s_h", "items that stay on node h"),
        Symbol("m_{hi}", "items moved along the link from h to i"),
        Symbol("e_h, r_i", "items that leave h, that reach i, without a link"),
        Symbol("z_i", "items processed on node i"),
    )
    main_stage: ClassVar[str] = "moved"
    objective_latex: ClassVar[str] = r"\sum_{h, i \in N} c_{hi}\, m_{hi} + d \sum_{h \in N} e_h"
    equations: ClassVar[tuple[Equation, ...]] = (
        Equation(
            "group",
            r"\sum_{h \in H_k} x_{kh} = n_k \quad \forall k \in K",
            "every item is processed once",
            "what one more item costs of the blocks that lie where this one lies",
            "s per item",
        ),
        Equation(
            "holder",
            r"\sum_{k \in K} x_{kh} = s_h + \sum_{i \in N} m_{hi} + e_h \quad \forall h \in N",
            "items stay or move",
            "what one more item that lies on the node costs",
            "s per item",
        ),
        Equation("usual", r"\sum_{h \in N} e_h = \sum_{i \in N} r_i", "what leaves without a link arrives"),
        Equation(
            "node",
            r"s_i + \sum_{h \in N} m_{hi} + r_i = t_i \text{ (targets)}, \; = z_i \text{ (makespan)}"
            r" \quad \forall i \in N",
            "a node gets its share",
            "what one item less for the node costs",
            "s per item",
        ),
        Equation(
            "finish",
            r"z_i \le u_i \quad \forall i \in N",
            "a node ends within the least makespan",
            when="objective='makespan'",
            exists=lambda model: model.objective == "makespan",
        ),
        Equation(
            "end",
            r"\sum_{i \in N} z_i = \sum_{k \in K} n_k",
            "all items are processed",
            when="objective='makespan'",
            exists=lambda model: model.objective == "makespan",
        ),
    )

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
        groups = Groups.of(self.instance.arrays, replicas=self.level == "item")
        most = least_makespan_loads(self.capacities, self.total)[1] if self.objective == "makespan" else None
        one_way = most is None and self.level == "node"  # the paper's problem
        return build_network(self.instance, groups, self.targets, most, one_way=one_way, rows=self.declared())

    def _formulate(self) -> FlowNetwork:
        return self.partition.network

    def _state(self) -> Statement:
        if not isinstance(self.capacity, str):
            raise ModelError(
                "LoadPartition with a function as capacity takes no changes, as no file can hold it; write its figures "
                "as the nodes' `performance` and use capacity='performance'"
            )
        from flowlex.models.statement.from_language import statement_of

        return statement_of(self.problem, NEEDED)

    def state(self, p: Problem) -> None:
        """The problem that changes refer to; see `flowlex.models.load.reference_formulation`.

        Parameters
        ----------
        p
            The problem to state.
        """
        targets, every = self.targets if self.objective == "targets" else None, self.level == "item"
        state(p, self.instance, targets=targets, capacity=self.capacities, replicas=every)

    @cached_property
    def problem(self) -> Problem:
        """The problem that changes refer to, stated in the language."""
        from flowlex.models.problem import Problem

        p = Problem(self.instance.name)
        self.state(p)
        return p

    def _solution_of(self, values: Mapping[str, Floats] | None, facts: dict[str, Any]) -> PartitionSolution:
        size, parts = len(self.instance.nodes), None
        moves, after = np.zeros((size, size), np.int64), np.zeros(size, np.int64)
        if values is not None:
            shipped = Shipped.of(self.statement.columns["x"], values["x"], size)
            parts, moves = shipped.parts, shipped.moves
            np.add.at(after, parts[1], parts[2])
            if shipped.split:
                note = "Items are split: the table shows them rounded to integers; see `stated.values`."
                facts = facts | {"message": f"{facts['message']} {note}".lstrip()}
        return PartitionSolution(
            **facts,
            capacity=np.array(self.capacities, dtype=np.float64),
            before=self.instance.arrays.load,
            after=after,
            parts=parts,
            moves=moves,
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
        built, outcome, view = self.partition, run.outcome, self.instance.arrays
        facts = self._facts(run)
        size = len(self.instance.nodes)
        parts, moves, after = None, np.zeros((size, size), np.int64), np.zeros(size, np.int64)
        prices: dict[str, list[Fraction]] = {}
        if outcome.values is not None:
            parts = built.parts(outcome.values, view.count)
            np.add.at(after, parts[1], parts[2])
            moves = moves_of(view, built.groups, parts)
            seconds = moved_cost(view, moves)
            facts |= {"objective": plain(seconds), "exact_objective_s": seconds}
            if outcome.duals is not None and outcome.duals.dtype.kind == "i":
                proven, found = built.prices(outcome.values, outcome.duals)
                prices = {name: found[block.slice] for name, block in built.network.node_blocks.items()}
                facts |= self._bounded(seconds) if proven else self._rounded(outcome, seconds)
        promised = [equation.name for equation in self.equations if equation.dual and equation.name in prices]
        blocks = built.network.node_blocks
        duals = {n: Dual.of_block(blocks[n], np.array(prices[n], np.float64)) for n in promised}
        return PartitionSolution(
            **facts,
            duals=duals,
            capacity=np.array(self.capacities, dtype=np.float64),
            before=view.load,
            after=after,
            parts=parts,
            moves=moves,
            node_price=self._node_prices(prices),
        )

    def _bounded(self, seconds: Fraction, least: Fraction | None = None) -> dict[str, Any]:
        bound = seconds if least is None else least
        gap = float((seconds - bound) / max(seconds, Fraction(1)))
        return {"bound": plain(bound), "exact_bound_s": bound, "gap": gap}

    def _rounded(self, outcome: Outcome, seconds: Fraction) -> dict[str, Any]:
        """Return status and bound if costs were rounded and the flow is not proven optimal for the exact costs."""
        units = self.partition.units
        assert outcome.bound is not None
        least = max(units.unit * int(outcome.bound) - units.error * self.total, Fraction(0))
        return {
            **self._bounded(seconds, least),
            "status": Status.FEASIBLE,
            "message": f"{outcome.message} Move costs have no common unit that 64 bits hold and were rounded to one of "
            f"{float(units.unit):.3g} s; write them with fewer digits for a proven optimum.".strip(),
        }

    def _node_prices(self, prices: dict[str, list[Fraction]]) -> dict[str, Fraction] | None:
        """Return the exact dual of each node, in seconds per additional item: the proof of minimum cost."""
        if not prices:
            return None
        found = prices["node"]
        if self.objective == "makespan":
            found = [max(price - prices["end"][0], Fraction(0)) for price in found]
        return dict(zip((node.name for node in self.instance.nodes), found, strict=True))
