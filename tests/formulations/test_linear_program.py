import numpy as np
import pytest

from flowlex.formulations import Expression, LinearProgram, solve
from flowlex.validation.certificates import certify_program

ENGINES = ("pulp", "highs")


@pytest.mark.parametrize("engine", ENGINES)
def test_programs_without_columns_or_rows(engine: str) -> None:
    empty = LinearProgram("empty")
    assert solve(empty, engine).objective == 0
    unconstrained = LinearProgram("no rows")
    x = unconstrained.variables("x", 2, lower=-1, upper=4)
    unconstrained.minimize((x * np.array([1, -1])).sum() + 10)
    outcome = solve(unconstrained, engine)
    assert outcome.objective == 5
    assert certify_program(unconstrained, outcome).ok
    impossible = LinearProgram("no columns")
    impossible.constrain("one", Expression.empty(2), ">=", [0, 1])
    outcome = solve(impossible, engine)
    assert outcome.status == "infeasible"
    assert outcome.infeasibility is not None
    assert outcome.infeasibility.constraints == ("one[1]",)


def test_arrays_sum_duplicates_and_drop_zeros() -> None:
    lp = LinearProgram("p")
    x = lp.variables("x", 2, upper=[1, np.inf])
    lp.constrain("c", x + x - x[[0, 1]] * np.array([2, 0]) + 5, ">=", [1, 2])
    lp.minimize((x + x).sum() - 1)
    arrays = lp.arrays()
    assert arrays.matrix.toarray().tolist() == [[0, 0], [0, 2]]
    assert arrays.matrix.nnz == 1
    assert arrays.row_lower.tolist() == [-4, -3]
    assert arrays.row_upper.tolist() == [np.inf, np.inf]
    assert arrays.cost.tolist() == [2, 2]
    assert arrays.offset == -1


def test_names_labels_and_blocks() -> None:
    lp = LinearProgram("p")
    x = lp.variables("x", 2, labels=(np.array([1, 2]), np.array(["a", "b"])))
    lp.variables("y", 1, labels=[("n", 3)])
    lp.constrain("c", x, "<=", 1)
    lp.constrain("d", x.sum(), "<=", 1, labels=["all"])
    assert lp.column_names() == ["x[1,a]", "x[2,b]", "y[n,3]"]
    assert lp.row_names() == ["c[0]", "c[1]", "d[all]"]
    assert {k: v.tolist() for k, v in lp.split_columns(np.arange(3)).items()} == {"x": [0, 1], "y": [2]}
    assert {k: v.tolist() for k, v in lp.split_rows(np.arange(3)).items()} == {"c": [0, 1], "d": [2]}
    assert repr(lp) == "<linear program 'p': 3 columns, 3 rows>"
    lp.variables("z", 1, integer=True)
    assert repr(lp) == "<integer program 'p': 4 columns, 3 rows>"


