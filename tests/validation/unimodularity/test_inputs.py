"""Accepted inputs, and messages of refused ones."""

import gzip
from fractions import Fraction
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

import flowlex
from flowlex.formulations.linear_program import LinearProgram
from flowlex.instances.instance_base import InstanceError
from flowlex.validation.unimodularity import examples
from flowlex.validation.unimodularity.check import check
from flowlex.validation.unimodularity.matrix_adapters import matrix_of, read_matrix
from flowlex.validation.unimodularity.named_matrix import MatrixError

MPS = """NAME          TEST
ROWS
 N  COST
 L  LIM1
 G  MYEQN
COLUMNS
    MARKER                 'MARKER'                 'INTORG'
    X1        COST         1.0   LIM1         1.0
    X1        MYEQN        1.0
    MARKER                 'MARKER'                 'INTEND'
    X2        COST         2.0   LIM1         1.0
RHS
    RHS       LIM1         4.0   MYEQN        1.0
BOUNDS
 UP BND       X1           4.0
ENDATA
"""
LP = "Minimize\n obj: x + y\nSubject To\n c1: x + y <= 4\n c2: y - z >= 1\nBounds\n x <= 4\nEnd\n"


def program() -> LinearProgram:
    lp = LinearProgram("small")
    x = lp.variables("x", 3, upper=2, integer=True)
    lp.constrain("first", x[:2].sum(), "<=", 1)
    lp.constrain("second", x[1:].sum(), "<=", 1)
    lp.minimize(x.sum())
    return lp


def test_directed_graphs_are_networks_and_flows_if_they_have_demands() -> None:
    graph = nx.DiGraph()
    graph.add_node("s", demand=-3)
    graph.add_node("t", demand=3)
    graph.add_edge("s", "t", capacity=4, weight=2)
    named = matrix_of(graph)
    assert named.matrix.toarray().tolist() == [[1], [-1]]
    assert named.program is not None
    assert named.program.sides.tolist() == [[3, -3], [3, -3]]
    assert named.program.bounds.tolist() == [[0], [4]]
    assert "those of this program are integral" in flowlex.check(graph).conclusion
    assert matrix_of(nx.MultiDiGraph([(0, 1), (0, 1), (1, 1)])).matrix.toarray().tolist() == [[1, 1, 0], [-1, -1, 0]]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (np.array([[1.0, np.nan]]), "row 0, column 1 is NaN"),
        (sp.csc_array(np.array([[1.0], [np.inf]])), "row 1, column 0 is infinite"),
        (np.array([[1j]]), "complex"),
        (np.array([["a"]]), "not numbers"),
        ([[1, 0], [1]], "row 0 has 2 entries, row 1 has 1"),
        (np.ones(3), "two dimensions"),
        (np.array([[2**60]]), "too large"),
        (np.array([[2.0**60]]), "too large"),
        (np.array([[10**30]]), "row 0, column 0 is too large"),
        ([[Fraction(1, 3), 1]], "row 0, column 0 is 1/3, which is no decimal fraction; multiply its row"),
        ([[1, None]], "row 0, column 1 is NoneType, not a number"),
        (object(), "cannot take a matrix from object"),
    ],
)
def test_what_is_no_matrix_is_refused(source: Any, message: str) -> None:
    with pytest.raises(MatrixError, match=message):
        check(source)


def test_unknown_options_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown method 'guess'; one of: auto, network"):
        check([[1]], method="guess")
    with pytest.raises(ValueError, match="time_limit"):
        check([[1]], time_limit=0)


def test_duplicates_are_summed_and_the_input_left_alone() -> None:
    coo = sp.coo_array((np.array([1, 1]), ([0, 0], [0, 0])), shape=(1, 1))
    verdict = check(coo)  # a row of one entry 2
    assert verdict.scaled is not None
    assert dict(verdict.scaled.divisors) == {0: 2}
    source = sp.csc_array(np.array([[0.0, 1.0]]))
    source.data[0] = 0.0
    check(source)
    assert source.nnz == 1


