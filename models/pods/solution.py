"""A placement: node and cards of each pod, balance of the node loads, and the queue with reasons."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from flowlex.formulations.plot_style import GREY, MOST_BARS, PALETTE, axes_for, legend, name_places
from flowlex.formulations.program_arrays import Floats, Integers
from flowlex.instances.pods import PodInstance
from flowlex.models.model_base import Solution
from flowlex.models.pods.problem.admission_levels import Key
from flowlex.models.pods.problem.balance_measures import MEASURES, Balance
from flowlex.models.pods.problem.cluster import Cluster, deviation
from flowlex.models.pods.problem.group_rules import rule_reason

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

#: The balance is optimal within this tolerance, as a fraction of a node's capacity.
MET = 1e-6


def share_of(objective: float | int | None, bound: float | int | None) -> float | None:
    """Return the gap relative to the objective, as MIP solvers do; 0 within `MET`, so also for a balance of 0."""
    if objective is None or bound is None:
        return None
    apart = float(objective) - float(bound)
    return apart / float(objective) if apart > MET + 1e-11 else 0.0


def waiting_reason(instance: PodInstance, cluster: Cluster, pod: int) -> str:
    """Return the reason why a pod waits: the missing resources, with the nodes."""
    view, exact = instance.arrays, instance.arrays.exact
    names = [node.name for node in instance.nodes]
    wished = view.allowed[pod]
    if not wished.any():
        return f"no node has its labels, taints and card model ({_wishes(instance, pod)})"
    many = int(view.gpu_cards[pod])
    with_gpu = wished & (view.cards > 0) if many else wished
    if not with_gpu.any():
        return "it wants GPU memory and no node that it may use has a GPU"
    need, on_cards = cluster.need(pod)
    whole = exact.card if cluster.cards else exact.card * view.cards
    too_large = {
        "cores": exact.cpu[pod] > exact.node[:, 0],
        "memory": exact.memory[pod] > exact.node[:, 1],
        "GPU memory": (need > whole) if on_cards else np.zeros(len(names), bool),
        "cards": (view.cards < on_cards) if cluster.cards else np.zeros(len(names), bool),
    }
    if np.all(np.any(list(too_large.values()), axis=0)[with_gpu]):
        lacks = [what for what, where in too_large.items() if where[with_gpu].any()]
        return f"it is larger than any node it may use ({', '.join(lacks)})"
    if (ruled := rule_reason(view, cluster.node, pod)) is not None:
        return ruled
    short = {
        "cores": cluster.free[:, 0] < exact.cpu[pod],
        "memory": cluster.free[:, 1] < exact.memory[pod],
        "GPU memory": (enough := cluster.card_free >= need[:, None]).sum(axis=1) < on_cards,
        "GPU compute": (enough & (cluster.compute_free >= cluster.compute(pod))).sum(axis=1) < on_cards,
    }
    parts = []
    for what, where in short.items():
        if what == "GPU compute":
            where = where & ~short["GPU memory"]
        nodes = [name for name, lacking, ok in zip(names, where, with_gpu, strict=True) if lacking and ok]
        if nodes:
            shown = ", ".join(nodes[:5]) + (f" and {len(nodes) - 5} more" if len(nodes) > 5 else "")
            parts.append(f"{what} on {shown}")
    return "not enough " + "; ".join(parts) if parts else "room is kept for a more important pod"


def _wishes(instance: PodInstance, pod: int) -> str:
    wants = instance.pods[pod]
    parts = [f"{key}={value}" for key, value in wants.node_labels.items()]
    parts += [f"card {'|'.join(wants.card_models)}"] if wants.card_models else []
    return ", ".join(parts) or "it tolerates no taint"


@dataclass(frozen=True, kw_only=True)
class PlacementSolution(Solution):
    """Assignment of pods to nodes. The objective is the balance measure, as a fraction of a node's capacity.

    Attributes
    ----------
    node
        (P,) node of each pod, -1 if it waits.
    cluster
        Used and free resources, with the cards of each pod; None without a solution.
    admitted
        By level (priority): (admitted, requested, upper bound) in number of new pods, or their value.
    gap
        (objective - bound) / objective; 0 if they differ by at most 1e-6, see `share_of`.
    moved_cost
        Total cost of the moves of running pods.
    proof
        The certificate of the bounds on admission and balance, as in the solution file.
    """

    row_name: ClassVar[str] = "pod"
    decision: ClassVar[tuple[str, ...]] = ("x", "y")

    source: PodInstance = field(repr=False)
    node: Integers = field(repr=False)
    cluster: Cluster | None = field(default=None, repr=False)
    admitted: dict[Key, tuple[float, float, float]] = field(default_factory=dict, repr=False)
    balance: Balance = "deviation"
    moved_cost: float = 0.0
    proof: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def loads(self) -> Floats:
        """(N,) weighted utilisation of each node."""
        assert self.cluster is not None
        return self.cluster.loads

    @property
    def absolute_gap(self) -> float | None:
        """Objective minus bound, as a fraction of a node's capacity; use it instead of `gap` for balances near 0."""
        if self.objective is None or self.bound is None:
            return None
        return float(self.objective) - float(self.bound)

    @property
    def queue(self) -> tuple[str, ...]:
        """Names of the waiting pods, in the order in which they will be placed."""
        waits = np.flatnonzero(self.node < 0)
        order = waits[np.lexsort((waits, -self.source.arrays.priority[waits]))]
        return tuple(self.source.pods[pod].name for pod in order)

    def reasons(self) -> dict[str, str]:
        """Return the reason why each pod of the queue waits."""
        self.require_answer()
        assert self.cluster is not None
        index = {pod.name: p for p, pod in enumerate(self.source.pods)}
        row, told = self.source.arrays.load.row, {}
        for name in self.queue:  # equal pods have equal reasons
            if row[index[name]] not in told:
                told[row[index[name]]] = waiting_reason(self.source, self.cluster, index[name])
        return {name: told[row[index[name]]] for name in self.queue}

    def _columns(self) -> dict[str, Any]:
        """One row per pod: its node and cards, or the reason why it waits."""
        assert self.cluster is not None
        reasons, queue = self.reasons(), {name: i + 1 for i, name in enumerate(self.queue)}
        pods, nodes = self.source.pods, self.source.nodes
        where = [nodes[n].name if n >= 0 else None for n in self.node.tolist()]
        cards = [self.cluster.used_cards.get(p, ()) if self.cluster.cards else () for p in range(len(pods))]
        return {
            "pod": [pod.name for pod in pods],
            "priority": [pod.priority for pod in pods],
            "node": where,
            "cards": [", ".join(map(str, sorted(held))) for held in cards],
            "moved_from": [
                pod.node if pod.node not in (None, node) else None for pod, node in zip(pods, where, strict=True)
            ],
            "queue": [queue.get(pod.name) for pod in pods],
            "reason": [reasons.get(pod.name, "") for pod in pods],
        }

    def node_frame(self) -> pd.DataFrame:
        """One row per node: pods, load, and used share of GPU memory, cores and memory."""
        import pandas as pd

        self.require_answer()
        view = self.source.arrays
        placed = np.flatnonzero(self.node >= 0)
        n = self.node[placed]
        used = np.zeros_like(view.capacity)
        np.add.at(
            used, n, np.stack([view.gpu[placed, n] * view.gpu_cards[placed], view.cpu[placed], view.memory[placed]], 1)
        )
        share = np.divide(used, view.capacity, out=np.zeros_like(used), where=view.capacity > 0)
        columns: dict[str, Any] = {
            "pods": np.bincount(n, minlength=len(self.source.nodes)),
            "load": self.loads,
            "gpu_memory": share[:, 0],
            "cores": share[:, 1],
            "memory": share[:, 2],
        }
        return pd.DataFrame(columns, index=pd.Index([node.name for node in self.source.nodes], name="node"))

    def _metrics(self) -> dict[str, float | int | str]:
        """Admitted and waiting pods, balance, gap."""
        fresh, measure = self.source.arrays.running < 0, MEASURES[self.balance]
        return {
            "admitted": int((self.node[fresh] >= 0).sum()),
            "waiting": int((self.node < 0).sum()),
            self.balance: float(self.objective or 0.0) if self.stated is None else measure.value(self.loads),
            "sigma": deviation(self.loads),
            "largest_load": float(self.loads.max()),
            "relative_gap": "unknown" if self.gap is None else self.gap,
            "absolute_gap": "unknown" if self.absolute_gap is None else self.absolute_gap,
            "move_cost": self.moved_cost,
        }

    def _answer(self) -> dict[str, Any]:
        """Node and cards of every pod, and the queue."""
        assert self.cluster is not None
        answer: dict[str, Any] = {
            "placement": {
                pod.name: self.source.nodes[n].name
                for pod, n in zip(self.source.pods, self.node.tolist(), strict=True)
                if n >= 0
            },
            "cards": {
                self.source.pods[p].name: sorted(int(k) for k in cards)
                for p, cards in sorted(self.cluster.used_cards.items())
                if self.cluster.cards
            },
        }
        answer["queue"] = [{"pod": name, "reason": reason} for name, reason in self.reasons().items()]
        answer["admitted"] = {
            str(priority): dict(zip(("admitted", "wanted", "most"), numbers, strict=True))
            for priority, numbers in self.admitted.items()
        }
        return answer

    def _proof(self) -> dict[str, Any]:
        """The certificate: multipliers that prove the bounds on admission and balance."""
        return self.proof

    def _draw(self, ax: Axes | None) -> Axes:
        """Plot the used share of each resource per node, and the weighted load with its mean."""
        frame = self.node_frame()
        axes, place, few = axes_for(ax, 6 + 0.2 * len(frame), 4.5), np.arange(len(frame)), 3 * len(frame) <= MOST_BARS
        if not few:  # lines in order of load
            frame = frame.sort_values("load", ascending=False, kind="stable")
        for i, (column, colour) in enumerate(zip(("gpu_memory", "cores", "memory"), PALETTE, strict=False)):
            look: dict[str, Any] = {"color": colour, "label": column.replace("_", " ")}
            if few:
                axes.bar(place + 0.25 * (i - 1), frame[column], 0.25, **look)
            else:
                axes.plot(place, frame[column], "ovs"[i], markersize=3, **look)
        axes.plot(place, frame["load"], "k_" if few else "k-", markersize=10, label="weighted load")
        axes.axhline(float(self.loads.mean()), color=GREY, linestyle=":", label="mean load")
        if few:
            name_places(axes.xaxis, list(frame.index))
        else:
            axes.set_xlabel(f"{len(frame)} nodes, the most loaded first")
        waits = int((self.node < 0).sum())
        axes.set(ylabel="used share", title=f"{self.instance}: sigma {deviation(self.loads):.4f}, {waits} pods wait")
        return legend(axes)