def test_mistakes_name_the_offender() -> None:
    lp = LinearProgram("p")
    x = lp.variables("x", 3)
    lp.constrain("c", x, "<=", 1)
    stranger = LinearProgram("q").variables("y", 9)
    refused = [
        (lambda: lp.variables("x", 1), "variables named 'x' exist already"),
        (lambda: lp.variables("a", 2, lower=[0, 3], upper=2, labels=["u", "v"]), r"a\[v\]: lower bound 3.0 exceeds"),
        (lambda: lp.variables("b", 2, lower=np.nan), "lower bounds of b: NaN"),
        (
            lambda: lp.variables("b", 2, upper=[1, 2, 3]),
            r"upper bounds of b: expected one number or 2, got shape \(3,\)",
        ),
        (lambda: lp.variables("b", 2, lower=np.inf), r"b\[0\]: no number lies between bounds inf and inf"),
        (lambda: lp.variables("b", 2, labels=["u"]), "b: 1 labels for 2 members"),
        (lambda: lp.variables("b", 2, labels=()), "b: 0 labels for 2 members"),
        (lambda: lp.variables("b", 2, labels=(np.arange(2), np.arange(3))), "b: 3 labels for 2 members"),
        (lambda: lp.variables("b", -1), "b: a block cannot have -1 members"),
        (lambda: lp.constrain("c", x, "<=", 1), "constraints named 'c' exist already"),
        (lambda: lp.constrain("d", x, "<", 1), "d: unknown relation '<'; one of <=, >=, =="),
        (lambda: lp.constrain("d", x, "<=", [1, np.inf, 1]), "d: row 1 has no finite right-hand side"),
        (lambda: lp.constrain("d", x, "<=", [1, 2]), r"right-hand sides of d: expected one number or 3"),
        (lambda: lp.constrain("d", x, "<=", 1, labels=["u"]), "d: 1 labels for 3 members"),
        (lambda: lp.constrain("d", x * 1e200 * 1e200, "<=", 1), "d: the coefficient inf of column 0 is not finite"),
        (lambda: lp.constrain("d", stranger, "<=", 1), "d: an expression uses variables of another program than 'p'"),
        (lambda: lp.minimize(stranger.sum()), "objective: an expression uses variables of another program"),
        (lambda: lp.minimize((x * 1e200 * 1e200).sum()), "objective: the coefficient inf of column 0"),
        (lambda: lp.minimize(x.sum() + 1e308 + 1e308), "objective: the constant inf is not finite"),
        (lambda: lp.minimize(x), "an objective has one row, this expression has 3"),
    ]
    for act, message in refused:
        with pytest.raises(ValueError, match=message):
            act()
    assert lp.column_names() == ["x[0]", "x[1]", "x[2]"]
    assert lp.row_names() == ["c[0]", "c[1]", "c[2]"]


def test_undeclared_constraints_are_refused() -> None:
    lp = LinearProgram("model", rows={"egress", "ingress"})
    x = lp.variables("rate", 2)
    lp.constrain("egress", x, "<=", 1)
    with pytest.raises(ValueError, match="model: constraints named 'egres' belong to no declared equation; declare it"):
        lp.constrain("egres", x, "<=", 1)
    with pytest.raises(ValueError, match="beside: egress, ingress"):
        lp.copy().constrain("more", x, "<=", 1)


def test_a_program_with_other_bounds_or_kinds_is_another_program() -> None:
    lp = LinearProgram("p")
    x, y = lp.variables("x", 2, upper=4), lp.variables("y", 1, lower=1, upper=2)
    lp.constrain("c", x.sum() + y, "<=", 5)
    lp.maximize(x.sum())
    assert lp.variable("y").column.tolist() == [2]
    whole, tight = lp.with_integer("x"), lp.with_upper("x", [1, 2])
    assert [lp.is_mip, whole.is_mip, lp.with_integer().is_mip] == [False, True, True]
    assert whole.arrays().integrality.tolist() == [True, True, False]
    assert tight.arrays().column_upper.tolist() == [1, 2, 2]
    assert lp.arrays().column_upper.tolist() == [4, 4, 2]
    assert tight.objective is lp.objective
    assert tight.arrays().maximize
    more = lp.copy()
    more.constrain("d", x, "<=", 1)
    assert (lp.row_count, more.row_count) == (1, 3)
    with pytest.raises(ValueError, match="p: there are no variables named 'z'; there are: x, y"):
        lp.with_integer("z")
    with pytest.raises(ValueError, match=r"y\[0\]: lower bound 1.0 exceeds upper bound 0.0"):
        lp.with_upper("y", 0)
    with pytest.raises(ValueError, match="upper bounds of x: expected one number or 2"):
        lp.with_upper("x", [1, 2, 3])


def test_blocks_are_read_only() -> None:
    upper = np.array([1.0, 2.0])
    lp = LinearProgram("p")
    x = lp.variables("x", 2, upper=upper, labels=(np.array([1, 2]), np.array([3, 4])))
    block = lp.constrain("c", x, "<=", upper, labels=np.array(["a", "b"]))
    upper[0] = 7.0
    assert lp.variable_blocks["x"].upper.tolist() == [1, 2]
    assert block.rhs.tolist() == [1, 2]
    labels = [*lp.variable_blocks["x"].labels, block.labels]
    for array in (lp.variable_blocks["x"].upper, lp.variable_blocks["x"].lower, block.rhs, *labels):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 3
