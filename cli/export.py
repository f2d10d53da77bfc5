"""``flowlex export``: the mathematics of an instance as an MPS or LP file."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from flowlex.cli.console_output import note, refuse_existing, write_output
from flowlex.cli.options import ForceOption, InstanceFile, settings_of, with_options
from flowlex.instances.input_errors import counted

if TYPE_CHECKING:
    from flowlex.formulations.linear_program import LinearProgram


Format = Literal["mps", "lp"]
#: Characters that a format cannot hold in names (found by reading back every character; a test repeats it).
_ILLEGAL: dict[Format, re.Pattern[str]] = {
    "mps": re.compile(r"[\s\x00-\x1f\x7f]"),
    "lp": re.compile(r"[^\w!\"#$%&(),.?@~{}]", re.ASCII),
}


@with_options(values=settings_of)
def export(
    file: InstanceFile,
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="FILE", help=".mps or .lp, also .gz; '-': standard output.")
    ],
    to: Annotated[Format | None, typer.Option("--to", help="Format; by the file's ending if not given.")] = None,
    force: ForceOption = False,
    *,
    values: dict[str, Any],
) -> None:
    """Write the linear or integer program of an instance, for any solver."""
    from flowlex.formulations.flow_network import FlowNetwork
    from flowlex.instances.files import read_instance
    from flowlex.models.registry import model_for

    to = to or _format_of(output)
    refuse_existing(force, output)
    model = model_for(read_instance(file), **values)
    formulation = model.statement.stage_program() if model.as_stated else model.formulation
    program = formulation.to_linear_program() if isinstance(formulation, FlowNetwork) else formulation
    data, changed = program_bytes(program, to)
    write_output(output, data)
    if output != "-":
        sizes = f"{counted(program.column_count, 'column')}, {counted(program.row_count, 'row')}"
        note(f"{output}: {program.name}, {sizes}")
    if to == "mps" and program.maximizing:
        note("it is a maximisation (OBJSENSE); CBC and GLPK do not read OBJSENSE: use --to lp, or give them -max")
    if changed:
        many = counted(changed, "name holds", "names hold")
        note(f"{many} characters that {to} files cannot; '[' became '(', others '_'")


def _format_of(output: str) -> Format:
    suffix = output.lower().removesuffix(".gz").rpartition(".")[2]
    if suffix not in ("mps", "lp"):
        raise typer.BadParameter(f"{output!r} does not end in .mps or .lp; give --to mps or --to lp", param_hint="-o")
    return cast("Format", suffix)


def program_bytes(program: LinearProgram, to: Format) -> tuple[bytes, int]:
    """Return the file's content, and the number of names changed for the format."""
    import highspy

    from flowlex.formulations.solver_outcome import EngineError

    model = program.to_highs()
    columns, rows = program.column_names(), program.row_names()
    model.col_names_, model.row_names_ = legal_names(columns, to), legal_names(rows, to)
    model.model_name_ = "_".join(program.name.split())
    changed = sum(a != b for a, b in zip(columns + rows, [*model.col_names_, *model.row_names_], strict=True))
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    if solver.passModel(model) == highspy.HighsStatus.kError:
        raise EngineError("HiGHS refuses the model; check it for coefficients beyond 1e15")
    with tempfile.TemporaryDirectory(prefix="flowlex-") as folder:
        path = Path(folder, f"program.{to}")
        if solver.writeModel(str(path)) == highspy.HighsStatus.kError:
            raise EngineError(f"HiGHS cannot write this model as {to}; try the other format")
        return path.read_bytes(), changed


def legal_names(names: list[str], to: Format) -> list[str]:
    """Return distinct names that the format can hold; unchanged if possible."""
    illegal = _ILLEGAL[to]
    if to == "lp":
        names = [name.replace("[", "(").replace("]", ")") for name in names]
        names = [f"_{name}" if name[:1].isdigit() or name[:1] in (".", "") else name for name in names]
    taken: set[str] = set()
    result = []
    originals = set(names)
    for name in names:
        legal = illegal.sub("_", name) or "_"
        candidate, count = legal, 1
        while candidate in taken or (candidate != name and candidate in originals):
            count += 1
            candidate = f"{legal}_{count}"
        taken.add(candidate)
        result.append(candidate)
    return result
