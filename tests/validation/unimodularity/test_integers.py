"""Implied integers: valid proofs, no needed declaration is dropped (brute force), textbook models, forged proofs."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp
from typer.testing import CliRunner

from benchmarks.textbook_models import MODELS
from flowlex.cli.app import app
from flowlex.formulations import SolveOptions
from flowlex.formulations.engines.highs import solve_arrays
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.program_files import write_program
from flowlex.validation.unimodularity.implied_integers.integrality_proof import ImpliedIntegers
from flowlex.validation.unimodularity.implied_integers.search import implied_integers
from flowlex.validation.unimodularity.matrix_adapters import read_matrix
from flowlex.validation.unimodularity.named_matrix import NamedMatrix
from flowlex.validation.unimodularity.proof_types import VerdictError
from tests.validation.unimodularity.small_programs import QUADRATIC, program, vertices

#: Textbook models: least number of implied declarations, and total number of declarations.
KNOWN = {
    "fixed_charge": (60, 72),
    "facility_location": (60, 72),
    "capacitated_facility": (60, 72),
    "lot_sizing": (0, 12),
    "assignment": (36, 36),
    "transportation": (30, 30),
    "network_design": (40, 60),
    "set_cover": (0, 20),
    "knapsack": (0, 12),
    "shift_scheduling": (24, 24),
    "generalised_assignment": (0, 30),
    "unit_commitment": (24, 72),
    "fixed_charge_transport": (12, 24),
    "capacitated_lot_sizing": (24, 36),
}


@pytest.mark.parametrize("name", KNOWN)
def test_textbook_models(name: str) -> None:
    model = MODELS[name]()
    found = implied_integers(model)
    assert found.error(model) == ""
    assert found.declared == KNOWN[name][1]
    assert len(found.dropped) >= KNOWN[name][0], str(found)
    assert ImpliedIntegers.from_json(json.dumps(found.to_document())) == found


@pytest.mark.parametrize("name", [name for name in KNOWN if KNOWN[name][0]])
def test_the_optimum_stays_without_the_declarations(name: str) -> None:
    model = MODELS[name]()
    arrays = model.arrays()
    kept = arrays.integrality.copy()
    kept[list(implied_integers(model).dropped)] = False
    exact = SolveOptions(gap=0.0)
    with_all, without = (solve_arrays(each, exact) for each in (arrays, replace(arrays, integrality=kept)))
    assert with_all.objective == pytest.approx(without.objective, rel=1e-6)


def random_program(generator: np.random.Generator) -> NamedMatrix:
    rows, columns = int(generator.integers(1, 4)), int(generator.integers(2, 5))
    dense = generator.choice([0, 0, 1, -1, 1, -1, 2, 0.5], (rows, columns))
    side = generator.choice([-1, 0, 1, 2, 3, 1.5], rows)
    equal = generator.random(rows) < 0.4
    lower = generator.integers(-1, 1, columns)
    bounds = np.stack([lower, lower + generator.integers(1, 3, columns)], 1)
    sides = np.stack([np.where(equal, side, -np.inf), side], 1)
    return program(dense, sides, bounds, generator.random(columns) < 0.8)


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_every_vertex_of_the_rest_is_integral_whatever_is_kept(seed: int) -> None:
    """Fix the kept integers at every point of their box: all vertices of what remains have the others integral."""
    named = random_program(np.random.default_rng(seed))
    assert named.program is not None
    found = implied_integers(named)
    assert found.error(named) == ""
    dropped = list(found.dropped)
    kept = [column for column in np.flatnonzero(named.program.integer) if column not in dropped]
    if not dropped:
        return
    low, high = named.program.bounds.astype(int)
    for values in product(*(range(low[column], high[column] + 1) for column in kept)):
        bounds = named.program.bounds.copy()
        bounds[:, kept] = values
        fixed = NamedMatrix(named.matrix, program=replace(named.program, bounds=bounds))
        for point in vertices(fixed):
            assert np.allclose(point[dropped], np.rint(point[dropped])), (named, values, point)


def test_equations_determine_what_nothing_else_does() -> None:
    """x + 2 y = 7 implies that x is integer; the row 3 x + 5 z <= 20 is irrelevant."""
    lp = LinearProgram("determined")
    x, y, z = (lp.variables(name, 1, upper=9, integer=True) for name in "xyz")
    lp.constrain("sum", x.sum() + y.sum() * 2, "==", 7)
    lp.constrain("other", x.sum() * 3 + z.sum() * 5, "<=", 20)
    found = implied_integers(lp)
    assert found.determined == ((0, 0),)
    assert found.error(lp) == ""
    assert "determined by an equation: 1" in str(found)


def test_columns_in_no_row_follow_too() -> None:
    lp = LinearProgram("idle")
    x, y = lp.variables("x", 2, upper=3, integer=True), lp.variables("idle", 1, upper=2, integer=True)
    lp.constrain("sum", x.sum(), "==", 4)
    lp.minimize(x.sum() - y.sum())
    found = implied_integers(lp)
    assert found.dropped_names == ("x[0]", "x[1]", "idle[0]")
    assert found.error(lp) == ""
    alone = program([[2, 0]], [(-np.inf, 3)], (0, 1))
    assert implied_integers(alone).error(alone) == ""


def test_nothing_follows_from_a_quadratic_objective(tmp_path: Path) -> None:
    (tmp_path / "q.mps").write_text(QUADRATIC)
    found = implied_integers(read_matrix(tmp_path / "q.mps"))
    assert found.dropped == ()
    assert "the objective is quadratic" in str(found)


@pytest.mark.parametrize("seed", range(6))
def test_of_a_bare_matrix_the_declarations_that_stay_are_enough_for_every_right_hand_side(seed: int) -> None:
    random = np.random.default_rng(seed)
    matrix = random.integers(-1, 2, (4, 5))
    found = implied_integers(matrix)
    assert found.error(matrix) == "" and found.declared == 5
    stay = np.ones(5)
    stay[list(found.dropped)] = 0
    for _ in range(20):
        cost, side = -random.integers(1, 9, 5), random.integers(0, 7, 4)
        rows = LinearConstraint(matrix, -np.inf, side)
        bounds = Bounds(0, 9)  # a box of integers changes no declaration
        few, all_ = (milp(cost, integrality=which, constraints=rows, bounds=bounds) for which in (stay, np.ones(5)))
        assert few.fun == pytest.approx(all_.fun)


FORGERIES: list[tuple[str, Callable[[ImpliedIntegers], ImpliedIntegers]]] = [
    ("accounted for", lambda f: replace(f, dropped=(*f.dropped, 60), dropped_names=(*f.dropped_names, "open[0]"))),
    ("declared integer", lambda f: replace(f, dropped=(*f.dropped[1:], f.dropped[1]))),
    ("other names", lambda f: replace(f, dropped_names=("x", *f.dropped_names[1:]))),
    ("other names", lambda f: replace(f, block_row_names=("x", *f.block_row_names[1:]))),
    ("72 columns", lambda f: replace(f, declared=71)),
    ("no certificate", lambda f: replace(f, certificate=None)),
    (
        "not those of its columns",
        lambda f: replace(f, block_rows=f.block_rows[1:], block_row_names=f.block_row_names[1:]),
    ),
    ("kept as well", lambda f: replace(f, block_columns=(*f.block_columns, 60))),
    ("another program", lambda f: replace(f, fingerprint="0")),
    ("named twice", lambda f: replace(f, determined=((0, 0),))),
]


@cache
def fixed_charge() -> tuple[LinearProgram, ImpliedIntegers]:
    model = MODELS["fixed_charge"]()
    return model, implied_integers(model)


@pytest.mark.parametrize(("reason", "forge"), FORGERIES, ids=[reason for reason, _ in FORGERIES])
def test_forged_proofs_are_refused(reason: str, forge: Callable[[ImpliedIntegers], ImpliedIntegers]) -> None:
    model, found = fixed_charge()
    assert reason in forge(found).error(model)


def test_documents_that_are_no_proof() -> None:
    for text in ("", "[]", '{"certificate": null}', '{"certificate": null, "dropped": [1.5]}'):
        with pytest.raises(VerdictError, match="no list of implied integers"):
            ImpliedIntegers.from_json(text)


def test_the_command_finds_writes_and_verifies(tmp_path: Path) -> None:
    import highspy

    model, relaxed, proof = tmp_path / "m.mps", tmp_path / "r.mps", tmp_path / "p.json"
    write_program(MODELS["fixed_charge"]().named(), model)
    run = CliRunner().invoke
    assert "60 of 72 integer declarations" in run(app, ["integers", str(model)]).output
    told = run(app, ["integers", str(model), "--json", "-o", str(relaxed)])
    proof.write_text(told.stdout)
    assert len(json.loads(told.stdout)["dropped"]) == 60
    assert run(app, ["integers", str(model), "--verify", str(proof)]).exit_code == 0
    assert run(app, ["integers", str(relaxed), "--verify", str(proof)]).exit_code == 1
    values = []
    for path, integers in ((model, 72), (relaxed, 12)):
        solver = highspy.Highs()
        solver.setOptionValue("log_to_console", False)
        solver.readModel(str(path))
        assert sum(kind == highspy.HighsVarType.kInteger for kind in solver.getLp().integrality_) == integers
        solver.run()
        values.append(solver.getObjectiveValue())
    assert values[0] == pytest.approx(values[1])
    assert run(app, ["integers", str(model), "-o", "x.json"]).exit_code == 2
    assert run(app, ["integers", str(proof)]).exit_code == 2
    matrix = tmp_path / "m.txt"
    matrix.write_text("1 1\n1\n")
    assert "1 of 1 integer declarations" in run(app, ["integers", str(matrix)]).output