def save(tmp_path: Path, name: str, content: str | bytes) -> Path:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_models_are_read(tmp_path: Path) -> None:
    for name, content in (("a.mps", MPS), ("a.lp", LP), ("a.mps.gz", gzip.compress(MPS.encode(), mtime=0))):
        named = read_matrix(save(tmp_path, name, content))
        assert check(named).is_tu
    named = read_matrix(save(tmp_path, "a.mps", MPS))
    assert named.names_of_rows([0, 1]) == ("LIM1", "MYEQN")
    assert named.names_of_columns([0, 1]) == ("X1", "X2")
    assert named.program is not None
    assert named.program.integer.tolist() == [True, False]


def test_matrices_are_read_alike_in_every_format(tmp_path: Path) -> None:
    matrix = examples.network(7, 12, seed=1)
    coo = matrix.tocoo()
    sp.save_npz(tmp_path / "m.npz", matrix)
    scipy.io.mmwrite(tmp_path / "m.mtx", sp.coo_array(matrix.astype(int)))
    dense = "\n".join(" ".join(map(str, row)) for row in matrix.toarray().tolist())
    save(tmp_path, "dense.txt", f"7 12\n\n{dense}\n")
    triples = "\n".join(f"{r + 1} {c + 1} {v}" for r, c, v in zip(coo.row, coo.col, coo.data, strict=True))
    save(tmp_path, "sparse.txt", f"7 12 {matrix.nnz}\n{triples}\n")
    for name in ("m.npz", "m.mtx", "dense.txt", "sparse.txt"):
        assert np.array_equal(read_matrix(tmp_path / name).matrix.toarray(), matrix.toarray()), name


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.npz", b"PK\x03\x04 nonsense", "not a sparse matrix saved by SciPy"),
        ("a.mtx", "%%MatrixMarket matrix coordinate integer general\n2 2 3\n1 1 1\n", "Matrix Market"),
        ("a.mtx", "%%MatrixMarket matrix coordinate complex general\n1 1 1\n1 1 1 2\n", "complex"),
        ("a.mtx", "%%MatrixMarket matrix coordinate integer general\n1 1 1\n1 1 99999999999999999999999\n", "range"),
        ("a.txt", "2 2\n1 0\n1\n", "line 3: row 1 has 1 entries, 2 were announced"),
        ("a.txt", "2 2\n1 0\n", "ends after 1 of 2 rows"),
        ("a.txt", "1 2\n1 0\n0 1\n", "line 3: more than the 1 rows"),
        ("a.txt", "1 2\n1 x\n", "line 2: 'x' is no integer"),
        ("a.txt", "1 1\n99999999999999999999\n", "line 2: 99999999999999999999 is out of range"),
        ("a.txt", "2 2 2\n1 1 1\n", "1 entries found, 2 announced"),
        ("a.txt", "2 2 1\n3 1 1\n", "line 2: entry .3, 1. lies outside 2 x 2"),
        ("a.txt", "2 2 2\n1 1 1\n1 1 1\n", "line 3: entry .1, 1. is given twice, first in line 2"),
        ("a.txt", "1 2 3 4\n", "line 1: the first line has 4 numbers"),
        ("a.txt", "-1 2\n", "out of range"),
        ("a.txt", b"\xff\xfe\x00", "not a matrix in any known format"),
        ("a.json", '{"kind": "no such"}', "unknown kind"),
    ],
)
def test_bad_files_say_what_and_where(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    path = save(tmp_path, name, content)
    with pytest.raises(InstanceError, match=message) as caught:
        read_matrix(path)
    assert str(path) in str(caught.value)


def test_a_saved_matrix_with_wild_indices_is_refused(tmp_path: Path) -> None:
    matrix = sp.csc_array(np.eye(3))
    matrix.indices[1] = 77
    np.savez(
        tmp_path / "w.npz",
        format=b"csc",
        shape=(3, 3),
        data=matrix.data,
        indices=matrix.indices,
        indptr=matrix.indptr,
    )
    with pytest.raises(InstanceError, match="not a sparse matrix saved by SciPy"):
        read_matrix(tmp_path / "w.npz")


def test_any_bytes_give_a_matrix_or_an_error(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    for name in ("f.mps", "f.lp", "f.npz", "f.mtx", "f.txt"):
        for _ in range(25):
            size = int(generator.integers(1, 200))
            noise = bytes(generator.integers(32, 127, size).astype(np.uint8))
            for content in (noise, MPS.encode()[:size] + noise + b"\nENDATA\n"):
                try:
                    read_matrix(save(tmp_path, name, content))
                except InstanceError as error:
                    assert str(error)
