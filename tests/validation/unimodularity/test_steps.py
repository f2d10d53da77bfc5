"""Unit tests of single steps."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, pairwise, permutations, product

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp

from flowlex.validation.unimodularity import examples
from flowlex.validation.unimodularity.camion import camion
from flowlex.validation.unimodularity.check import check
from flowlex.validation.unimodularity.determinant import determinant
from flowlex.validation.unimodularity.ghouila_houri import (
    bicoloring_counterexample,
    uncolourable_rows,
)
from flowlex.validation.unimodularity.named_matrix import canonical, ternary
from flowlex.validation.unimodularity.network.network_matrix import network_matrix
from flowlex.validation.unimodularity.reductions import reduce_matrix, split_blocks
from flowlex.validation.unimodularity.row_scaling import divided, divisors_of
from flowlex.validation.unimodularity.separation_kernels import three_separations
from flowlex.validation.unimodularity.three_separations import extend, find_core
from flowlex.validation.unimodularity.time_limit import Clock
from flowlex.validation.unimodularity.two_and_three_sums import operands, two_sum_parts
from tests.validation.unimodularity.exhaustive import bareiss, brute_force


def signs(dense: object) -> sp.csc_array:
    return ternary(canonical(np.asarray(dense)))


@pytest.mark.parametrize("size", range(9))
def test_determinants_agree(size: int) -> None:
    generator = np.random.default_rng(size)
    for _ in range(10):
        matrix = generator.integers(-2, 3, (size, size))
        if size:
            assert determinant(matrix) == bareiss(matrix) == round(np.linalg.det(matrix))


def test_determinant_of_a_long_cycle_is_quick_and_exact() -> None:
    size = 4001
    ring = sp.eye_array(size) + sp.csr_array((np.ones(size), (np.arange(size), (np.arange(size) + 1) % size)))
    assert determinant(ring) == 2


def test_realisation_agrees_with_all_trees_on_four_edges() -> None:
    """Every family of sets of 4 elements: is there a tree with these edges in which all of them are paths?"""
    maximal = set()
    for code in product(range(5), repeat=3):
        edges = list(nx.from_prufer_sequence(list(code)).edges)
        tree = nx.Graph(edges)
        for order in permutations(range(4)):
            number = {frozenset(edge): order[place] for place, edge in enumerate(edges)}
            paths = set()
            for one, two in combinations(range(5), 2):
                walk = nx.shortest_path(tree, one, two)
                paths.add(frozenset(number[frozenset(step)] for step in pairwise(walk)))
            maximal.add(frozenset(paths))
    subsets = [frozenset(chosen) for size in (2, 3, 4) for chosen in combinations(range(4), size)]
    for mask in range(1, 1 << len(subsets), 5):
        family = [subset for place, subset in enumerate(subsets) if mask >> place & 1]
        dense = np.array([[element in subset for subset in family] for element in range(4)], dtype=np.int8)
        possible = any(all(subset in paths for subset in family) for paths in maximal)
        mixed = dense[:, np.random.default_rng(mask).permutation(len(family))]
        assert (network_matrix(signs(mixed)).status != "no") == possible, mixed


@pytest.mark.loops
@pytest.mark.parametrize("shape", ["random", "path", "deep"])
@pytest.mark.parametrize("transposed", [False, True])
def test_network_matrices_are_recognised(shape: str, transposed: bool) -> None:
    for seed in range(12):
        matrix = examples.network(3 + 4 * seed, 2 + 9 * seed, shape=shape, seed=seed)
        given = sp.csc_array(matrix.T) if transposed else matrix
        verdict = check(given, method="network")
        assert verdict.is_tu
        assert verdict.verify(given)


def test_repeated_lines_are_found_up_to_sign() -> None:
    base = examples.r10().toarray()
    matrix = signs(np.vstack([base, -base, base]))
    reduced = reduce_matrix(matrix)
    assert len(reduced.rows) == 5
    assert sorted(reduced.why.tolist()) == [2] * 5 + [3] * 5


@pytest.mark.loops
def test_blocks_partition_the_nonzeros() -> None:
    generator = np.random.default_rng(5)
    for _ in range(40):
        matrix = signs(generator.choice([0, 0, 1], (5, 5)))
        parts = split_blocks(matrix)
        assert sum(matrix.tocsr()[rows][:, columns].nnz for rows, columns in parts) == matrix.nnz
        tu = all(brute_force(matrix.toarray()[np.ix_(rows, columns)]) is None for rows, columns in parts)
        assert tu == (brute_force(matrix) is None)


def test_rows_are_divided_by_their_content() -> None:
    matrix = canonical([[2, -2, 0], [0, 0.5, 0.5], [1, 3, 0], [0.1, 0.3, 0], [4, 6, 0]])
    divisors = divisors_of(matrix)
    assert divisors == {0: 2, 1: Fraction(1, 2), 3: Fraction(1, 10), 4: 2}
    assert divided(matrix, divisors).toarray().tolist() == [[1, -1, 0], [0, 1, 1], [1, 3, 0], [1, 3, 0], [2, 3, 0]]
    assert divisors_of(canonical([[1 / 3, 0.1]])) == {}  # no decimal of a sensible size


def test_an_entry_that_no_division_mends_is_a_witness() -> None:
    verdict = check([[1, 0], [2, 1]])
    assert verdict.witness is not None
    assert (verdict.witness.rows, verdict.witness.columns, verdict.witness.determinant) == ((1,), (0,), 2)
    half = check([[0.5, 1.0]])
    assert half.witness is not None
    assert half.witness.determinant == Fraction(1, 2)
    assert half.verify([[0.5, 1.0]])


def test_bicolourings() -> None:
    matrix = examples.jit_matrix(examples.LEMMA_3_FLOWS, 3)
    assert uncolourable_rows(examples.interval(10, 30)) is None
    assert uncolourable_rows(examples.fano()) is not None
    failure = bicoloring_counterexample(matrix, range(12))
    assert failure is not None
    assert max(failure.rows) < 12  # both are port rows: the paper's proof ignores subsets without demand rows
    assert abs(failure.total) == 2
    assert bicoloring_counterexample(examples.incidence(6, 9), range(6)) is None


def test_uncolourable_rows_refuses_what_it_cannot_list() -> None:
    with pytest.raises(ValueError, match="12 rows are too many"):
        uncolourable_rows(examples.interval(12, 20))


def test_holes_are_chordless() -> None:
    for seed in range(20):
        matrix = examples.jit_matrix(examples.random_flows(10, 3, seed=seed), 3)
        hole = camion(matrix, orders=20, seed=seed)
        assert hole is not None
        part = matrix.tocsr()[hole.rows][:, hole.columns]
        assert part.nnz == 2 * len(hole.rows)
        assert abs(determinant(part)) == 2


def gf2_rank(matrix: np.ndarray) -> int:
    rows = [int("".join(map(str, line)), 2) for line in matrix.tolist() if any(line)]
    rank = 0
    while rows:
        lead = max(rows)
        rows = [row for row in (min(row, row ^ lead) for row in rows if row != lead) if row]
        rank += 1
    return rank


def separable(dense: np.ndarray, order: int, least: int) -> bool:
    rows, columns = dense.shape
    for mask in range(1 << (rows + columns)):
        if not least <= mask.bit_count() <= rows + columns - least:
            continue
        x = np.array([mask >> place & 1 for place in range(rows + columns)], dtype=bool)
        r, c = x[:rows], x[rows:]
        if gf2_rank(dense[r][:, ~c]) + gf2_rank(dense[~r][:, c]) < order:
            return True
    return False


@pytest.mark.loops
def test_separations_are_found_exactly_when_there_are_any() -> None:
    generator = np.random.default_rng(5)
    met = {True: 0, False: 0}
    tested = 0
    while tested < 60:
        shape = generator.integers(3, 5, 2)
        dense = (generator.random(shape) < generator.choice([0.5, 0.7])).astype(int)
        parts = split_blocks(signs(dense))
        if len(parts) != 1 or any(len(part) != side for part, side in zip(parts[0], shape, strict=True)):
            continue
        tested += 1
        two = separable(dense, 2, 2)
        met[two] += 1
        assert (two_sum_parts(signs(dense)) is not None) == two
        if not two and dense.size >= 16:
            bits = dense @ (1 << np.arange(dense.shape[1]))
            listed = three_separations(bits.astype(np.int64), dense.shape[1], 4, 999, np.zeros(1, np.uint8))
            assert (len(listed) > 0) == separable(dense, 3, 4)
    assert min(met.values()) > 3


def test_operands_of_a_two_sum_are_submatrices() -> None:
    whole = examples.two_sum(examples.r10(), examples.r10())
    split = two_sum_parts(whole)
    assert split is not None
    assert [piece.shape for piece in operands(whole, split)] == [(5, 5), (5, 5)]


@pytest.mark.parametrize(("rows", "columns"), [(12, 22), (40, 80), pytest.param(160, 160, marks=pytest.mark.slow)])
def test_large_three_sums_of_graphic_and_cographic_parts_are_decided(rows: int, columns: int) -> None:
    matrix = examples.graphic_and_cographic(rows, columns)
    for given in (matrix, sp.csc_array(matrix.T)):
        verdict = check(given)
        assert verdict.certificate is not None
        assert "three_sum" in verdict.certificate.count()
        assert verdict.verify(given)


def test_a_core_is_small_and_neither() -> None:
    matrix = examples.graphic_and_cographic(40, 80)
    core = find_core(matrix, Clock())
    assert core is not None
    assert sum(core.matrix.shape) < 60
    assert all(network_matrix(core.matrix, transposed=side).status == "no" for side in (False, True))
    assert find_core(examples.network(20, 40), Clock()) is None


def test_a_split_is_extended_to_all_lines_or_refused() -> None:
    """On random small matrices: an extension exists exactly when brute force finds one."""
    generator = np.random.default_rng(1)
    met = {True: 0, False: 0}
    for _ in range(200):
        support = generator.random((5, 5)) < 0.5
        seeds = [np.zeros(5, dtype=bool) for _ in range(4)]
        seeds[0][:2] = seeds[1][:2] = seeds[2][3:] = seeds[3][3:] = True
        start = np.ix_([0, 1], [3, 4]), np.ix_([3, 4], [0, 1])
        if sum(gf2_rank(support[part].astype(int)) for part in start) != 2:
            continue
        possible = False
        for r, c in product((False, True), repeat=2):
            rows = np.array([True, True, r, False, False])
            columns = np.array([True, True, c, False, False])
            high, low = support[rows][:, ~columns], support[~rows][:, columns]
            possible |= gf2_rank(high.astype(int)) + gf2_rank(low.astype(int)) == 2
        assert (extend(support, *seeds) is not None) == possible
        met[possible] += 1
    assert min(met.values()) > 10
