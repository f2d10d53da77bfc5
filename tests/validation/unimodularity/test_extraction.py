"""Networks out of programs: the same optimum, duals mapped back, and what stands in the way by name."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from flowlex.cli.app import app
from flowlex.formulations import solve
from flowlex.formulations.linear_program import LinearProgram
from flowlex.instances.files import read_instance
from flowlex.models.registry import model_for
from flowlex.validation.unimodularity import zoo
from flowlex.validation.unimodularity.check import check
from flowlex.validation.unimodularity.extraction import extract_network, side_constraints
from flowlex.validation.unimodularity.matrix import MatrixError


def program(seed: int, budget: bool = False) -> LinearProgram:
    """A feasible program with a random network matrix, all kinds of sides and bounds, fractions in some."""
    generator = np.random.default_rng(seed)
    matrix = zoo.network(int(generator.integers(2, 7)), int(generator.integers(2, 10)), seed=seed)
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


@pytest.mark.parametrize("seed", range(40))
def test_the_network_has_the_optimum_and_the_duals_of_the_program(seed: int) -> None:
    lp = program(seed)
    expected = solve(lp, "highs")
    found = extract_network(lp)
    answer = solve(found.network, "network")
    if expected.objective is None:
        assert answer.values is None
        return
    assert answer.values is not None
    flow = np.asarray(answer.values, dtype=np.int64)
    assert float(found.objective(found.network.total_cost(flow))) == pytest.approx(expected.objective)
    values = found.values(flow)
    arrays = lp.arrays()
    assert arrays.cost @ values == pytest.approx(expected.objective)
    activity = arrays.matrix @ values
    assert np.all(activity >= arrays.row_lower - 1e-9)
    assert np.all(activity <= arrays.row_upper + 1e-9)
    assert np.all(values >= arrays.column_lower - 1e-9)
    assert np.all(values <= arrays.column_upper + 1e-9)
    # Duals: the dual objective of the mapped values equals the primal one, with signs that the sides allow.
    duals = found.duals(np.asarray(answer.duals, dtype=np.int64))
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


def test_models_come_back_as_networks(tmp_path: Path) -> None:
    for generator in ("gpu-figure4", "flow-random"):
        path = tmp_path / "i.json"
        assert CliRunner().invoke(app, ["generate", generator, "-o", str(path)]).exit_code == 0
        formulation = model_for(read_instance(path)).formulation
        found = check(formulation).to_network(formulation)
        answer = solve(found.network, "network")
        assert answer.values is not None
        cost = found.network.total_cost(np.asarray(answer.values, dtype=np.int64))
        direct = solve(formulation, "network")
        assert float(found.objective(cost)) == pytest.approx(direct.objective)


def test_side_constraints_are_named() -> None:
    lp = program(3, budget=True)
    rows = lp.row_names()
    assert [rows[row] for row in side_constraints(lp)] == ["budget[0]"]
    with pytest.raises(MatrixError, match=r"a network but for budget"):
        extract_network(lp)
    jit = zoo.jit_matrix(zoo.LEMMA_3_FLOWS, 3)
    rest = side_constraints(jit)
    kept = np.setdiff1d(np.arange(jit.shape[0]), rest)
    assert 0 < len(rest) < jit.shape[0]
    assert check(jit.tocsr()[kept], method="network").is_tu
    for row in rest:  # none can be put back
        assert check(jit.tocsr()[np.sort([*kept, row])], method="network").answer.value != "tu"


def test_what_is_no_program_is_refused() -> None:
    with pytest.raises(MatrixError, match="no costs"):
        extract_network([[1, 1]])


def test_the_command_writes_dimacs(tmp_path: Path) -> None:
    model, net = tmp_path / "m.mps", tmp_path / "n.min"
    lp = program(5)
    lp.to_pulp().writeMPS(str(model))
    result = CliRunner().invoke(app, ["tu", str(model), "--extract", str(net)])
    assert "objective = cost" in result.output
    instance = read_instance(net)
    found = extract_network(lp)
    cost = solve(model_for(instance).formulation, "network").objective
    assert cost is not None
    assert float(found.objective(round(cost))) == pytest.approx(solve(lp, "highs").objective)
    assert json.loads(CliRunner().invoke(app, ["tu", str(model), "--json", "--extract", str(net)]).stdout)["verdict"]
    program(3, budget=True).to_pulp().writeMPS(str(model))
    result = CliRunner().invoke(app, ["tu", str(model), "--extract", str(net)])
    assert result.exit_code == 2
    assert "a network but for budget" in result.output
