"""Pictures of a proof: the sparsity pattern with the violating submatrix or the tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from flowlex.formulations.plot_style import BLUE, GREY, ORANGE, RED, axes_for
from flowlex.validation.unimodularity.named_matrix import NamedMatrix
from flowlex.validation.unimodularity.proof_types import Certificate, Witness, in_digits

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Trees with more edges are not drawn beside the pattern.
LARGEST_TREE = 80
#: Sides up to which every entry is drawn; beyond, the picture shows densities in this many cells a side.
LARGEST_PATTERN, CELLS = 250, 320
#: Names written at an axis.
MOST_NAMES = 30
_PLUS, _MINUS, _ACCENT = BLUE, ORANGE, RED


def plot_proof(
    certificate: Certificate | None, witness: Witness | None, named: NamedMatrix, title: str, ax: Axes | None = None
) -> Axes:
    """Draw the sparsity pattern and on it what proves the answer.

    A witness is framed, and joined by a line where it is a cycle; a small network matrix gets its tree beside the
    pattern (only when ``ax`` is left out).
    """
    import matplotlib.pyplot as plt

    tree = None if certificate is None else leaf_of(certificate, "network")
    if ax is None and tree is not None and len(tree.data["tree_tail"]) <= LARGEST_TREE:
        _, (ax, beside) = plt.subplots(1, 2, figsize=(11, 5))
        plot_tree(tree, beside, named)
    ax = axes_for(ax, 6, 5)
    plot_pattern(named, ax)
    if witness is not None:
        _draw_witness(ax, named.matrix, witness)
        title += f", determinant {in_digits(witness.determinant)}"
    ax.set_title(title)
    return ax


def plot_pattern(named: NamedMatrix, ax: Axes) -> None:
    """Draw where the nonzeros are: every entry of a small matrix (+ blue, - orange), densities of a large one."""
    entries = named.matrix.tocoo()
    rows, columns = named.shape
    if max(rows, columns) <= LARGEST_PATTERN:
        size = float(np.clip(20000 / (max(rows, columns) ** 2 + 1), 0.2, 60))
        for positive, colour in ((True, _PLUS), (False, _MINUS)):
            chosen = (entries.data > 0) == positive
            ax.scatter(entries.col[chosen], entries.row[chosen], s=size, c=colour, marker="s", linewidths=0)
    else:
        bins = [min(side, CELLS) for side in (rows, columns)]
        count, *_ = np.histogram2d(
            entries.row, entries.col, bins=bins, range=[[-0.5, rows - 0.5], [-0.5, columns - 0.5]]
        )
        shown = np.ma.masked_equal(count * bins[0] * bins[1] / (rows * columns), 0)
        image = ax.imshow(
            shown, cmap="viridis_r", norm="log", aspect="auto", extent=(-0.5, columns - 0.5, rows - 0.5, -0.5)
        )
        figure = ax.get_figure(root=True)
        if figure is not None:
            figure.colorbar(image, ax=ax, label="share of cells that are nonzero")
    ax.set(xlim=(-0.6, columns - 0.4), ylim=(rows - 0.4, -0.6))
    _name_axis(ax.yaxis, named.names_of_rows(range(rows)) if named.row_names else None, rows, "rows")
    _name_axis(ax.xaxis, named.names_of_columns(range(columns)) if named.column_names else None, columns, "columns")
    ax.tick_params(axis="x", rotation=90 if named.column_names else 0)


def _name_axis(axis: Any, names: tuple[str, ...] | None, count: int, what: str) -> None:
    """Write all names where they fit, else one per run of a family (what stands before the bracket)."""
    axis.set_label_text(f"{count} {what}")
    if names is None:
        return
    if count <= MOST_NAMES:
        axis.set_ticks(range(count), labels=names, fontsize=7)
        return
    families = np.array([name.partition("[")[0] for name in names])
    starts = np.flatnonzero(np.concatenate([[True], families[1:] != families[:-1]]))
    if len(starts) <= MOST_NAMES:
        middles = (starts + np.append(starts[1:], count) - 1) / 2
        axis.set_ticks(middles, labels=families[starts].tolist(), fontsize=8)


def _draw_witness(ax: Axes, matrix: sp.csc_array, witness: Witness) -> None:
    part = matrix.tocsr()[list(witness.rows)][:, list(witness.columns)].tocoo()
    x = np.asarray(witness.columns)[part.col]
    y = np.asarray(witness.rows)[part.row]
    ax.scatter(x, y, s=70, facecolors="none", edgecolors=_ACCENT, linewidths=1.3)
    cycle = cycle_of(matrix, witness)
    if cycle:
        closed = [*cycle, cycle[0]]
        ax.plot([column for _, column in closed], [row for row, _ in closed], color=_ACCENT, linewidth=1)


def cycle_of(matrix: sp.csc_array, witness: Witness) -> list[tuple[int, int]]:
    """Entries of the witness in the order of its cycle; empty when it is not a single cycle."""
    if witness.kind != "odd cycle":
        return []
    part = matrix.tocsr()[list(witness.rows)][:, list(witness.columns)]
    pattern = part.toarray() != 0
    row, column = 0, int(np.flatnonzero(pattern[0])[0])
    walk = []
    for _ in range(len(pattern)):
        walk.append((witness.rows[row], witness.columns[column]))
        (row,) = (int(other) for other in np.flatnonzero(pattern[:, column]) if other != row)
        walk.append((witness.rows[row], witness.columns[column]))
        (column,) = (int(other) for other in np.flatnonzero(pattern[row]) if other != column)
    return walk


def plot_tree(certificate: Certificate, ax: Axes | None = None, named: NamedMatrix | None = None) -> Axes:
    """Draw the tree of a network certificate; edges carry the row (or column) they stand for."""
    import networkx as nx

    ax = axes_for(ax, 5, 5)
    across = certificate.data["transposed"]
    lines = certificate.columns if across else certificate.rows
    names: tuple[Any, ...] = lines
    if named is not None and (named.column_names if across else named.row_names) is not None:
        names = named.names_of_columns(lines) if across else named.names_of_rows(lines)
    graph = nx.DiGraph()
    for line, tail, head in zip(names, certificate.data["tree_tail"], certificate.data["tree_head"], strict=True):
        graph.add_edge(tail, head, line=line)
    place = nx.kamada_kawai_layout(graph.to_undirected()) if len(graph) > 2 else nx.circular_layout(graph)
    nx.draw_networkx(graph, place, ax=ax, node_size=25, with_labels=False, node_color=GREY, edge_color=BLUE)
    labels = {(one, two): data["line"] for one, two, data in graph.edges(data=True)}
    nx.draw_networkx_edge_labels(graph, place, edge_labels=labels, ax=ax, font_size=7)
    ax.set_title("tree of the network matrix" + (" (transposed)" if across else ""))
    ax.set_axis_off()
    return ax


def leaf_of(certificate: Certificate, kind: str) -> Certificate | None:
    """The first argument of this kind that refers to the given matrix's own rows and columns."""
    if certificate.kind == kind:
        return certificate
    if certificate.kind in ("two_sum", "three_sum"):
        return None  # operands have numbers of their own
    for part in certificate.parts:
        found = leaf_of(part, kind)
        if found is not None:
            return found
    return None
