import numpy as np
import pytest

from flowlex.formulations import Expression, LinearProgram, Variables


def evaluate(e: Expression, values: np.ndarray) -> list[float]:
    out = e.constant.copy()
    np.add.at(out, e.row, e.value * values[e.column])
    return out.tolist()


@pytest.fixture
def x() -> Variables:
    return LinearProgram("p").variables("x", 4)


VALUES = np.array([1.0, 10.0, 100.0, 1000.0])


def test_algebra_reads_like_numpy(x: Variables) -> None:
    weights = np.array([1.0, 2.0, 3.0, 4.0])
    assert evaluate(x, VALUES) == [1, 10, 100, 1000]
    assert evaluate(x * weights, VALUES) == [1, 20, 300, 4000]
    assert evaluate(weights * x, VALUES) == [1, 20, 300, 4000]
    assert evaluate(2 * x + 1, VALUES) == [3, 21, 201, 2001]
    assert evaluate(weights + x, VALUES) == [2, 12, 103, 1004]
    assert evaluate(weights - x, VALUES) == [0, -8, -97, -996]
    assert evaluate(5 - (x + x), VALUES) == [3, -15, -195, -1995]
    assert evaluate(-x, VALUES) == [-1, -10, -100, -1000]
    assert evaluate(-(x - weights), VALUES) == [0, -8, -97, -996]
    assert evaluate((x + 1) * weights, VALUES) == [2, 22, 303, 4004]
    assert evaluate(x - x[[3, 2, 1, 0]], VALUES) == [-999, -90, 90, 999]
    assert evaluate((x * weights + 1).sum(), VALUES) == [4325]
    assert evaluate(x.sum() - 1, VALUES) == [1110]


def test_sum_by_groups_and_leaves_empty_groups_zero(x: Variables) -> None:
    assert evaluate(x.sum_by([2, 0, 2, 0]), VALUES) == [1010, 0, 101]
    assert evaluate((x + 1).sum_by([1, 1, 1, 1], groups=3), VALUES) == [0, 1115, 0]
    assert evaluate(x.sum_by(np.array([0, 0, 1, 1], np.uint8)), VALUES) == [11, 1100]
    assert len(x[:0].sum_by([], groups=2)) == 2
    assert len(x[:0].sum_by([])) == 0


def test_indexing_picks_and_renumbers(x: Variables) -> None:
    doubled = x * 2 + np.array([0, 1, 2, 3])
    assert evaluate(doubled[[3, 0]], VALUES) == [2003, 2]
    assert evaluate(doubled[1:3], VALUES) == [21, 202]
    assert evaluate(doubled[np.array([True, False, False, True])], VALUES) == [2, 2003]
    assert evaluate(doubled[-1], VALUES) == [2003]
    assert evaluate(x[2], VALUES) == [100]
    assert evaluate(x[[1, 1]], VALUES) == [10, 10]
    with pytest.raises(IndexError, match="selected only once"):
        doubled[[1, 1]]
    with pytest.raises(IndexError):
        doubled[7]


def test_numbers_never_stretch_an_expression(x: Variables) -> None:
    """One expression plus three numbers is a mistake, not three expressions."""
    one = x.sum()
    for operate in (lambda e, n: e + n, lambda e, n: e - n, lambda e, n: n - e, lambda e, n: e * n):
        with pytest.raises(ValueError, match=r"expected one number or 1, one per expression; got shape \(3,\)"):
            operate(one, np.ones(3))
        with pytest.raises(ValueError, match="got shape"):
            operate(one, np.ones((1, 1)))
        with pytest.raises(ValueError, match="finite numbers"):
            operate(one, np.inf)


def test_misuse_is_refused(x: Variables) -> None:
    with pytest.raises(ValueError, match="cannot add 4 expressions to 1"):
        x + x.sum()
    for product in (lambda: x * x, lambda: x.sum() * x.sum()):
        with pytest.raises(TypeError, match="not linear"):
            product()
    with pytest.raises(ValueError, match="one key per expression: 4"):
        x.sum_by([0, 1])
    with pytest.raises(ValueError, match=r"keys must lie in 0\.\.1, got 0\.\.2"):
        x.sum_by([0, 1, 2, 0], groups=2)
    with pytest.raises(ValueError, match=r"got -1\.\.0"):
        x.sum_by([0, -1, 0, 0])
    with pytest.raises(ValueError, match="keys must be integers, got float64"):
        x.sum_by([0.0, 0.5, 1.0, 1.9])


def test_a_single_variable_is_repeated() -> None:
    assert evaluate(Variables(np.array([2])).repeated(3), VALUES) == [100, 100, 100]
    assert (Variables(np.array([1])).repeated(2) * np.array([2, 3]) + 1).evaluate(VALUES).tolist() == [21, 31]
    with pytest.raises(ValueError, match="only a single variable can be repeated, there are 2"):
        Variables(np.array([0, 1])).repeated(2)
