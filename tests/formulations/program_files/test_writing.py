"""What is written reads back as the same program, by our reader and by HiGHS."""

import gzip
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import highspy
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from flowlex.formulations.engines.highs import solve_arrays
from flowlex.formulations.flow_network import FlowNetwork
from flowlex.formulations.highs_adapter import program_of_highs, to_highs
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.program_arrays import LinearProgramArrays
from flowlex.formulations.program_files import (
    NamedProgram,
    ProgramFileError,
    parse_program,
    program_bytes,
    read_program,
    write_program,
)
from flowlex.formulations.program_files.read_and_write import Format
from flowlex.formulations.pulp_adapter import program_of_pulp, to_pulp
from flowlex.formulations.solver_outcome import SolveOptions
from flowlex.instances.generators.registry import generate
from flowlex.models.registry import model_for

INF = math.inf
FORMATS: tuple[Format, ...] = get_args(Format)
VECTORS = ("row_lower", "row_upper", "column_lower", "column_upper", "cost", "integrality")
#: Public model files: the folder check/instances of a checkout of HiGHS.
INSTANCES = Path(os.environ.get("FLOWLEX_HIGHS_INSTANCES", "check/instances"))


def assert_same(found: NamedProgram, wanted: NamedProgram, *, order: bool = True) -> None:
    """Two programs have the same numbers and names; ``order``: of the columns, too."""
    assert (found.name, list(found.row_names)) == (wanted.name, list(wanted.row_names))
    assert (found.arrays.maximize, found.arrays.offset) == (wanted.arrays.maximize, wanted.arrays.offset)
    place = {name: column for column, name in enumerate(found.column_names)}
    columns = [place[name] for name in wanted.column_names]
    assert not order or columns == list(range(len(columns)))
    for field in VECTORS:
        mine, theirs = getattr(found.arrays, field), getattr(wanted.arrays, field)
        np.testing.assert_array_equal(mine if field.startswith("row") else mine[columns], theirs, err_msg=field)
    assert found.arrays.matrix.shape == wanted.arrays.matrix.shape
    assert (found.arrays.matrix.tocsc()[:, columns] != wanted.arrays.matrix).nnz == 0


def program(
    matrix: Any,
    low: Any,
    high: Any,
    lower: Any = 0.0,
    upper: Any = INF,
    cost: Any = 1.0,
    offset: float = 0.0,
    **more: Any,
) -> NamedProgram:
    """A program from dense data."""
    dense = np.atleast_2d(np.array(matrix, float))
    rows, columns = dense.shape
    fill = lambda value, count: np.broadcast_to(np.asarray(value, float), count).copy()  # noqa: E731
    arrays = LinearProgramArrays(
        sp.csc_array(dense),
        fill(low, rows),
        fill(high, rows),
        fill(lower, columns),
        fill(upper, columns),
        fill(cost, columns),
        offset,
        np.array(more.get("integer", [False] * columns)),
        more.get("maximize", False),
    )
    names = more.get("columns") or [f"x{column}" for column in range(columns)]
    return NamedProgram(arrays, names, more.get("rows") or [f"c{row}" for row in range(rows)], more.get("name", "p"))


def read_by_highs(data: bytes, kind: Format, folder: Path) -> highspy.Highs:
    path = folder / f"x.{kind}"
    path.write_bytes(data)
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    assert solver.readModel(str(path)) != highspy.HighsStatus.kError, data.decode()
    return solver


def optimum(solver: highspy.Highs) -> tuple[str, float]:
    solver.run()
    status = solver.modelStatusToString(solver.getModelStatus())
    return status, solver.getObjectiveValue() if status == "Optimal" else 0.0


def of_highs(named: NamedProgram) -> highspy.Highs:
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.passModel(to_highs(named.arrays, named.name, named.column_names, named.row_names))
    return solver


