"""Families of rows that destroy total unimodularity, and pictures."""

import matplotlib as mpl
import pytest

from flowlex.formulations.linear_program import LinearProgram
from flowlex.validation.unimodularity import examples
from flowlex.validation.unimodularity.check import check
from flowlex.validation.unimodularity.named_matrix import MatrixError, NamedMatrix
from flowlex.validation.unimodularity.proof_plots import cycle_of
from flowlex.validation.unimodularity.violating_families import explain, families_of

mpl.use("Agg")


def test_jit_needs_all_three_families_to_break() -> None:
    rows, columns = examples.jit_row_names(examples.LEMMA_3_FLOWS, 3)
    named = NamedMatrix(examples.jit_matrix(examples.LEMMA_3_FLOWS, 3), lambda: rows, lambda: columns)
    found = explain(named)
    assert dict(found.families) == {"egress": 6, "ingress": 6, "demand": 4}
    assert found.breaking == (("egress", "ingress", "demand"),)
    assert set(found.unimodular) == {("egress", "ingress"), ("egress", "demand"), ("ingress", "demand")}
    assert "breaks total unimodularity: egress + ingress + demand" in str(found)
    assert "<table>" in found._repr_html_()


def test_families_of_columns_and_names_with_numbers() -> None:
    lp = LinearProgram("two")
    x, y = lp.variables("x", 3), lp.variables("y", 3)
    lp.constrain("pair", x[[0, 1, 2]] + x[[1, 2, 0]] + y, "<=", 1)
    found = explain(lp, by="columns")
    assert dict(found.families) == {"x": 3, "y": 3}
    assert found.breaking == (("x",),)
    assert ("y",) in found.unimodular
    assert list(families_of(NamedMatrix(examples.interval(3, 4), lambda: ["a_1", "a_2", "b10_3"]))) == ["a", "b"]
    with pytest.raises(MatrixError, match="not of 'cells'"):
        explain(lp, by="cells")


def test_a_matrix_of_thousands_of_rows_is_explained_in_seconds() -> None:
    flows = examples.random_flows(100, 20, seed=1)
    rows, columns = examples.jit_row_names(flows, 40)
    named = NamedMatrix(examples.jit_matrix(flows, 40), lambda: rows, lambda: columns)
    assert named.shape[0] > 1500
    found = explain(named)
    assert found.breaking == (("egress", "ingress", "demand"),)
    assert not found.undecided


def test_large_patterns_are_drawn_by_density_with_names() -> None:
    matrix = examples.interval(3000, 5000)
    named = NamedMatrix(matrix, lambda: [f"row[{k}]" for k in range(3000)], lambda: [f"x[{k}]" for k in range(5000)])
    axes = check(named).plot(named)
    assert len(axes.images) == 1
    assert [text.get_text() for text in axes.get_yticklabels()] == ["row"]
    small = examples.network(6, 9)
    names = [f"cap[{k}]" for k in range(6)]
    axes = check(small).plot(NamedMatrix(small, lambda: names))
    assert [text.get_text() for text in axes.get_yticklabels()] == names


def test_families_must_exist() -> None:
    with pytest.raises(MatrixError, match="family 'ghost'"):
        explain(examples.r10(), {"ghost": [17]})


def test_a_witness_that_is_a_cycle_is_drawn_as_one() -> None:
    matrix = examples.jit_matrix(examples.LEMMA_3_FLOWS, 3)
    verdict = check(matrix)
    assert verdict.witness is not None
    walk = cycle_of(matrix, verdict.witness)
    assert len(walk) == 14
    for (row, column), (next_row, next_column) in zip(walk, [*walk[1:], walk[0]], strict=True):
        assert (row == next_row) != (column == next_column)
    axes = verdict.plot(matrix)
    assert "determinant" in axes.get_title()
    assert len(axes.lines) == 1
