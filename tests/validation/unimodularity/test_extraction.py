"""Extraction of networks from programs: the same optimum, mapped duals, and names of rows that prevent it."""

import json
import sys
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from flowlex import generate, model_for
from flowlex.cli.app import app
from flowlex.formulations import solve
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.program_files import write_program
from flowlex.instances.files import read_instance
from flowlex.validation.unimodularity import examples
from flowlex.validation.unimodularity.check import check
from flowlex.validation.unimodularity.named_matrix import MatrixError, canonical, ternary
from flowlex.validation.unimodularity.network.extraction import Extraction, extract_network
from flowlex.validation.unimodularity.network.largest_network_part import Extent, network_part
from flowlex.validation.unimodularity.network.network_matrix import network_matrix
from flowlex.validation.unimodularity.verdict import Verdict, verification_error
from tests.seeds import seeds


def program(seed: int, budget: bool = False) -> LinearProgram:
    """A feasible program with a random network matrix, all kinds of sides and bounds, fractions in some."""
    generator = np.random.default_rng(seed)
    matrix = examples.network(int(generator.integers(2, 7)), int(generator.integers(2, 10)), seed=seed)
    rows, columns = matrix.shape
    lower = generator.choice([0.0, -2.0, 0.5, -np.inf], columns, p=[0.5, 0.2, 0.2, 0.1])
    upper = np.where(np.isfinite(lower), lower, 0) + generator.integers(1, 6, columns)
    point = np.where(np.isfinite(lower), lower, upper - 3)
    lp = LinearProgram("random")
    x = lp.variables("x", columns, lower=lower, upper=upper)
    by_row = matrix.tocsr()
    for row in range(rows):
        part = slice(int(by_row.indptr[row]), int(by_row.indptr[row + 1]))
        factor = float(generator.choice([1, 1, 3, 0.1]))
        terms = (x[by_row.indices[part]] * (by_row.data[part] * factor)).sum()
        if part.start == part.stop:
            continue
        side = round((by_row[[row]] @ point).item() * factor, 6)
        lp.constrain(f"r{row}", terms, str(generator.choice(["<=", ">=", "=="])), side)
    if budget:
        lp.constrain("budget", (x * generator.integers(1, 9, columns)).sum(), "<=", 1e4)
    lp.minimize((x * generator.choice([1.0, -2.0, 0.25, 3.0], columns)).sum())
    return lp


def solved(found: Extraction) -> tuple[np.ndarray, np.ndarray, float]:
    """Flow, potentials and the program's objective, by the network engine; nothing of them without a flow."""
    answer = solve(found.network, "network")
    assert answer.values is not None and answer.duals is not None
    return answer.values, answer.duals, float(found.objective(found.network.total_cost(answer.values)))


@pytest.mark.parametrize("seed", seeds(15, 40))
def test_the_network_has_the_optimum_and_the_duals_of_the_program(seed: int) -> None:
    lp = program(seed)
    expected = solve(lp, "highs")
    found = extract_network(lp)
    if expected.objective is None:
        assert solve(found.network, "network").values is None
        return
    flow, potentials, objective = solved(found)
    assert objective == pytest.approx(expected.objective)
    values = found.values(flow)
    arrays = lp.arrays()
    assert arrays.cost @ values == pytest.approx(expected.objective)
    activity = arrays.matrix @ values
    assert np.all(activity >= arrays.row_lower - 1e-9)
    assert np.all(activity <= arrays.row_upper + 1e-9)
    assert np.all(values >= arrays.column_lower - 1e-9)
    assert np.all(values <= arrays.column_upper + 1e-9)
    # Duals: the dual objective of the mapped values equals the primal one, with signs that the sides allow.
    duals = found.duals(potentials)
    reduced = arrays.cost - arrays.matrix.T @ duals
    bound = 0.0
    for price, low, high in (
        (duals, arrays.row_lower, arrays.row_upper),
        (reduced, arrays.column_lower, arrays.column_upper),
    ):
        side = np.where(price > 0, low, np.where(price < 0, high, 0.0))
        used = np.abs(price) > 1e-9
        assert np.all(np.isfinite(side[used]))
        bound += float(price[used] @ side[used])
    assert bound == pytest.approx(expected.objective)


@pytest.mark.parametrize("generator", ["gpu-figure4", "flow-random"])
def test_models_come_back_as_networks(generator: str) -> None:
    formulation = model_for(generate(generator)).formulation
    *_, objective = solved(extract_network(formulation))
    assert objective == pytest.approx(solve(formulation, "network").objective)


def test_side_constraints_are_named() -> None:
    lp = program(4, budget=True)
    verdict = check(lp)
    assert verdict.network is not None
    assert verdict.network.rest_names == ("budget[0]",)
    assert verdict.network.extent is Extent.LARGEST
    assert "a network but for budget[0] (no larger part is a network)" in str(verdict)
    with pytest.raises(MatrixError, match=r"a network but for budget"):
        extract_network(lp)
    assert Verdict.from_json(verdict.to_json()) == verdict
    assert verdict.verify(lp)
    part = verdict.network
    for forged, reason in (
        (replace(part, rest_names=("cost",)), "other names"),
        (replace(part, rest=(0,), rest_names=("r0[0]",)), "missing or named twice"),
        (replace(part, rest=(), rest_names=()), "missing or named twice"),
        (replace(part, certificate=replace(part.certificate, data={})), "malformed"),
    ):
        assert reason in verification_error(replace(verdict, network=forged), lp)