@pytest.mark.parametrize("kind", FORMATS)
def test_sense_and_constant_are_kept(kind: Format, tmp_path: Path) -> None:
    named = program([[1, 1]], -INF, 4, upper=3, cost=[2, 1], offset=100, maximize=True)
    solver = read_by_highs(program_bytes(named, kind), kind, tmp_path)
    assert optimum(solver) == ("Optimal", 107)
    assert_same(parse_program(program_bytes(named, kind), kind), named)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(
    ("lower", "upper"),
    [(0, INF), (-INF, INF), (-INF, -2), (-3, 4), (0, 0), (5, 5), (0, 4), (2, INF), (-INF, 0), (0, 1), (3, 2), (0, -2)],
)
@pytest.mark.parametrize("integer", [False, True])
def test_bounds_are_kept(kind: Format, lower: float, upper: float, integer: bool, tmp_path: Path) -> None:
    named = program([[1, 1]], -9, 9, [lower, 0], [upper, INF], integer=[integer, False])
    data = program_bytes(named, kind)
    assert_same(parse_program(data, kind), named)
    read = read_by_highs(data, kind, tmp_path).getLp()
    assert (list(read.col_lower_), list(read.col_upper_)) == ([lower, 0], [upper, INF])


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(
    ("low", "high"),
    [(1, 1), (-INF, 3), (2, INF), (1, 4), (-INF, INF), (0.1, 0.3), (-1e16, 1.1), (-2.7, math.pi), (4, 1)],
)
def test_sides_of_rows_are_kept(kind: Format, low: float, high: float, tmp_path: Path) -> None:
    named = program([[1, 2], [3, 0]], [low, 1], [high, INF])
    data = program_bytes(named, kind)
    assert_same(parse_program(data, kind), named)
    assert optimum(read_by_highs(data, kind, tmp_path)) == optimum(of_highs(named))


@pytest.mark.parametrize("kind", FORMATS)
def test_empty_rows_and_lonely_columns_are_kept(kind: Format, tmp_path: Path) -> None:
    named = program([[0, 0, 0], [0, 1, 0]], [-1, 1], [2, INF], cost=[0, 1, 0], upper=[1, 2, 3])
    assert_same(parse_program(program_bytes(named, kind), kind), named)
    assert optimum(read_by_highs(program_bytes(named, kind), kind, tmp_path)) == ("Optimal", 1)


ODD = [
    *("x 1", "x[1]", "x(1)", "x,1", "a,b;c", "", " ", "$x", "*x", "#x", "!x", "1x", ".5", "e1", "E", "inf", "infx"),
    *("nano", "x" * 300, "x" * 300 + "y", "st", "End", "free", "BOUNDS", "RHS", "ENDATA", "max", "x:y", "x\ny", "x\\y"),
    *("плата", "節点", "عقدة", "🙂", "é", "\u00a0", "\u2003x", "(x", "x)", "x+y", "x-1", "x_1", "x_1_2", "'MARKER'"),
    *("OBJSENSE", "Generals", "subject", "to", "-", "--x", "c", "obj", "objective", 'flowlex column x is "y"', ";x"),
    *("x;", "x=1", '"', "\x00"),
]  # fmt: skip


@pytest.mark.parametrize("kind", FORMATS)
def test_names_of_all_kinds_are_kept(kind: Format, tmp_path: Path) -> None:
    count = len(ODD)
    named = program(
        np.eye(count),
        np.arange(count) + 1,
        INF,
        columns=ODD,
        rows=list(reversed(ODD)),
        name="any [name] 🙂",
        offset=0.5,
    )
    data = program_bytes(replace(named, objective_name="x 1"), kind)
    found = parse_program(data, kind)
    assert_same(found, named)
    assert found.objective_name == "x 1" if kind == "lp" else found.objective_name.startswith("x 1")
    solver = read_by_highs(data, kind, tmp_path)
    assert (solver.getNumCol(), solver.getNumRow()) == (count, count)
    assert optimum(solver) == ("Optimal", count * (count + 1) / 2 + 0.5)
    written = list(solver.getLp().col_names_)
    assert len(set(written)) == count
    assert max(map(len, written)) <= 210


