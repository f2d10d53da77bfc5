"""What the readers of model files make of the smallest inputs that solvers misread, and what they refuse."""

import gzip
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowlex.formulations.engines.highs import solve_arrays
from flowlex.formulations.program_files import NamedProgram, ProgramFileError, lp_format, parse_program, read_program
from flowlex.formulations.solver_outcome import SolveOptions

INF = math.inf


def lp(
    rows: str = "c: x + y >= 2", objective: str = "o: x + y", more: str = "", head: str = "Minimize"
) -> NamedProgram:
    return parse_program(f"{head}\n {objective}\nSubject To\n {rows}\n{more}\nEnd\n".encode(), "lp")


def mps(
    columns: str = " x o 1 c 1", rhs: str = " R c 2", more: str = "", rows: str = " N o\n G c", head: str = ""
) -> NamedProgram:
    text = f"NAME small\n{head}ROWS\n{rows}\nCOLUMNS\n{columns}\nRHS\n{rhs}\n{more}ENDATA\n"
    return parse_program(text.encode(), "mps")


def optimum(program: NamedProgram) -> float | None:
    return solve_arrays(program.arrays, SolveOptions()).objective


def sides(program: NamedProgram) -> list[tuple[float, float]]:
    return list(zip(program.arrays.row_lower.tolist(), program.arrays.row_upper.tolist(), strict=True))


def bounds(program: NamedProgram) -> dict[str, tuple[float, float]]:
    pairs = zip(program.arrays.column_lower.tolist(), program.arrays.column_upper.tolist(), strict=True)
    return dict(zip(program.column_names, pairs, strict=True))


def test_a_constant_in_a_row_of_an_lp_file_moves_to_its_side() -> None:
    assert sides(lp("c: x + 3 >= 5")) == [(2, INF)]
    assert sides(lp("c: 3 + x - 1 <= 5 ")) == [(-INF, 3)]
    assert optimum(lp("c: x + 0.5 >= 2", "x", "General\n x")) == 2  # 1.5 without the constant: 1.5 rounds up


def test_a_repeated_variable_is_summed() -> None:
    program = lp("c: x + y + x <= 9", "o: 3 x + 2 x - y")
    assert program.arrays.cost.tolist() == [5, -1]
    assert program.arrays.matrix.toarray().tolist() == [[2, 1]]


@pytest.mark.parametrize("word", ["Maximise", "MAXIMIZE", "max", "Maximum"])
def test_the_sense_is_read_in_every_spelling(word: str) -> None:
    program = lp("c: x + y <= 2", head=word)
    assert program.arrays.maximize
    assert optimum(program) == 2
    assert mps(head=f"OBJSENSE\n    {word}\n", rows=" N o\n L c").arrays.maximize
    assert not lp(head="Minimise").arrays.maximize


def test_a_byte_order_mark_and_line_ends_of_windows_change_nothing(tmp_path: Path) -> None:
    text = "Maximize\r\n o: x\r\nSubject To\r\n c: x <= 3\r\nEnd\r\n"
    path = tmp_path / "a.lp"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert optimum(read_program(path)) == 3
    (tmp_path / "a.lp.gz").write_bytes(gzip.compress(text.encode()))
    assert optimum(read_program(tmp_path / "a.lp.gz")) == 3


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("c: 1 <= x + y <= 3", (1, 3)),
        ("c: 3 >= x + y >= 1", (1, 3)),
        ("c: 3 <= x + y + 1", (2, INF)),
        ("c: -inf <= x + y <= 3", (-INF, 3)),
        ("c: x + y >= -infinity", (-INF, INF)),
        ("c: x + y >= -1e30", (-INF, INF)),
        ("c: x + y = 4", (4, 4)),
        ("c: x + y =< 4", (-INF, 4)),
        ("c: x + y > 4", (4, INF)),
        ("c: - - x + y >= + - 4", (-4, INF)),
        ("x\n + y\n >= 4", (4, INF)),
        ("c:\n3\nx + y >=\n 4", (4, INF)),
        ("c: 3x + 2*y >= 4", (4, INF)),
        ("free: x + y >= 4", (4, INF)),
        ("st: x + y >= 4", (4, INF)),
    ],
)
def test_rows_of_lp_files(row: str, expected: tuple[float, float]) -> None:
    assert sides(lp(row)) == [expected]


