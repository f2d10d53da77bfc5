"""A printed row says what the arrays hold: it is read by hand and evaluated beside them."""

import re

import numpy as np
import pandas as pd
import pytest

import flowlex as fx
from flowlex.testing import random_problem
from tests.formulations.language.stated_rows import rows
from tests.seeds import seeds

_TERM = re.compile(r"([+-]?)\s*([0-9.e+-]*?)\s*([a-z]\w*(?:\[[^\]]*\])?)(?=\s|$)")


def read(text: str) -> tuple[dict[str, float], str, float]:
    """Terms, relation and side of a printed row."""
    _, _, body = text.partition(": ")
    left, relation, side = re.fullmatch(r"(.*) (<=|>=|==) (\S+)", body).groups()  # type: ignore[union-attr]
    if left == "0":
        return {}, relation, float(side)
    terms: dict[str, float] = {}
    rest = left
    while rest:
        found = _TERM.match(rest)
        assert found, rest
        sign, number, name = found.groups()
        assert name not in terms
        terms[name] = (-1 if sign == "-" else 1) * float(number or 1)
        rest = rest[found.end() :].strip()
    return terms, relation, float(side)


@pytest.mark.parametrize("seed", seeds(12, 30))
def test_printed_rows_of_random_problems_equal_the_arrays(seed: int) -> None:
    p = random_problem(np.random.default_rng(seed))
    for name in p.rows:
        terms, relation, side = rows(p, name)[()]
        printed = read(p.row(name))
        assert printed == ({k: float(v) for k, v in terms.items()}, relation, float(side))


def test_printed_numbers_are_not_rounded() -> None:
    p = fx.Problem("digits")
    x = p.variables("x", i=["a", "b", "c"])
    numbers = pd.Series([1 / 3, 1234567.25, 1e-10], pd.Index(["a", "b", "c"], name="i"))
    p.constrain("r", (x * numbers).sum() <= 9007199254740993 / 3)
    terms, _, side = read(p.row("r"))
    assert terms == {"x[a]": 1 / 3, "x[b]": 1234567.25, "x[c]": 1e-10}
    assert side == 9007199254740993 / 3
