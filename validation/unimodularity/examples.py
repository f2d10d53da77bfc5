"""Matrices to learn and test on: the classical totally unimodular families, and some that just miss.

All return {-1, 0, 1} ``csc_array`` of ``int8``; random ones take a seed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import scipy.sparse as sp

from flowlex.validation.unimodularity.named_matrix import canonical, ternary

#: Four transfers 1->1', 1->2', 2->1', 2->2'; over three slots their matrix is not totally unimodular.
LEMMA_3_FLOWS = ((0, 0), (0, 1), (1, 0), (1, 1))


def _signs(dense: object) -> sp.csc_array:
    return ternary(canonical(dense))


def incidence(nodes: int, arcs: int, *, seed: int = 0) -> sp.csc_array:
    """Node-arc incidence matrix of a random directed graph without loops: +1 at the tail, -1 at the head."""
    generator = np.random.default_rng(seed)
    tail = generator.integers(0, nodes, arcs)
    head = (tail + generator.integers(1, nodes, arcs)) % nodes
    entries = np.concatenate([np.ones(arcs, np.int8), -np.ones(arcs, np.int8)])
    places = (np.concatenate([tail, head]), np.tile(np.arange(arcs), 2))
    return _signs(sp.csc_array((entries, places), shape=(nodes, arcs)))


def interval(rows: int, columns: int, *, longest: int = 20, seed: int = 0) -> sp.csc_array:
    """Columns of consecutive ones, of random place and length up to ``longest``."""
    generator = np.random.default_rng(seed)
    length = np.minimum(generator.integers(1, longest + 1, columns), rows)
    start = (generator.random(columns) * (rows - length + 1)).astype(np.int64)
    pointer = np.concatenate([[0], np.cumsum(length)])
    inside = np.arange(pointer[-1]) - np.repeat(pointer[:-1], length)
    indices = np.repeat(start, length) + inside
    return _signs(sp.csc_array((np.ones(len(indices), np.int8), indices, pointer), shape=(rows, columns)))


def with_gap(matrix: sp.csc_array, *, seed: int = 0) -> sp.csc_array:
    """An interval matrix spoilt: one column skips its middle row, and short intervals tie its ends together.

    The column of ends a..b without middle c, with [a, c] and [c, b] beside it, is a 3 x 3 of determinant +-2.
    """
    rows = int(matrix.shape[0])
    if rows < 3:
        raise ValueError("a gap needs at least 3 rows")
    middle = int(np.random.default_rng(seed).integers(1, rows - 1))
    extra = np.zeros((rows, 3), np.int8)
    extra[[middle - 1, middle + 1], 0] = 1
    extra[[middle - 1, middle], 1] = 1
    extra[[middle, middle + 1], 2] = 1
    return _signs(sp.hstack([matrix, sp.csc_array(extra)], format="csc"))


def network(rows: int, columns: int, *, shape: str = "random", seed: int = 0) -> sp.csc_array:
    """Network matrix of a random tree (``random``, ``path``, ``deep``) and random arcs, rows shuffled."""
    generator = np.random.default_rng(seed)
    parent = np.arange(rows)
    if shape == "random":
        parent = (generator.random(rows) * np.arange(1, rows + 1)).astype(np.int64)
    elif shape == "deep":
        parent = np.maximum(0, parent - generator.integers(0, 3, rows))
    elif shape != "path":
        raise ValueError(f"unknown shape {shape!r}; one of: random, path, deep")
    forward = generator.choice([-1, 1], rows)
    arcs = generator.integers(0, rows + 1, (columns, 2))
    return _signs(_paths(parent, forward, arcs).tocsr()[np.argsort(generator.permutation(rows))])


def _paths(parent: np.ndarray, forward: np.ndarray, arcs: np.ndarray) -> sp.csc_array:
    """Network matrix of the tree in which node k + 1 hangs on ``parent[k]`` by row k, +1 upwards if forward."""
    rows = len(parent)
    depth = np.zeros(rows + 1, np.int64)
    for row in range(rows):
        depth[row + 1] = depth[parent[row]] + 1
    indices: list[int] = []
    data: list[int] = []
    pointer = [0]
    for one, two in arcs.tolist():
        while one != two:
            if depth[one] >= depth[two]:
                indices.append(one - 1)
                data.append(int(forward[one - 1]))
                one = int(parent[one - 1])
            else:
                indices.append(two - 1)
                data.append(-int(forward[two - 1]))
                two = int(parent[two - 1])
        pointer.append(len(indices))
    return sp.csc_array((np.array(data, np.int8), indices, pointer), shape=(rows, len(arcs)))


def bordered_network(rows: int, columns: int, *, seed: int = 0) -> sp.csc_array:
    """Network matrix of the form [A a a; c 0 1], an operand for `three_sum`: the last tree arc is a leaf."""
    generator = np.random.default_rng(seed)
    parent = (generator.random(rows) * np.arange(1, rows + 1)).astype(np.int64)
    forward = generator.choice([-1, 1], rows)
    forward[-1] = -1
    leaf, end = rows, int(parent[-1])
    start = int(generator.choice([node for node in range(rows) if node != end]))
    arcs = generator.integers(0, rows + 1, (columns, 2))
    arcs[-2:] = [[start, end], [start, leaf]]
    return _signs(_paths(parent, forward, arcs))


def star(legs: int, length: int, columns: int, *, seed: int = 0) -> sp.csc_array:
    """Network matrix of a hub with ``legs`` legs of ``length`` arcs: hard for methods that split at rows."""
    generator = np.random.default_rng(seed)
    rows = legs * length
    parent = np.where(np.arange(rows) % length == 0, 0, np.arange(rows))
    arcs = generator.integers(0, rows + 1, (columns, 2))
    return _signs(_paths(parent, generator.choice([-1, 1], rows), arcs).tocsr()[generator.permutation(rows)])


def graphic_and_cographic(rows: int, columns: int, *, seed: int = 0) -> sp.csc_array:
    """3-sum of a network matrix (rows x columns) and the transpose of one; itself neither of these.

    The result has about 2 rows x 2 columns; the second operand's first row is drawn until it fits.
    """
    from flowlex.validation.unimodularity.network.network_matrix import network_matrix

    generator = np.random.default_rng(seed)
    net = network(rows, columns - 1, seed=seed + 50).toarray().astype(np.int64)
    fullest = int(np.argmax(np.abs(net).sum(axis=1)))
    series = np.vstack([net[fullest], net[fullest], np.delete(net, fullest, 0)])
    base = np.hstack([np.eye(len(series), 1, dtype=np.int64), series]).T[1:]
    while True:
        first = np.zeros(base.shape[1], np.int64)
        first[0] = 1
        others = generator.choice(np.arange(2, base.shape[1]), size=int(generator.integers(1, 4)), replace=False)
        first[others] = generator.choice([-1, 1], len(others))
        two = _signs(np.vstack([first, base]))
        if network_matrix(two, transposed=True).status == "network":
            return three_sum(bordered_network(rows, columns, seed=seed), two)


def r10() -> sp.csc_array:
    """Totally unimodular, but neither a network matrix nor the transpose of one: Seymour's exception."""
    return _signs([[1, -1, 0, 0, -1], [-1, 1, -1, 0, 0], [0, -1, 1, -1, 0], [0, 0, -1, 1, -1], [-1, 0, 0, -1, 1]])