def test_unnamed_rows_get_free_names_and_words_of_the_format_may_be_names() -> None:
    program = lp("x >= 1\n r3: y >= 1\n x + y <= 4\n end: x <= 3\n bounds: y <= 3")
    assert list(program.row_names) == ["r1", "r3", "r3_", "end", "bounds"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x <= 4", (0, 4)),
        ("4 >= x", (0, 4)),
        ("-1 <= x <= 4", (-1, 4)),
        ("4 >= x >= -1", (-1, 4)),
        ("x >= -1\n x <= 4", (-1, 4)),
        ("x free", (-INF, INF)),
        ("x FREE", (-INF, INF)),
        ("-inf <= x <= -2", (-INF, -2)),
        ("x = 3", (3, 3)),
        ("x <= 1e20", (0, INF)),
        ("x >= -1e+30", (-INF, INF)),
        ("3 <= x <= 2", (3, 2)),  # an infeasible problem, not an error
    ],
)
def test_bounds_of_lp_files(text: str, expected: tuple[float, float]) -> None:
    assert bounds(lp(more=f"Bounds\n {text}"))["x"] == expected


def test_sections_of_integer_columns_in_lp_files() -> None:
    program = lp(more="Bounds\n y <= 1\n z <= 7\nGenerals\n x z\nBinary\n y\n")
    assert program.arrays.integrality.tolist() == [True, True, True]
    assert bounds(program) == {"x": (0, INF), "y": (0, 1), "z": (0, 7)}
    assert bounds(lp(more="Bounds\n x = 1\nBin\n x"))["x"] == (1, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("blah\nMinimize\n x\nEnd\n", "line 1: expected Minimize or Maximize first, got 'blah'"),
        ("max: 3x + 2y;\nc1: x <= 4;\n", "line 1: .*LP format of lp_solve"),
        ("Minimize\n 3 2 x\nEnd\n", "line 2: two numbers, 3 and 2; write a sign"),
        ("Minimize\n 2 (x + y)\nEnd\n", r"line 2: '\(x' is no name of a column"),
        ("Minimize\n x * y\nEnd\n", "line 2: '\\*' after 'x'"),
        ("Minimize\n [ x ^ 2 ] / 2\nSubject To\n c: x >= 1\nEnd\n", "the objective is quadratic"),
        ("Minimize\n x\nSubject To\n c: [ x ^ 2 ] <= 1\nEnd\n", r"line 4: unexpected '\['"),
        ("Minimize\n x\nSubject To\n c: y = 1 -> x >= 1\nEnd\n", "line 4: '->': indicator constraints"),
        ("Minimize\n x\nSubject To\n c: x >= y\nEnd\n", "line 4: expected a number on the right of row 'c', got 'y'"),
        ("Minimize\n x\nSubject To\n c: x >= 1 y >= 2\nEnd\n", "line 4: unexpected 'y' after row 'c'"),
        ("Minimize\n x\nSubject To\n c: x >= 1\n c: x <= 2\nEnd\n", "line 5: a second row 'c', first in line 4"),
        ("Minimize\n x\nSubject To\n c: x >= inf\nEnd\n", "line 4: row 'c' has an infinite side"),
        ("Minimize\n x\nSubject To\n c: x >= 1,5\nEnd\n", "line 4: unexpected ',5' after row 'c'"),
        ("Minimize\n x\nSubject To\n c: 1 >= 0\n x + y >= 2\nEnd\n", "line 4: row 'c' has no columns, or breaks"),
        ("Minimize\n x\nSubject To\n c: x >= 1\n", "no End line at its end|no End line; is it cut off"),
        ("Minimize\n x\nSubject To\n c: x + >= 1\nEnd\n", "line 4: expected a term after the sign, got '>='"),
        ("Minimize\n x\nBounds\n x <= -5\nEnd\n", "line 4: column 'x' has a negative upper bound and no lower one"),
        ("Minimize\n x\nBounds\n x <= 4\n x <= 5\nEnd\n", "line 5: the upper bound of 'x' is 4 above and 5 here"),
        ("Minimize\n x\nBounds\n 2 x <= 4\nEnd\n", "line 4: a factor before 'x'"),
        ("Minimize\n x\nBounds\n x >= inf\nEnd\n", "line 4: no number lies within this bound of 'x'"),
        ("Minimize\n x\nBounds\n x <= 5\nBinary\n x\nEnd\n", "line 6: 'x' is binary and has bounds beyond 0 and 1"),
        ("Minimize\n x\nSemi-continuous\n x\nEnd\n", "column 'x' is semi-continuous and has no upper bound"),
        ("Minimize\n x\nSOS\n s1: S1:: x:1\nEnd\n", "line 3: 'SOS': only linear"),
        ("Minimize\n x\nGeneral Constraints\n x = MAX ( y )\nEnd\n", "line 3: 'General Constraints': only linear"),
        ("Minimize\n x\nBonds\n x <= 5\nEnd\n", "unexpected 'Bonds'|unexpected 'x'|expected"),
        ("Minimize\n x + 1e999 y\nEnd\n", "line 2: '1e999' is no finite number"),
    ],
)
def test_what_lp_files_cannot_mean_is_refused(text: str, message: str) -> None:
    with pytest.raises(ProgramFileError, match=message):
        parse_program(text.encode(), "lp")