def test_the_network_part_of_a_large_program_is_searched_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    lp = program(4, budget=True)
    small = check(lp)
    monkeypatch.setattr(sys.modules[check.__module__], "SMALL_NONZEROS", small.nonzeros - 1)
    assert check(lp, network_part=True).network == small.network is not None
    large = check(lp)
    assert large.network is None
    assert (large.answer, large.witness, large.conclusion) == (small.answer, small.witness, small.conclusion)


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_no_larger_part_is_a_network_by_trying_all(seed: int) -> None:
    generator = np.random.default_rng(seed)
    shape = int(generator.integers(2, 7)), int(generator.integers(2, 8))
    dense = generator.choice([0, 0, 1, -1, 1, -1, 2], shape)
    if not dense.any():
        return
    part = network_part(dense)
    even = [row for row in range(shape[0]) if len(set(np.abs(dense[row][dense[row] != 0]))) <= 1]
    signs = np.sign(dense)
    sizes = (k for k in range(len(even), 0, -1) for rows in combinations(even, k) if is_network(signs[list(rows)]))
    largest = next(sizes, 0)
    assert (0 if part is None else len(part.certificate.rows)) == largest
    assert part is None or part.extent is Extent.LARGEST


def is_network(dense: np.ndarray) -> bool:
    return not dense.any() or network_matrix(ternary(canonical(dense))).status == "network"


def test_a_search_that_ends_early_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from flowlex.validation.unimodularity.network import largest_network_part as module

    jit = examples.jit_matrix(examples.random_flows(12, 4, seed=1), 5)
    monkeypatch.setattr(module, "MOST_TRIALS", 3)
    early = network_part(jit)
    assert early is not None
    assert early.extent is Extent.FOUND
    monkeypatch.setattr(module, "MOST_TRIALS", 120)
    found = network_part(jit)
    assert found is not None
    assert found.extent is Extent.MAXIMAL
    kept = np.array(found.certificate.rows)
    for row in found.rest:  # none can be put back
        assert check(jit.tocsr()[np.sort([*kept, row])], method="network").answer.value != "tu"


def test_columns_in_other_units_and_a_constant_in_the_objective() -> None:
    """Crates of 12 and of 5: the columns are scaled, the constant is kept, also of a maximisation and from a file."""
    lp = LinearProgram("crates")
    x = lp.variables("x", 3, upper=[4, 6, 30])
    lp.constrain("mill", x[:1].sum() * 12 + x[1:2].sum() * 5, "<=", 40)
    lp.constrain("shop", x[:1].sum() * 24 - x[2:].sum() * 2, "==", 6)
    lp.maximize((x * np.array([7.0, 2.0, 0.5])).sum() + 11)
    assert check(lp).answer.value == "not_tu"
    for source in (lp, lp.to_pulp()):
        found = extract_network(source)
        assert found.column_scales
        assert "columns scaled" in str(found)
        flow, _, objective = solved(found)
        optimum = solve(lp, "highs").objective
        assert -objective == pytest.approx(optimum)
        assert lp.arrays().cost @ found.values(flow) + 11 == pytest.approx(optimum)
    with pytest.raises(MatrixError, match="no network matrix"):
        extract_network(crooked())


def crooked() -> LinearProgram:
    lp = LinearProgram("crooked")
    x = lp.variables("x", 2, upper=4)
    lp.constrain("one", x[:1].sum() * 2 + x[1:].sum() * 3, "<=", 4)
    lp.constrain("two", x[:1].sum() * 5 + x[1:].sum() * 4, "<=", 4)
    lp.minimize(x.sum())
    return lp


def test_what_is_no_program_is_refused() -> None:
    with pytest.raises(MatrixError, match="no costs"):
        extract_network([[1, 1]])


def test_the_command_writes_dimacs(tmp_path: Path) -> None:
    model, net = tmp_path / "m.mps", tmp_path / "n.min"
    lp = program(5)
    write_program(lp.named(), model)
    result = CliRunner().invoke(app, ["tu", str(model), "--extract", str(net)])
    assert "objective = cost" in result.output
    instance = read_instance(net)
    found = extract_network(lp)
    cost = solve(model_for(instance).formulation, "network").objective
    assert cost is not None
    assert float(found.objective(round(cost))) == pytest.approx(solve(lp, "highs").objective)
    again = CliRunner().invoke(app, ["tu", str(model), "--json", "--extract", str(net), "--force"])
    assert json.loads(again.stdout)["verdict"]
    write_program(program(4, budget=True).named(), model)
    result = CliRunner().invoke(app, ["tu", str(model), "--extract", str(net), "--force"])
    assert result.exit_code == 2
    assert "a network but for budget" in result.output