def fano() -> sp.csc_array:
    """Support of the Fano matroid: not totally unimodular, whatever its signs."""
    return _signs([[1, 1, 0, 1], [1, 0, 1, 1], [0, 1, 1, 1]])


def jit_matrix(flows: Iterable[Sequence[int]], slots: int) -> sp.csc_array:
    """Constraint matrix of the JIT bandwidth model with full windows (equations 4 to 6, bounds left out).

    ``flows``: sender and receiver of every transfer, numbered from 0 on each side.
    ``slots``: number of time slots.
    Rows: egress of sender i in slot t, then ingress of receiver j in slot t, then the demand of each transfer.
    Columns: transfer by transfer, slot by slot. See `jit_row_names`.
    """
    pairs = np.asarray(list(flows), dtype=np.int64).reshape(-1, 2)
    senders, receivers = (int(side.max(initial=-1)) + 1 for side in pairs.T)
    flow = np.repeat(np.arange(len(pairs)), slots)
    slot = np.tile(np.arange(slots), len(pairs))
    rows = np.stack(
        [
            pairs[flow, 0] * slots + slot,
            (senders + pairs[flow, 1]) * slots + slot,
            (senders + receivers) * slots + flow,
        ]
    )
    columns = np.tile(np.arange(len(flow)), (3, 1))
    shape = ((senders + receivers) * slots + len(pairs), len(flow))
    return _signs(sp.csc_array((np.ones(rows.size, np.int8), (rows.ravel(), columns.ravel())), shape=shape))


