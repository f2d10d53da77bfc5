"""``flowlex export``: the mathematics of an instance as an MPS or LP file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from flowlex.cli.console_output import note, refuse_existing, write_output
from flowlex.cli.options import ForceOption, InstanceFile, settings_of, with_options
from flowlex.instances.input_errors import counted

if TYPE_CHECKING:
    from flowlex.formulations.program_files import NamedProgram
    from flowlex.models.model_base import Model


Format = Literal["mps", "lp"]


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
    from flowlex.formulations.program_files import program_bytes
    from flowlex.instances.files import read_instance
    from flowlex.models.registry import model_for

    to = to or _format_of(output)
    refuse_existing(force, output)
    model = model_for(read_instance(file), **values)
    for path, program in _programs(model, output, force):
        data = program_bytes(program, to)
        write_output(path, data)
        if path != "-":
            columns, rows = len(program.column_names), len(program.row_names)
            note(f"{path}: {program.name}, {counted(columns, 'column')}, {counted(rows, 'row')}")
        if to == "mps" and program.arrays.maximize:
            note("it is a maximisation (OBJSENSE); CBC and GLPK do not read OBJSENSE: use --to lp, or give them -max")
        if changed := data.count(b" flowlex column ") + data.count(b" flowlex row "):
            many = counted(changed, "name holds", "names hold")
            note(f"{many} characters that {to} files cannot; comments in the file keep them")


def _programs(model: Model[Any, Any], output: str, force: bool) -> Iterator[tuple[str, NamedProgram]]:
    """The programs to write, by file: one for each objective, with rows for those before it."""
    from flowlex.formulations.flow_network import FlowNetwork
    from flowlex.formulations.language.program_conversion import program_of
    from flowlex.models.problem_model import ProblemModel

    of_user = isinstance(model, ProblemModel)
    stages = [objective.name for objective in model.problem.objectives] if of_user or model.as_stated else []
    if not stages and not of_user:
        formulation = model.formulation
        program = formulation.to_linear_program() if isinstance(formulation, FlowNetwork) else formulation
        yield output, program.named()
        return
    if len(stages) < 2:
        yield output, program_of(model.problem, 0 if stages else None)
        return
    paths = _paths(stages, output, force)
    solution = _optimum(model, stages, output)
    for path, name in zip(paths, stages, strict=True):
        of_stage = model.problem.stage(name, solution) if of_user else model.stage_problem(name, solution.stages)
        yield path, program_of(of_stage)


def _paths(stages: list[str], output: str, force: bool) -> list[str]:
    """A file for each objective."""
    if output == "-":
        said = f"the model has {len(stages)} objectives in order, a file each; give the name of a file"
        raise typer.BadParameter(said, param_hint="-o")
    stem, ending = re.fullmatch(r"(.*?)((?:\.mps|\.lp)?(?:\.gz)?)", output, re.IGNORECASE | re.DOTALL).groups()  # type: ignore[union-attr]
    names = [re.sub(r"[^\w.,-]+", "_", name) for name in stages]
    paths = [f"{stem}-{number}-{name}{ending}" for number, name in enumerate(names, 1)]
    refuse_existing(force, *paths)
    return paths


def _optimum(model: Model[Any, Any], stages: list[str], output: str) -> Any:
    """The solution: the optimum of each objective is a row of the later programs."""
    from flowlex.formulations.solver_outcome import EngineError, Status

    solution = model.solve("highs", certify=False)
    if solution.status is not Status.OPTIMAL:
        said = f"{output}: the model has {len(stages)} objectives in order, and a program of a later one needs "
        raise EngineError(f"{said}the optima of those before it: solving ended {solution.status} ({solution.message})")
    return solution


def _format_of(output: str) -> Format:
    suffix = output.lower().removesuffix(".gz").rpartition(".")[2]
    if suffix not in ("mps", "lp"):
        raise typer.BadParameter(f"{output!r} does not end in .mps or .lp; give --to mps or --to lp", param_hint="-o")
    return cast("Format", suffix)