def test_the_right_side_of_a_second_free_row_leaves_the_objective_alone() -> None:
    program = mps(" x o 1 c 1\n x f 3", " R c 2 f 7 o -5", rows=" N o\n N f\n G c")
    assert program.arrays.offset == 5
    assert list(program.row_names) == ["f", "c"]
    assert sides(program) == [(-INF, INF), (2, INF)]
    assert optimum(program) == 7


def test_the_objective_may_be_named() -> None:
    program = mps(" x o 1 c 1\n x f 3", rows=" N o\n N f\n G c", head="OBJNAME\n    f\n")
    assert (program.objective_name, program.arrays.cost.tolist()) == ("f", [3])


def test_a_bound_set_may_be_named_like_its_column() -> None:
    assert bounds(mps(" B o 1 c 1", more="BOUNDS\n LO B B 3\n"))["B"] == (3, INF)
    assert bounds(mps(" B o 1 c 1", more="BOUNDS\n FR B B\n"))["B"] == (-INF, INF)
    assert bounds(mps(" B o 1 c 1", more="BOUNDS\n LO B 3\n"))["B"] == (3, INF)  # without a set


def test_dollars_begin_a_comment_or_a_name() -> None:
    program = mps(
        " $x o 1 c 1 $ three more words\n y c 1 $comment", more="BOUNDS\n UP BND $x 4 $ four\n$ a line\n $ another\n"
    )
    assert bounds(program) == {"$x": (0, 4), "y": (0, INF)}
    assert sides(mps(" x o 1 $c 1", " R $c 2", rows=" N o\n G $c")) == [(2, INF)]


def test_names_that_begin_with_a_star_are_no_comments() -> None:
    program = mps(" *x o 1 c 1", " *RHS* c 2")
    assert (list(program.column_names), sides(program)) == (["*x"], [(2, INF)])


def test_columns_may_be_named_like_sections() -> None:
    program = mps(" RHS o 1 c 1\n BOUNDS o 2 c 1\n OBJSENSE o 3 c 1")
    assert program.arrays.cost.tolist() == [1, 2, 3]


def test_text_behind_endata_is_no_part_of_the_file() -> None:
    text = "NAME\nROWS\n N o\n G c\nCOLUMNS\n x o 1 c 1\nRHS\n R c 2\nENDATA\nwritten by hand\n"
    assert optimum(parse_program(text.encode(), "mps")) == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", (0, INF)),
        (" UP B x 4\n", (0, 4)),
        (" LO B x -1\n UP B x 4\n", (-1, 4)),
        (" MI B x\n UP B x -4\n", (-INF, -4)),
        (" UP B x -4\n MI B x\n", (-INF, -4)),
        (" LO B x 6\n UP B x 5\n", (6, 5)),  # an infeasible problem, not an error
        (" FX B x 2\n", (2, 2)),
        (" FR B x\n", (-INF, INF)),
        (" UP B x 1e30\n", (0, INF)),
        (" UP B x inf\n LO B x -Infinity\n", (-INF, INF)),
        (" BV B x\n", (0, 1)),
        (" BV B x\n FX B x 1\n", (1, 1)),
        (" LI B x 2\n UI B x 7\n", (2, 7)),
        (" UP B x 1.5D+01\n", (0, 15)),
    ],
)
def test_bounds_of_mps_files(text: str, expected: tuple[float, float]) -> None:
    assert bounds(mps(more=f"BOUNDS\n{text}"))["x"] == expected


