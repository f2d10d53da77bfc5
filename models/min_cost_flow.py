r"""What is the cheapest way to send all supplies to all demands through a network?

Any directed network with integer data: lower bounds, negative costs, parallel arcs, several sources and sinks. It is
stated once, in `MinCostFlow.state`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from flowlex.formulations.flow_network import UNBOUNDED, FlowNetwork
from flowlex.formulations.plot_style import BLUE, LIGHT, ORANGE, SKY, axes_for, count_ticks, legend, moved_apart
from flowlex.formulations.program_arrays import Floats, Integers, exact_dot
from flowlex.instances.min_cost_flow import NetworkInstance
from flowlex.models.model_base import Dual, Model, Run, Solution

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from flowlex.models.problem import Problem

_DRAWABLE = 60
#: More arcs than this are drawn without their amounts, which would cover each other.
_LABELLED = 40
#: Distance between nodes of a drawing, which is about 2 wide.
_APART = 0.15


@dataclass(frozen=True, kw_only=True)
class NetworkFlow(Solution):
    """Flows of least cost.

    Attributes
    ----------
    flow
        (A,) int64, in the order of the instance's arcs; None without an answer.
    network
        The network solved.
    """

    decision: ClassVar[tuple[str, ...]] = ("flow",)

    flow: Integers | None = field(default=None, repr=False)
    network: FlowNetwork = field(repr=False)

    def _columns(self) -> dict[str, Any]:
        """One row per arc: tail, head, bounds, cost, flow, reduced cost."""
        network = self.network
        names = np.array(network.node_names, dtype=object)
        columns: dict[str, Any] = {
            "tail": names[network.tail],
            "head": names[network.head],
            "lower": network.lower,
            "upper": np.where(network.upper == UNBOUNDED, np.inf, network.upper),
            "cost": network.cost,
            "flow": self.flow,
        }
        if "flow" in self.duals:
            columns["reduced_cost"] = self.duals["flow"].values
        return columns

    def _metrics(self) -> dict[str, float | int | str]:
        """Total cost and how many arcs carry flow."""
        assert self.flow is not None
        return {
            "cost": exact_dot(self.network.cost, self.flow),
            "arcs_with_flow": int(np.count_nonzero(self.flow)),
            "arcs_at_capacity": int(np.count_nonzero(self.flow == self.network.upper)),
        }

    def _answer(self) -> dict[str, Any]:
        """``flow`` is in the order of the instance's arcs."""
        assert self.flow is not None
        return {"flow": self.flow.tolist()}

    def _proof(self) -> dict[str, Any]:
        """Multipliers of the rows ``node``: potentials, or 1 within an overloaded cut; or a flow and a ray."""
        if self.infeasibility is not None and self.infeasibility.cut is not None:
            return {"format": 3, "empty": [{"own": 0, **self._multipliers(self.infeasibility.cut.astype(np.int64))}]}
        endless = self.unboundedness
        if endless is not None and endless.point is not None and endless.ray is not None:
            point, ray = (_by_arc(np.asarray(each)) for each in (endless.point, endless.ray))
            return {"format": 3, "point": point, "ray": ray}
        if "node" not in self.duals:
            return {}
        return {"format": 3, "stages": {"cost": [self._multipliers(self.duals["node"].values)]}}

    def _multipliers(self, node: Integers) -> dict[str, Any]:
        labels = self.source.node_labels  # type: ignore[attr-defined]
        return {"rows": {"node": {"at": {labels[v]: int(node[v]) for v in np.flatnonzero(node).tolist()}}}}

    def _draw(self, ax: Axes | None) -> Axes:
        """Draw the arcs that carry flow, their width by amount; a histogram of flows for a large network."""
        axes = axes_for(ax, 8, 6)
        assert self.flow is not None
        if self.network.node_count > _DRAWABLE:
            axes.hist(self.flow[self.flow != 0], bins=40, color=BLUE)
            count_ticks(axes.xaxis)
            axes.set(
                xlabel="flow on an arc",
                ylabel="arcs",
                title=f"{self.instance}: {np.count_nonzero(self.flow)} of {len(self.flow)} arcs carry flow",
            )
            return axes
        return _draw_network(self.network, self.flow, axes, f"{self.instance}: cost {self.objective}")


