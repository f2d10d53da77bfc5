"""``flowlex tu``: is a constraint matrix totally unimodular? With a proof either way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from flowlex.cli.console_output import console, note, refuse_existing, write_output, write_picture
from flowlex.cli.exit_codes import AcceptQuoted, SearchLimit, SearchSeed, report_judgement
from flowlex.cli.options import ForceOption

if TYPE_CHECKING:
    from flowlex.validation.unimodularity.named_matrix import NamedMatrix


def tu(
    file: Annotated[Path, typer.Argument(help="A model, matrix, network or instance file.", show_default=False)],
    method: Annotated[
        Literal["auto", "network", "camion", "ghouila-houri", "sums"],
        typer.Option("--method", help="auto: all steps; or one step alone."),
    ] = "auto",
    time_limit: SearchLimit = 60.0,
    network_part: Annotated[
        bool, typer.Option("--network-part", help="Of large models, too: name the rows that keep it from a network.")
    ] = False,
    seed: SearchSeed = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    picture: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw the proof on the sparsity pattern.")
    ] = None,
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="VERDICT.json", help="Write the verdict with its proof.")
    ] = None,
    explained: Annotated[
        bool, typer.Option("--explain", help="Say which families of constraints and of variables make or break it.")
    ] = False,
    extract: Annotated[
        Path | None, typer.Option("--extract", metavar="NET.min", help="Write the minimum-cost flow that FILE is.")
    ] = None,
    stored: Annotated[
        Path | None,
        typer.Option("--verify", metavar="VERDICT.json", help="Re-check a stored proof against FILE instead."),
    ] = None,
    accept_quoted: AcceptQuoted = False,
    force: ForceOption = False,
) -> None:
    """Decide whether the constraint matrix of FILE is totally unimodular, with a proof.

    FILE: .mps or .lp (also .gz), .npz, .mtx, CMR dense or sparse text, DIMACS networks, flowlex instances.
    Exit code 0: TU; 1: not TU; 3: undecided; 2: bad input. With --verify, 0: all is proven; 1: refused;
    3: an answer or the extent of a network part is only quoted.
    """
    refuse_existing(force, output, picture, extract)

    from flowlex.validation.unimodularity.check import SMALL_NONZEROS, check
    from flowlex.validation.unimodularity.matrix_adapters import read_matrix
    from flowlex.validation.unimodularity.proof_types import Answer

    if stored is not None:
        raise typer.Exit(_verify(stored, read_matrix(file), file, as_json, accept_quoted))
    named = read_matrix(file)
    verdict = check(named, method=method, time_limit=time_limit, network_part=network_part, seed=seed, progress=note)
    if not verdict.is_tu and named.program is not None and not network_part and verdict.nonzeros > SMALL_NONZEROS:
        note(f"network part: not searched beyond {SMALL_NONZEROS} nonzeros; --network-part does")
    if output is not None:
        write_output(output, (verdict.to_json() + "\n").encode())
    if picture is not None:
        write_picture(str(picture), lambda: verdict.plot(named), "--plot")
        note(f"picture: {picture}")
    if explained:
        _explain(named, time_limit, seed, as_json)
    if extract is not None:
        _extract(named, file, extract)
    if as_json:
        if output != "-":
            document = verdict.to_document()
            typer.echo(json.dumps({key: each for key, each in document.items() if key != "fingerprint"}))
    elif output != "-":
        console().print(str(verdict), markup=False, soft_wrap=True)
    raise typer.Exit({Answer.TU: 0, Answer.NOT_TU: 1}.get(verdict.answer, 3))


def _explain(named: NamedMatrix, time_limit: float, seed: int, as_json: bool) -> None:
    """Print the explanation; with --json on standard error, so that standard output stays one object."""
    from flowlex.validation.unimodularity.matrix_adapters import constraints_of
    from flowlex.validation.unimodularity.violating_families import explain

    for by in ("rows", "columns"):
        text = f"families of {by}\n{explain(constraints_of(named), by=by, time_limit=time_limit / 2, seed=seed)}"
        if as_json:
            note(text)
        else:
            console().print(text, markup=False, soft_wrap=True)


def _extract(named: NamedMatrix, file: Path, path: Path) -> None:
    from flowlex.formulations.flow_network import UNBOUNDED
    from flowlex.instances.files import write_instance
    from flowlex.instances.instance_base import InstanceError
    from flowlex.instances.min_cost_flow import NetworkInstance
    from flowlex.validation.unimodularity.named_matrix import MatrixError
    from flowlex.validation.unimodularity.network.extraction import extract_network

    try:
        found = extract_network(named)
    except MatrixError as error:
        raise InstanceError(str(error), path=file) from error
    network = found.network
    upper = [None if bound == UNBOUNDED else bound for bound in network.upper.tolist()]
    arrays = {name: tuple(getattr(network, name).tolist()) for name in ("supply", "tail", "head", "lower", "cost")}
    instance = NetworkInstance(name="extracted", comment=str(found), upper=tuple(upper), **arrays)
    write_instance(instance, path)
    note(f"network: {path} ({found})")


def _verify(stored: Path, named: NamedMatrix, file: Path, as_json: bool, accept_quoted: bool) -> int:
    from flowlex.instances.instance_base import InstanceError
    from flowlex.validation.unimodularity.matrix_files import read_proof
    from flowlex.validation.unimodularity.verdict import OTHER_MATRIX, Verdict, judge

    verdict = read_proof(stored, Verdict.from_json, "verdict")
    found = judge(verdict, named)
    if found[0].detail.startswith(OTHER_MATRIX):
        raise InstanceError(f"{found[0].detail} ({file})", path=stored)
    about = f"verdict holds ({verdict.answer}, {verdict.method or 'no proof'})"
    return report_judgement(stored, about, found, as_json=as_json, accept_quoted=accept_quoted)