def test_equal_names_are_refused() -> None:
    with pytest.raises(ValueError, match="two columns are named 'a'"):
        program([[1, 1]], 0, 1, columns=["a", "a"])
    with pytest.raises(ValueError, match="expected 1 row names, got 2"):
        program([[1, 1]], 0, 1, rows=["a", "b"])


@pytest.mark.parametrize("kind", FORMATS)
def test_what_no_file_can_state_is_refused(kind: Format, tmp_path: Path) -> None:
    path = tmp_path / f"x.{kind}"
    for wrong, message in (
        (program([[math.nan, 1]], 0, 1), "row 'c0': the coefficient of 'x0' is nan"),
        (program([[1, 1]], INF, INF), "row 'c0': no number lies between inf and inf"),
        (program([[1, 1]], 0, 1, lower=[0, INF]), "column 'x1': no number lies between"),
        (program([[1, 1]], 0, 1, cost=[INF, 1]), "the cost of 'x0' is inf"),
        (program([[1, 1]], 0, 1, offset=math.nan), "the constant of the objective is nan"),
    ):
        with pytest.raises(ProgramFileError, match=message):
            write_program(wrong, path)
        assert list(tmp_path.iterdir()) == []
    with pytest.raises(ProgramFileError, match="expected a name that ends in"):
        write_program(program([[1, 1]], 0, 1), tmp_path / "x.txt")


def test_packed_files_hold_the_same_text(tmp_path: Path) -> None:
    named = program([[1, 2]], 1, 4)
    write_program(named, tmp_path / "a.mps.gz")
    assert gzip.decompress((tmp_path / "a.mps.gz").read_bytes()) == program_bytes(named, "mps")
    assert_same(read_program(tmp_path / "a.mps.gz"), named)


numbers = st.one_of(st.integers(-9, 9).map(float), st.floats(-1e12, 1e12), st.sampled_from([1e-10, -1e-300, 0.1, 1e15]))
sides = st.one_of(numbers, st.just(INF))


@st.composite
def programs(draw: st.DrawFn) -> NamedProgram:
    rows, columns = draw(st.integers(0, 4)), draw(st.integers(1, 4))
    vector = lambda values, count: np.array(draw(st.lists(values, min_size=count, max_size=count)), float)  # noqa: E731
    dense = vector(st.one_of(st.just(0.0), numbers), rows * columns).reshape(rows, columns)
    low, high = -vector(sides, rows), vector(sides, rows)
    equal = np.array(draw(st.lists(st.booleans(), min_size=rows, max_size=rows)), bool) & np.isfinite(low)
    names = st.text(st.characters(codec="utf-8"), max_size=8)
    return program(
        dense if rows else np.zeros((0, columns)),
        low,
        np.where(equal, low, high),
        -vector(sides, columns),
        vector(sides, columns),
        vector(numbers, columns),
        draw(numbers),
        integer=draw(st.lists(st.booleans(), min_size=columns, max_size=columns)),
        maximize=draw(st.booleans()),
        columns=draw(st.lists(names, min_size=columns, max_size=columns, unique=True)),
        rows=draw(st.lists(names, min_size=rows, max_size=rows, unique=True)) or None,
        name=draw(names),
    )


@given(programs())
@settings(max_examples=40, deadline=None)
def test_random_programs_read_back_exactly(named: NamedProgram) -> None:
    for kind in FORMATS:
        assert_same(parse_program(program_bytes(named, kind), kind), named)


