"""``flowlex integers``: which integer declarations of a model follow from the others? With a proof."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flowlex.cli.console_output import console, note, refuse_existing, write_output
from flowlex.cli.exit_codes import AcceptQuoted, SearchLimit, SearchSeed, report_judgement
from flowlex.cli.options import ForceOption

if TYPE_CHECKING:
    from flowlex.validation.unimodularity.implied_integers.integrality_proof import ImpliedIntegers
    from flowlex.validation.unimodularity.named_matrix import NamedMatrix


#: Endings of model files that can be written again without the declarations.
MODELS = (".mps", ".mps.gz", ".lp", ".lp.gz")


def integers(
    file: Annotated[Path, typer.Argument(help="A model (.mps, .lp, .gz) or an instance file.", show_default=False)],
    time_limit: SearchLimit = 60.0,
    seed: SearchSeed = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, with the proof.")] = False,
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="RELAXED.mps", help="Write the model without them.")
    ] = None,
    stored: Annotated[
        Path | None, typer.Option("--verify", metavar="PROOF.json", help="Re-check what --json printed instead.")
    ] = None,
    accept_quoted: AcceptQuoted = False,
    force: ForceOption = False,
) -> None:
    """Find the integer declarations of FILE that follow from the others, with a proof.

    For a linear objective the model without them has the same optimum, at a point where they hold all the same.
    Exit code 0; 2: bad input. With --verify, 0: all is proven; 1: refused; 3: something is only quoted.
    """
    refuse_existing(force, output)
    model = str(file).lower().endswith(MODELS)
    if output is not None and not (model and output.lower().endswith(MODELS)):
        raise typer.BadParameter("only .mps and .lp models are written, from .mps and .lp files", param_hint="-o")

    from flowlex.validation.unimodularity.implied_integers.search import implied_integers
    from flowlex.validation.unimodularity.matrix_adapters import read_matrix

    named = read_matrix(file)
    if stored is not None:
        raise typer.Exit(_verify(stored, named, as_json, accept_quoted))
    found = implied_integers(named, time_limit=time_limit, seed=seed, progress=note)
    if output is not None:
        _write(found, file, output)
    if as_json:
        typer.echo(json.dumps(found.to_document()))
    elif output != "-":
        console().print(str(found), markup=False, soft_wrap=True)


def _write(found: ImpliedIntegers, file: Path, output: str) -> None:
    from dataclasses import replace

    from flowlex.formulations.program_files import parse_program, program_bytes, program_format
    from flowlex.instances.file_storage import read_bytes

    program = parse_program(read_bytes(file), program_format(file))
    integer = program.arrays.integrality.copy()
    integer[list(found.dropped)] = False
    relaxed = replace(program, arrays=replace(program.arrays, integrality=integer))
    write_output(output, program_bytes(relaxed, program_format(output)))


def _verify(stored: Path, named: NamedMatrix, as_json: bool, accept_quoted: bool) -> int:
    from flowlex.validation.unimodularity.implied_integers.integrality_proof import ImpliedIntegers
    from flowlex.validation.unimodularity.matrix_files import read_proof

    found = read_proof(stored, ImpliedIntegers.from_json, "proof")
    about = f"proof holds ({len(found.dropped)} of {found.declared} declarations)"
    return report_judgement(stored, about, found.judge(named), as_json=as_json, accept_quoted=accept_quoted)