def jit_row_names(flows: Iterable[Sequence[int]], slots: int) -> tuple[list[str], list[str]]:
    """Names of the rows and columns of `jit_matrix`."""
    pairs = [(int(i), int(j)) for i, j in flows]
    senders = max((i for i, _ in pairs), default=-1) + 1
    receivers = max((j for _, j in pairs), default=-1) + 1
    rows = [f"egress[{i + 1},{t}]" for i in range(senders) for t in range(slots)]
    rows += [f"ingress[{j + 1}',{t}]" for j in range(receivers) for t in range(slots)]
    rows += [f"demand[{k}: {i + 1}->{j + 1}']" for k, (i, j) in enumerate(pairs)]
    return rows, [f"x[{k},{t}]" for k in range(len(pairs)) for t in range(slots)]


def random_flows(count: int, machines: int, *, seed: int = 0) -> tuple[tuple[int, int], ...]:
    """Random senders and receivers, renumbered so that none is unused."""
    pairs = np.random.default_rng(seed).integers(0, machines, (count, 2))
    sides = [np.unique(side, return_inverse=True)[1].tolist() for side in pairs.T]
    return tuple(zip(*sides, strict=True))


def two_sum(one: sp.csc_array, two: sp.csc_array) -> sp.csc_array:
    """Seymour's 2-sum of [A a] and [b; B]: [A ab; 0 B], with a the last column of one, b the first row of two."""
    left, right = one.toarray().astype(np.int64), two.toarray().astype(np.int64)
    zero = np.zeros((right.shape[0] - 1, left.shape[1] - 1), np.int64)
    return _signs(np.block([[left[:, :-1], np.outer(left[:, -1], right[0])], [zero, right[1:]]]))


def three_sum(one: sp.csc_array, two: sp.csc_array) -> sp.csc_array:
    """Seymour's 3-sum of [A a a; c 0 1] and [1 0 b; d d B]: [A ab; dc B].

    Raises `ValueError` if the operands do not have these borders.
    """
    left, right = one.toarray().astype(np.int64), two.toarray().astype(np.int64)
    border = np.array_equal(left[:-1, -2], left[:-1, -1]) and left[-1, -2:].tolist() == [0, 1]
    if not border or not np.array_equal(right[1:, 0], right[1:, 1]) or right[0, :2].tolist() != [1, 0]:
        raise ValueError("a 3-sum needs [A a a; c 0 1] and [1 0 b; d d B]")
    a, c = left[:-1, -1], left[-1, :-2]
    b, d = right[0, 2:], right[1:, 0]
    return _signs(np.block([[left[:-1, :-2], np.outer(a, b)], [np.outer(d, c), right[1:, 2:]]]))
