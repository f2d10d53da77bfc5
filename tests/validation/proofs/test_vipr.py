"""VIPR files, judged by the rules of the specification: every line follows, and the last one proves the claim."""

from fractions import Fraction
from math import ceil, floor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import flowlex as fx
from flowlex.cli.app import app
from flowlex.validation.proofs.vipr import ViprError, vipr_files


class Refused(Exception):
    """A line that does not follow."""


def verified(text: str) -> str:
    """The relation that a file proves, judged by the specification 1.0: lin, rnd, uns and asm, and domination."""
    words = iter(" ".join(line for line in text.splitlines() if not line.startswith("%")).split())
    take = lambda: next(words)  # noqa: E731

    def expect(word):
        if take() != word:
            raise Refused(word)

    expect("VER"), take(), expect("VAR")
    n = int(take())
    [take() for _ in range(n)]
    expect("INT")
    integer = {int(take()) for _ in range(int(take()))}
    expect("OBJ")
    sense = take()
    cost = {int(take()): Fraction(take()) for _ in range(int(take()))}
    expect("CON")
    count, bounds = int(take()), int(take())
    lines: list[tuple[str, Fraction, dict, frozenset]] = []

    def constraint():
        take()
        kind, side, first = take(), Fraction(take()), take()
        return kind, side, dict(cost) if first == "OBJ" else {int(take()): Fraction(take()) for _ in range(int(first))}

    for k in range(count):
        lines.append((*constraint(), frozenset()))
        if k < bounds and len(lines[-1][2]) != 1:
            raise Refused("bounds first")
    expect("RTP")
    kind = take()
    low, high = ("", "") if kind == "infeas" else (take(), take())
    expect("SOL")
    for _ in range(int(take())):
        take()
        x = {int(take()): Fraction(take()) for _ in range(int(take()))}
        for side_kind, side, terms, _a in lines:
            value = sum(v * x.get(c, 0) for c, v in terms.items())
            if not {"L": value <= side, "G": value >= side, "E": value == side}[side_kind]:
                raise Refused("answer")
        if any(Fraction(v).denominator != 1 for c, v in x.items() if c in integer):
            raise Refused("integers")
        value = sum(v * x.get(c, 0) for c, v in cost.items())
        if value > Fraction(high) if sense == "min" else value < Fraction(low):
            raise Refused("value")
    expect("DER")

    def dominates(one, other):
        kind, side, terms = one[:3]
        terms = {c: v for c, v in terms.items() if v}
        if not terms and ((kind in "GE" and side > 0) or (kind in "LE" and side < 0)):
            return True
        if terms != {c: v for c, v in other[2].items() if v}:
            return False
        if other[0] == "G":
            return kind in "GE" and side >= other[1]
        return kind in "LE" and side <= other[1]

    for _ in range(int(take())):
        stated = constraint()
        expect("{")
        reason, assumed = take(), frozenset()
        if reason == "asm":
            assumed = frozenset([len(lines)])
            found = stated
        elif reason in ("lin", "rnd"):
            sign, side, terms = 0, Fraction(0), {}
            for _ in range(int(take())):
                k, times = int(take()), Fraction(take())
                one = lines[k]
                mine = {"G": 1, "E": 0, "L": -1}[one[0]] * (1 if times > 0 else -1)
                if sign * mine < 0:
                    raise Refused("signs")
                sign, side, assumed = sign or mine, side + times * one[1], assumed | one[3]
                for c, v in one[2].items():
                    terms[c] = terms.get(c, 0) + times * v
            terms = {c: v for c, v in terms.items() if v}
            if reason == "rnd":
                if any(c not in integer or v.denominator != 1 for c, v in terms.items()) or not sign:
                    raise Refused("rounding")
                side = Fraction(ceil(side) if sign > 0 else floor(side))
            found = ("EGL"[sign], side, terms)
        else:
            expect_uns = [int(take()) for _ in range(4)]
            i, a, j, b = expect_uns
            (ka, sa, ta, _x), (kb, sb, tb, _y) = lines[a], lines[b]
            whole = all(c in integer and v.denominator == 1 for c, v in ta.items()) and sa.denominator == 1
            if reason != "uns" or (ka, kb) != ("L", "G") or ta != tb or sb != sa + 1 or not whole:
                raise Refused("split")
            if not dominates(lines[i], stated) or not dominates(lines[j], stated):
                raise Refused("split does not dominate")
            assumed, found = (lines[i][3] - {a}) | (lines[j][3] - {b}), stated
        expect("}"), take()
        if not dominates(found, stated):
            raise Refused(f"line {len(lines)}")
        lines.append((*stated, assumed))
    kind_, side, terms, assumed = lines[-1]
    if assumed:
        raise Refused("assumptions are left")
    if kind == "infeas":
        if terms or not (kind_ == "G" and side > 0):
            raise Refused("no absurdity")
        return "infeas"
    wanted = ("G", Fraction(low), cost) if sense == "min" else ("L", Fraction(high), cost)
    if not dominates((kind_, side, terms), wanted):
        raise Refused("the claim")
    return f"{low} {high}"