def test_integer_columns_between_markers_are_binary_unless_bounded() -> None:
    marked = " M 'MARKER' 'INTORG'\n x o 1 c 1\n y c 1\n z c 1\n M 'MARKER' 'INTEND'\n w c 1"
    program = mps(marked, more="BOUNDS\n PL B y\n LO B z 2\n")
    assert program.arrays.integrality.tolist() == [True, True, True, False]
    assert bounds(program) == {"x": (0, 1), "y": (0, INF), "z": (2, INF), "w": (0, INF)}


@pytest.mark.parametrize(
    ("kind", "width", "expected"),
    [
        ("G", 3, (2, 5)),
        ("G", -3, (2, 5)),
        ("L", 3, (-1, 2)),
        ("E", 3, (2, 5)),
        ("E", -3, (-1, 2)),
        ("G", 1e30, (2, INF)),
    ],
)
def test_ranges_of_mps_files(kind: str, width: float, expected: tuple[float, float]) -> None:
    program = mps(rows=f" N o\n {kind} c", more=f"RANGES\n RNG c {width}\n")
    assert sides(program) == [expected]


def test_fixed_files_may_have_blanks_in_names_and_sets_without_a_name() -> None:
    text = (
        "NAME          spaces\nROWS\n N  COST\n G  MY ROW\nCOLUMNS\n"
        "    X 1       COST               1.0   MY ROW             2.0   $ two\n"
        "RHS\n              MY ROW             4.0\n"
        "BOUNDS\n UP           X 1                3.0\nENDATA\n"
    )
    program = parse_program(text.encode(), "mps")
    assert (list(program.column_names), list(program.row_names)) == (["X 1"], ["MY ROW"])
    assert (sides(program), bounds(program)) == ([(4, INF)], {"X 1": (0, 3)})
    with pytest.raises(ProgramFileError, match="line 6: 'abc' is no finite number"):
        parse_program(text.replace("2.0   $", "abc   $").encode(), "mps")


MPS = "NAME small\nROWS\n N o\n G c\nCOLUMNS\n x o 1 c 1\nRHS\n R c 2\nBOUNDS\n UP B x 4\nENDATA\n"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "NAME small",
            "NAME small\nOBJSENSE\n    BIGGEST",
            "line 3: expected MIN or MAX after OBJSENSE, got 'BIGGEST'",
        ),
        ("NAME small", "NAME small\nOBJSENSE MAX\nOBJSENSE MIN", "line 3: a second section OBJSENSE"),
        ("NAME small", "NAME small\nOBJNAME\n    f", "OBJNAME asks for 'f'"),
        ("BOUNDS", "BONDS", "line 9: unknown section 'BONDS'"),
        ("BOUNDS", "SOS1", "line 9: .*the model has a special ordered set"),
        ("BOUNDS", "QUADOBJ\n x x 2\nBOUNDS", "the objective is quadratic"),
        ("BOUNDS", "QCMATRIX c\n x x 2\nBOUNDS", "line 9: .*the model has a quadratic constraint"),
        ("UP B x 4", "BV B x\n SC B x 4", "line 11: column 'x' is integer and SC"),
        ("UP B x 4", "UP B x 4\n UP B x 5", "line 11: the upper bound of 'x' is 4 above and 5 here"),
        ("UP B x 4", "UP B x 4\n LO C x 1", "line 11: two sets in BOUNDS, 'B' and 'C'"),
        ("UP B x 4", "UP B x -4", "line 10: column 'x' has the upper bound -4 and no lower one"),
        ("UP B x 4", "UP B y 4", "line 10: no column is named 'y'"),
        ("UP B x 4", "UP B x 4,5", "line 10: '4,5' is no finite number"),
        ("UP B x 4", "UP B x nan", "line 10: 'nan' is no finite number"),
        ("UP B x 4", "UP B x", "line 10: "),
        ("UP B x 4", "XX B x 4", "line 10: unknown kind of bound 'XX'"),
        ("UP B x 4", "LO B x inf", "line 10: no number lies within the bound"),
        ("R c 2", "R d 2", "line 8: no row is named 'd'"),
        ("R c 2", "R c 2\n R c 3", "line 9: a second number of row 'c' in RHS"),
        ("R c 2", "R c 2\n S o 3", "line 9: two sets in RHS, 'R' and 'S'"),
        ("R c 2", "R c 1e30", "row 'c' has the infinite side"),
        ("R c 2", "R c 1_000", "line 8: '1_000' is no finite number"),
        ("x o 1 c 1", "x o 1 c 1\n x c 1", "line 7: column 'x' has two entries in row 'c'"),
        ("x o 1 c 1", "x o 1 c 1\n y c 1\n x o 1", "line 8: the entries of column 'x' do not stand together"),
        ("x o 1 c 1", "x o 1 d 1", "line 6: no row is named 'd'"),
        ("x o 1 c 1", "x o 1 c", "line 6: expected a column, then rows with a number each"),
        (" G c", " G c\n G c", "line 5: a second row 'c'"),
        (" G c", " H c", "line 4: expected a kind of row"),
        ("ENDATA\n", "", "no ENDATA line at its end"),
        ("COLUMNS\n x", "COLUMNS\nx", "line 6: unknown section 'x'"),
    ],
)
def test_what_mps_files_cannot_mean_is_refused(old: str, new: str, message: str) -> None:
    assert old in MPS
    with pytest.raises(ProgramFileError, match=message):
        parse_program(MPS.replace(old, new).encode(), "mps")


