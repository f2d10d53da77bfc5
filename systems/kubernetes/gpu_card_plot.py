"""Plot the used share of every node and card of a cluster, before and after a change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from flowlex.formulations.plot_style import LIGHT, name_places, part
from flowlex.formulations.program_arrays import Floats
from flowlex.instances.pods import PodInstance
from flowlex.models.pods.problem.cluster import Cluster

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Largest number of nodes drawn: first those that change most, then the fullest.
_NODES = 60


def used_shares(cluster: Cluster) -> Floats:
    """(N, 2 + K) used share of cores, of memory and of each card; NaN if a node has no such card."""
    exact = cluster.view.exact
    plain = 1 - cluster.free / exact.node
    whole = np.where(cluster.card_free >= 0, np.maximum(1, exact.card)[:, None], 1)
    cards = np.where(cluster.card_free >= 0, 1 - cluster.card_free / whole, np.nan)
    found: Floats = np.concatenate([plain, cards], axis=1)
    return found


def draw_cards(instance: PodInstance, clusters: Mapping[str, Cluster]) -> Axes:
    """Draw clusters of one instance side by side, titled by name; return the first axes."""
    import matplotlib.pyplot as plt

    shares = [used_shares(cluster) for cluster in clusters.values()]
    changed = np.nan_to_num(np.abs(shares[-1] - shares[0])).sum(axis=1)
    order = np.lexsort((-np.nan_to_num(shares[-1]).sum(axis=1), -changed))[:_NODES]
    names = [instance.nodes[n].name for n in np.sort(order).tolist()]
    columns = ["cores", "memory", *(f"card {k}" for k in range(shares[0].shape[1] - 2))]
    if not instance.arrays.cards.any():
        columns = columns[:2]
    height = min(14.0, 1.5 + 0.25 * len(names))
    figure, panels = plt.subplots(
        1, len(shares), figsize=(2.5 + 0.6 * len(columns) * len(shares), height), layout="constrained", squeeze=False
    )
    for axes, title, share in zip(panels[0], clusters, shares, strict=True):
        table = share[np.sort(order)][:, : len(columns)]
        image = axes.imshow(table, cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto")
        axes.set_facecolor(LIGHT)
        name_places(axes.xaxis, columns)
        name_places(axes.yaxis, names if axes is panels[0][0] else [""] * len(names))
        for (row, column), value in np.ndenumerate(table) if table.size <= 400 else ():
            text, colour = f"{100 * value:.0f}" if np.isfinite(value) else "-", "white" if value > 0.6 else "black"
            axes.text(column, row, text, ha="center", va="center", fontsize=7, color=colour)
        axes.set_title(
            f"{title}: {part(len(names), len(instance.nodes), 'nodes', 'those that change first')}", fontsize=9
        )
    figure.colorbar(image, ax=panels[0].tolist(), label="used share")
    first: Axes = panels[0][0]
    return first
