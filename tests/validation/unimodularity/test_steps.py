"""Unit tests of single steps."""

from fractions import Fraction
from itertools import combinations, pairwise, permutations, product

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp

from flowlex.validation.unimodularity import examples
from flowlex.validation.unimodularity.check import check
from flowlex.validation.unimodularity.determinant import determinant
from flowlex.validation.unimodularity.named_matrix import canonical, ternary
from flowlex.validation.unimodularity.network.network_matrix import network_matrix


def signs(dense: object) -> sp.csc_array:
    return ternary(canonical(np.asarray(dense)))


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


def test_an_entry_that_no_division_mends_is_a_witness() -> None:
    verdict = check([[1, 0], [2, 1]])
    assert verdict.witness is not None
    assert (verdict.witness.rows, verdict.witness.columns, verdict.witness.determinant) == ((1,), (0,), 2)
    half = check([[0.5, 1.0]])
    assert half.witness is not None
    assert half.witness.determinant == Fraction(1, 2)
    assert half.verify([[0.5, 1.0]])


@pytest.mark.parametrize(("rows", "columns"), [(12, 22), (40, 80), pytest.param(160, 160, marks=pytest.mark.slow)])
def test_large_three_sums_of_graphic_and_cographic_parts_are_decided(rows: int, columns: int) -> None:
    matrix = examples.graphic_and_cographic(rows, columns)
    for given in (matrix, sp.csc_array(matrix.T)):
        verdict = check(given)
        assert verdict.certificate is not None
        assert "three_sum" in verdict.certificate.count()
        assert verdict.verify(given)
