"""Which families of rows break it, and the pictures."""

from __future__ import annotations

import matplotlib as mpl
import pytest

from flowlex.validation.unimodularity import zoo
from flowlex.validation.unimodularity.check import check
from flowlex.validation.unimodularity.explain import explain
from flowlex.validation.unimodularity.matrix import MatrixError, NamedMatrix
from flowlex.validation.unimodularity.plotting import cycle_of

mpl.use("Agg")


def test_jit_needs_all_three_families_to_break() -> None:
    rows, columns = zoo.jit_row_names(zoo.LEMMA_3_FLOWS, 3)
    named = NamedMatrix(zoo.jit_matrix(zoo.LEMMA_3_FLOWS, 3), lambda: rows, lambda: columns)
    found = explain(named)
    assert dict(found.families) == {"egress": 6, "ingress": 6, "demand": 4}
    assert found.breaking == (("egress", "ingress", "demand"),)
    assert set(found.unimodular) == {("egress", "ingress"), ("egress", "demand"), ("ingress", "demand")}
    assert "breaks total unimodularity: egress + ingress + demand" in str(found)
    assert "<table>" in found._repr_html_()


def test_families_must_exist() -> None:
    with pytest.raises(MatrixError, match="family 'ghost'"):
        explain(zoo.r10(), {"ghost": [17]})


def test_a_witness_that_is_a_cycle_is_drawn_as_one() -> None:
    matrix = zoo.jit_matrix(zoo.LEMMA_3_FLOWS, 3)
    verdict = check(matrix)
    assert verdict.witness is not None
    walk = cycle_of(matrix, verdict.witness)
    assert len(walk) == 14
    for (row, column), (next_row, next_column) in zip(walk, [*walk[1:], walk[0]], strict=True):
        assert (row == next_row) != (column == next_column)
    axes = verdict.plot(matrix)
    assert "determinant" in axes.get_title()
    assert len(axes.lines) == 1


def test_proofs_are_drawn() -> None:
    assert len(check(zoo.incidence(6, 9)).plot(zoo.incidence(6, 9)).lines) == 6  # one band per row
    matrix = zoo.network(20, 40)
    axes = check(matrix).plot(matrix)
    assert len(axes.get_figure().axes) == 2  # the tree beside the pattern