def files(solution) -> dict[str, str]:
    return vipr_files(solution.program, solution.exact if solution.status.has_answer else None, solution.found)


def test_a_smallest_bound_by_hand() -> None:
    """min x, 2 x >= 3, x integer: 1/2 of the row is x >= 3/2, which rounds to 2."""
    p = fx.Problem("p")
    x = p.variables("x", upper=9, integer=True)
    p.constrain("row", 2 * x >= 3)
    p.minimize("cost", 1 * x)
    text = files(p.solve())["cost"]
    assert "C2 G 3 1 0 2" in text and "rnd" in text and "RTP range 2 2" in text
    assert verified(text) == "2 2"
    with pytest.raises(Refused):
        verified(text.replace("RTP range 2 2", "RTP range 5/2 2"))
    with pytest.raises(Refused):
        verified(text.replace("C2 G 3 1 0 2", "C2 G 3 1 0 3"))


def test_what_is_infeasible_ends_in_an_absurdity() -> None:
    p = fx.Problem("p")
    x = p.variables("x", i=["a", "b"], integer=True, upper=5)
    p.constrain("even", 2 * x.sum() == 3)
    assert verified(files(p.solve())[""]) == "infeas"


def test_missing_bounds_are_derived_from_rows_and_a_maximum_is_bounded_from_above() -> None:
    p = fx.Problem("p")
    x = p.variables("x", i=["a", "b", "c"], lower=None, integer=True)
    p.constrain("sum", x.sum() <= 7)
    p.constrain("two", x.sel(i="a") + 2 * x.sel(i="b") <= 5)
    p.constrain("one", x.sel(i="c") - x.sel(i="b") <= 1)
    p.constrain("low", x >= -3)
    p.maximize("gain", 3 * x.sel(i="a") + 5 * x.sel(i="b") + x.sel(i="c") / 2 + 4)
    s = p.solve()
    low, high = verified(files(s)["gain"]).split()
    assert Fraction(low) == Fraction(high) == Fraction(str(s.objective)) - 4


@pytest.mark.parametrize("seed", range(12))
def test_random_programs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    p = fx.Problem("p")
    x = p.variables("x", i=range(5), upper=4, integer=True)
    y = p.variables("y", j=range(2), upper=6)
    rows = pd.RangeIndex(3, name="r")
    a = pd.Series(rng.integers(-3, 8, 15), index=pd.MultiIndex.from_product([rows, range(5)], names=["r", "i"]))
    b = pd.Series(rng.integers(-2, 5, 6), index=pd.MultiIndex.from_product([rows, range(2)], names=["r", "j"]))
    p.constrain("rows", (a * x).sum(by="r") + (b * y).sum(by="r") <= pd.Series(rng.integers(4, 20, 3), index=rows))
    p.maximize("gain", (x * pd.Series(rng.integers(1, 9, 5), index=pd.RangeIndex(5, name="i"))).sum() + y.sum())
    p.minimize("use", x.sum(), within=0)
    s = p.solve()
    made = files(s)
    assert list(made) == ["gain", "use"]
    for name, text in made.items():
        low, high = map(Fraction, verified(text).split())
        assert low <= high
        assert float(s.stages[name].value) == pytest.approx(float(low if name == "gain" else high))


def test_the_command_writes_a_file_for_each_objective(tmp_path: Path) -> None:
    p = fx.Problem("p")
    x = p.variables("x", i=["a", "b", "c"], binary=True)
    p.constrain("two", x.sum() <= 2)
    p.maximize("number", x.sum())
    p.minimize("first", 1 * x.sel(i="a"))
    p.write(tmp_path / "p.problem.json")
    p.solve().save(tmp_path / "p.solution.json")
    command = ["verify", str(tmp_path / "p.solution.json"), str(tmp_path / "p.problem.json")]
    found = CliRunner().invoke(app, [*command, "--write-vipr", str(tmp_path / "p.vipr")])
    assert found.exit_code == 0, found.output
    assert [verified((tmp_path / f"p.{k}.vipr").read_text()) for k in (1, 2)] == ["2 2", "0 0"]
    again = CliRunner().invoke(app, [*command, "--write-vipr", str(tmp_path / "p.vipr")])
    assert again.exit_code == 2 and "no VIPR file" in again.output


def test_without_a_proof_there_is_no_file() -> None:
    p = fx.Problem("p")
    x = p.variables("x", upper=3)
    p.maximize("x", 1 * x)
    with pytest.raises(ViprError, match="no bound is proven"):
        files(p.solve(certify=False))
