"""Pictures of a verdict: the sparsity pattern with the violating submatrix, the bipartition, or the tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from flowlex.validation.unimodularity.matrix import matrix_of
from flowlex.validation.unimodularity.verdict import Answer, Certificate, Verdict, Witness

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["cycle_of", "plot_tree", "plot_verdict"]

#: Trees with more edges are not drawn beside the pattern.
LARGEST_TREE = 80
_PLUS, _MINUS, _ACCENT, _PARTS = "#1f4e79", "#c0504d", "#d62728", ("#1f77b4", "#ff7f0e")


def plot_verdict(verdict: Verdict, source: Any, ax: Axes | None = None) -> Axes:
    """Draw the sparsity pattern (+1 blue, -1 red) and on it what proves the answer.

    A witness is framed, and joined by a line where it is a cycle; a Heller-Tompkins proof colours the lines by
    part; a small network matrix gets its tree beside the pattern (only when ``ax`` is left out).
    """
    import matplotlib.pyplot as plt

    matrix = matrix_of(source).matrix
    tree = None if verdict.certificate is None else _leaf(verdict.certificate, "network")
    if ax is None and tree is not None and len(tree.data["tree_tail"]) <= LARGEST_TREE:
        _, (ax, beside) = plt.subplots(1, 2, figsize=(11, 5))
        plot_tree(tree, beside)
    elif ax is None:
        _, ax = plt.subplots(figsize=(6, 5))
    _pattern(ax, matrix)
    if verdict.witness is not None:
        _draw_witness(ax, matrix, verdict.witness)
    colouring = None if verdict.certificate is None else _leaf(verdict.certificate, "heller_tompkins")
    if colouring is not None:
        _draw_parts(ax, matrix, colouring)
    title = {Answer.TU: "totally unimodular", Answer.NOT_TU: "not totally unimodular"}
    found = "" if verdict.witness is None else f", determinant {verdict.witness.determinant}"
    ax.set_title(f"{title.get(verdict.answer, 'undecided')}: {verdict.method}{found}")
    return ax


def _pattern(ax: Axes, matrix: sp.csc_array) -> None:
    entries = matrix.tocoo()
    rows, columns = matrix.shape
    size = float(np.clip(20000 / (max(rows, columns) ** 2 + 1), 0.2, 60))
    for positive, colour in ((True, _PLUS), (False, _MINUS)):
        chosen = (entries.data > 0) == positive
        ax.scatter(entries.col[chosen], entries.row[chosen], s=size, c=colour, marker="s", linewidths=0)
    ax.set(xlim=(-0.6, columns - 0.4), ylim=(rows - 0.4, -0.6), xlabel="columns", ylabel="rows")


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
    part = matrix.tocsr()[list(witness.rows)][:, list(witness.columns)]
    pattern = part.toarray() != 0
    if len(pattern) < 2 or np.any(pattern.sum(axis=0) != 2) or np.any(pattern.sum(axis=1) != 2):
        return []
    row, column = 0, int(np.flatnonzero(pattern[0])[0])
    walk = []
    for _ in range(len(pattern)):
        walk.append((witness.rows[row], witness.columns[column]))
        (row,) = (int(other) for other in np.flatnonzero(pattern[:, column]) if other != row)
        walk.append((witness.rows[row], witness.columns[column]))
        (column,) = (int(other) for other in np.flatnonzero(pattern[row]) if other != column)
    return walk if len(set(walk)) == len(walk) else []


def _draw_parts(ax: Axes, matrix: sp.csc_array, proof: Certificate) -> None:
    part = np.asarray(proof.data["part"])
    lines = np.asarray(proof.rows if proof.data["by"] == "columns" else proof.columns)
    if len(lines) > 400:
        return
    for side, colour in enumerate(_PARTS):
        for line in lines[part == side]:
            draw = ax.axhline if proof.data["by"] == "columns" else ax.axvline
            draw(float(line), color=colour, alpha=0.25, linewidth=3, zorder=0)


def plot_tree(certificate: Certificate, ax: Axes | None = None) -> Axes:
    """Draw the tree of a network certificate; edges carry the row (or column) they stand for."""
    import matplotlib.pyplot as plt
    import networkx as nx

    if ax is None:
        _, ax = plt.subplots(figsize=(5, 5))
    lines = certificate.columns if certificate.data["transposed"] else certificate.rows
    graph = nx.DiGraph()
    for line, tail, head in zip(lines, certificate.data["tree_tail"], certificate.data["tree_head"], strict=True):
        graph.add_edge(tail, head, line=line)
    place = nx.kamada_kawai_layout(graph.to_undirected()) if len(graph) > 2 else nx.circular_layout(graph)
    nx.draw_networkx(graph, place, ax=ax, node_size=25, with_labels=False, node_color="#444444", edge_color="#1f4e79")
    labels = {(one, two): data["line"] for one, two, data in graph.edges(data=True)}
    nx.draw_networkx_edge_labels(graph, place, edge_labels=labels, ax=ax, font_size=7)
    ax.set_title("tree of the network matrix" + (" (transposed)" if certificate.data["transposed"] else ""))
    ax.set_axis_off()
    return ax


def _leaf(certificate: Certificate, kind: str) -> Certificate | None:
    """The first argument of this kind that speaks of the given matrix's own rows and columns."""
    if certificate.kind == kind:
        return certificate
    if certificate.kind in ("two_sum", "three_sum"):
        return None  # operands have numbers of their own
    for part in certificate.parts:
        found = _leaf(part, kind)
        if found is not None:
            return found
    return None