@given(programs())
@settings(max_examples=25, deadline=None)
def test_random_programs_pass_through_pulp_and_highs(named: NamedProgram) -> None:
    arrays = named.arrays
    columns, rows = ([f"{name}{k}" for k, name in enumerate(names)] for names in (named.column_names, named.row_names))
    named = replace(named, column_names=columns, row_names=rows)
    assert_same(program_of_highs(to_highs(arrays, named.name, columns, rows)), named)
    stated = np.isfinite(arrays.row_lower) ^ np.isfinite(arrays.row_upper) | (arrays.row_lower == arrays.row_upper)
    single = replace(
        named,
        arrays=replace(
            arrays,
            matrix=arrays.matrix.tocsr()[stated].tocsc(),
            row_lower=arrays.row_lower[stated],
            row_upper=arrays.row_upper[stated],
        ),
        row_names=[f"c{row}" for row in np.flatnonzero(stated)],
        column_names=[f"x{column}" for column in range(len(arrays.cost))],
        name="p",
    )
    problem, _ = to_pulp(single.arrays, "p", single.column_names, single.row_names)
    assert_same(program_of_pulp(problem), single, order=False)


@pytest.mark.parametrize(
    "name",
    [
        "flow-random",
        "gpu-figure4",
        "gpu-random",
        "inference-cluster",
        "jit-figure4",
        "kubeflow-testbed",
        "network-random",
    ],
)
def test_models_of_every_family_read_back(name: str, tmp_path: Path) -> None:
    formulation = model_for(generate(name, seed=1)).formulation
    stated = formulation.to_linear_program() if isinstance(formulation, FlowNetwork) else formulation
    assert isinstance(stated, LinearProgram)
    named = stated.named()
    for kind in FORMATS:
        data = program_bytes(named, kind)
        assert_same(parse_program(data, kind), named)
        read = program_of_highs(read_by_highs(data, kind, tmp_path))
        names = {"column_names": read.column_names, "row_names": read.row_names, "name": read.name}
        assert_same(read, replace(named, **names))


#: Files that HiGHS misreads in silence: a constant in a row, columns named like sections.
MISREAD = {"1451.lp", "silly-names.mps"}
MODELS = sorted(path.name for path in INSTANCES.glob("*") if path.suffix in (".mps", ".lp"))


@pytest.mark.skipif(not MODELS, reason="FLOWLEX_HIGHS_INSTANCES names no folder check/instances of HiGHS")
@pytest.mark.parametrize("name", MODELS)
def test_instances_of_highs_are_read_as_highs_reads_them(name: str, tmp_path: Path) -> None:
    try:
        named = read_program(INSTANCES / name)
    except ProgramFileError as error:
        assert error.path is not None and error.reason
        pytest.skip(f"refused: {error.reason}")
    kind: Format = "mps" if name.endswith(".mps") else "lp"
    given = read_by_highs((INSTANCES / name).read_bytes(), kind, tmp_path)
    given.setOptionValue("small_matrix_value", 1e-12)
    for each in FORMATS:
        assert_same(parse_program(program_bytes(named, each), each), named)
    if name in MISREAD or named.arrays.matrix.nnz > 20_000:
        return
    theirs = program_of_highs(given)
    stated = np.isfinite(named.arrays.row_lower) | np.isfinite(named.arrays.row_upper)
    tiny = np.abs(named.arrays.matrix.data).min(initial=1) <= 1e-9  # HiGHS drops these
    assert list(theirs.column_names) == list(named.column_names)
    for field in VECTORS:
        mine = getattr(named.arrays, field)
        mine = mine[stated] if field.startswith("row") else mine
        np.testing.assert_array_equal(getattr(theirs.arrays, field), mine, err_msg=field)
    assert tiny or (theirs.arrays.matrix != named.arrays.matrix.tocsr()[stated].tocsc()).nnz == 0
    wanted = solve_arrays(theirs.arrays, SolveOptions(time_limit_s=5))
    if wanted.status == "optimal" and not named.arrays.is_mip:
        assert solve_arrays(named.arrays, SolveOptions()).objective == pytest.approx(wanted.objective, rel=1e-6)