@dataclass(frozen=True, eq=False, repr=False)
class MinCostFlow(Model[NetworkInstance, NetworkFlow]):
    """Minimum-cost flow over any network (see the module).

    Parameters
    ----------
    instance
        The network: supplies of nodes, bounds and costs of arcs, all integers.

    Examples
    --------
    >>> from flowlex import generate
    >>> MinCostFlow(generate("network-random", seed=1, nodes=3, arcs=4)).solve().certificate.ok
    True
    """

    name: ClassVar[str] = "min-cost-flow"
    title: ClassVar[str] = "Minimum-cost flow"
    main_stage: ClassVar[str] = "cost"
    examples: ClassVar[tuple[tuple[str, str, Mapping[str, Any]], ...]] = (("Statement", "network-random", {}),)
    needed: ClassVar[Mapping[str, str]] = {"node": "flow would appear from nowhere"}

    @classmethod
    def declared(cls) -> frozenset[str]:
        """The names that rows of the formulation may have."""
        return frozenset({"node", "flow"})

    def state(self, p: Problem) -> None:
        """Flows of arcs, what enters a node leaves it, least cost.

        Parameters
        ----------
        p
            The problem to state.
        """
        import pandas as pd

        view, names = self.instance.arrays, np.array(self.instance.node_labels, object)
        arcs = pd.DataFrame(
            {"tail": names[view.tail], "head": names[view.head]}, index=pd.RangeIndex(len(view.tail), name="arc")
        )
        p.set("node", names.tolist(), words="nodes")
        flow = p.variables(
            "flow",
            over=arcs,
            lower=view.lower,
            upper=np.where(view.upper == UNBOUNDED, np.inf, view.upper),
            integer=True,
            words="flow on an arc",
        )
        real = np.flatnonzero(view.tail != view.head)  # a loop leaves the node that it enters
        ends = pd.DataFrame(
            {
                "arc": np.concatenate([real, real]),
                "node": names[np.concatenate([view.tail[real], view.head[real]])],
                "sign": np.repeat([1, -1], len(real)),
            }
        )
        sign = p.data("d", ends.set_index(["arc", "node"])["sign"], words="1 at the tail of an arc, -1 at its head")
        supply = p.data("b", pd.Series(view.supply, pd.Index(names, name="node")), words="supply of a node")
        cost = p.data("c", pd.Series(view.cost, arcs.index), words="cost of a unit of flow")
        out = (flow.join(ends[["arc", "node"]]) * sign).sum(by="node")
        p.constrain("node", out == supply, words="what enters a node leaves it", dual="one more unit that enters there")
        p.minimize("cost", (flow * cost).sum())

    def _solution_of(self, values: Mapping[str, Floats] | None, facts: dict[str, Any]) -> NetworkFlow:
        flow = None if values is None else np.rint(values["flow"]).astype(np.int64)
        return NetworkFlow(**facts, flow=flow, network=self._formulate())

    def _formulate(self) -> FlowNetwork:
        view, first = self.instance.arrays, self.instance.first_node
        return FlowNetwork.from_arrays(
            view.tail,
            view.head,
            lower=view.lower,
            upper=view.upper,
            cost=view.cost,
            supply=view.supply,
            name=self.instance.name,
            node_labels=self.instance.node_names or first + np.arange(len(view.supply)),
        )

    def _interpret(self, run: Run) -> NetworkFlow:
        network, outcome = self.formulation, run.outcome
        assert isinstance(network, FlowNetwork)
        duals = {}
        if outcome.duals is not None and outcome.reduced_costs is not None:
            node, flow = network.node_blocks["node"], network.arc_blocks["flow"]
            duals = {"node": Dual.of_block(node, outcome.duals), "flow": Dual.of_block(flow, outcome.reduced_costs)}
        return NetworkFlow(
            **self._facts(run),
            duals=duals,
            flow=outcome.values,
            network=network,
        )


def _by_arc(values: Integers) -> list[list[Any]]:
    """Values of the variables ``flow`` that are not 0."""
    return [["flow", str(a), int(values[a])] for a in np.flatnonzero(values).tolist()]


def _draw_network(network: FlowNetwork, flow: Integers, axes: Axes, title: str) -> Axes:
    import networkx as nx

    graph = nx.DiGraph()
    graph.add_nodes_from(range(network.node_count))
    for tail, head, amount in zip(network.tail.tolist(), network.head.tolist(), flow.tolist(), strict=True):
        if amount:
            graph.add_edge(tail, head, flow=graph.get_edge_data(tail, head, {"flow": 0})["flow"] + amount)
    found = nx.kamada_kawai_layout(graph.to_undirected())
    place = dict(enumerate(moved_apart(np.array([found[v] for v in graph]), _APART)))
    amounts = {(tail, head): amount for tail, head, amount in graph.edges(data="flow")}
    most = max(amounts.values(), default=1)
    widths = [0.5 + 3.5 * amount / most for amount in amounts.values()]
    nx.draw_networkx_edges(graph, place, ax=axes, width=widths, edge_color=BLUE, node_size=250)
    supply, looks = (
        network.supply.tolist(),
        {"supplies": (SKY, "o"), "demands": (ORANGE, "s"), "passes on": (LIGHT, "o")},
    )
    for label, (colour, shape) in looks.items():
        sort = [
            v for v, s in enumerate(supply) if label == ("supplies" if s > 0 else "demands" if s < 0 else "passes on")
        ]
        nx.draw_networkx_nodes(
            graph,
            place,
            sort,
            ax=axes,
            node_color=colour,
            node_shape=shape,
            node_size=250,
            label=label if sort else None,
        )
    names = {v: name.removeprefix("node[").removesuffix("]") for v, name in enumerate(network.node_names)}
    nx.draw_networkx_labels(graph, place, names, ax=axes, font_size=7)
    if len(amounts) <= _LABELLED:
        nx.draw_networkx_edge_labels(graph, place, amounts, ax=axes, font_size=7)
    axes.set_title(f"{title}, arcs as wide as their flow (at most {most})")
    axes.set_axis_off()
    return legend(axes, markerscale=0.6)