def test_maximisations_that_pulp_wrote_need_their_sense() -> None:
    text = "*SENSE:Maximize\n" + MPS  # of PuLP 3: maximise x; of PuLP 4: minimise x
    with pytest.raises(ProgramFileError, match="PuLP wrote this maximisation with its sense in a comment only"):
        parse_program(text.encode(), "mps")
    assert parse_program(("OBJSENSE\n MAX\n" + MPS).encode(), "mps").arrays.maximize


def test_what_is_beyond_linear_is_read_only_when_asked_for() -> None:
    text = MPS.replace("BOUNDS", "QUADOBJ\n x x 2\nBOUNDS").encode()
    assert parse_program(text, "mps", beyond=True).beyond == "the objective is quadratic"


def test_errors_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.lp"
    path.write_text("Minimize\n 3 2 x\nEnd\n")
    with pytest.raises(ProgramFileError, match=r"a\.lp: line 2: two numbers") as caught:
        read_program(path)
    assert (caught.value.path, caught.value.place) == (str(path), "line 2")
    for name, content, message in (
        ("a.txt", b"", "ends in .mps, .lp"),
        ("b.lp", b"", "the file is empty"),
        ("c.lp", b"Minimize\0", "zero bytes"),
        ("d.mps", b"NAME\nROWS\n N \xe9\n", "line 3: not UTF-8 text"),
        ("e.lp.gz", gzip.compress(b"Minimize\n x\nEnd\n")[:12], "truncated gzip"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ProgramFileError, match=message):
            read_program(tmp_path / name)


_PIECES = ("x", "y", "inf", "free", "e5", "3", "2.5e1", "1e999", "+", "-", "*", "<=", ">=", "=", ":", "c1:", "[", "]",
           " ", "\n", "\n", "\t", "\\ note\n", "Bounds\n", "^")  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(_PIECES), max_size=24), st.lists(st.sampled_from(_PIECES), max_size=24))
def test_lines_taken_whole_mean_what_their_parts_mean(objective: list[str], rows: list[str]) -> None:
    text = f"Minimize\n{' '.join(objective)}\nSubject To\n{' '.join(rows)}\nEnd\n"

    def read() -> tuple[object, ...]:
        try:
            p = parse_program(text.encode(), "lp")
        except ProgramFileError as error:
            return (error.place,)
        a = p.arrays
        return (
            p.column_names, p.row_names, a.matrix.toarray().tolist(), a.cost.tolist(), a.offset, sides(p), bounds(p),
        )  # fmt: skip

    whole = read()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lp_format._Reader, "_take_plain", lambda *_: False)
        assert read() == whole


@pytest.mark.parametrize(("low", "high", "best"), [(2, 5, 2), (-4, -1, 0), (-2, 5, 1), (0, 5, 1)])
def test_semi_continuous_columns_are_zero_or_within_their_bounds(low: float, high: float, best: float) -> None:
    """The least |x - 1| by hand: of 0 and 2..5 both are 1 away (2 is cheaper), of -4..-1 it is 0."""
    text = (
        "Minimize\n 2 d - 0.1 x\nSubject To\n a: d - x >= -1\n b: d + x >= 1\nBounds\n"
        f" {low} <= x <= {high}\nSemi-continuous\n x\nEnd\n"
    )
    program = parse_program(text.encode(), "lp")
    assert program.column_names[2:] == ["x_on"] and program.row_names[2:] == ["x_least", "x_most"]
    values = solve_arrays(program.arrays, SolveOptions()).values
    assert values is not None and values[1] == pytest.approx(best)
