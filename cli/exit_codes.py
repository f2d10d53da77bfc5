"""Verdicts of the commands that verify files, and their exit codes."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flowlex.cli.console_output import complain, console, printable
from flowlex.cli.options import positive

if TYPE_CHECKING:
    from flowlex.validation.unimodularity.proof_checks import Judged


UNREADABLE = "unreadable"
#: Exit code by verdict on a file.
EXIT_CODES = {"proven": 0, "quoted": 3, "refused": 1, UNREADABLE: 2}

SearchLimit = Annotated[
    float,
    typer.Option("--time-limit", metavar="S", callback=positive, help="Processor seconds before the search gives up."),
]
SearchSeed = Annotated[int, typer.Option("--seed", min=0, help="Of the random orders.")]
AcceptQuoted = Annotated[
    bool, typer.Option("--accept-quoted", help="Exit code 0, not 3, where claims are only quoted.")
]


def exit_code(verdicts: Collection[str], accept_quoted: bool) -> int:
    """Return the exit code of all files: 1 if any is refused, else 2 if any is unreadable, else 3 if any is quoted."""
    worst = next((verdict for verdict in ("refused", UNREADABLE, "quoted") if verdict in verdicts), "proven")
    return 0 if worst == "quoted" and accept_quoted else EXIT_CODES[worst]


def report_judgement(stored: Path, about: str, found: Iterable[Judged], *, as_json: bool, accept_quoted: bool) -> int:
    """Print the verdict on a stored proof, by statement with ``--json``; return the exit code."""
    claims = [{"name": one.statement, "verdict": str(one.standing), "detail": one.detail} for one in found]
    standing = {claim["verdict"] for claim in claims}
    verdict = next((each for each in ("refused", "quoted") if each in standing), "proven")
    code = exit_code([verdict], accept_quoted)
    said = [f"{claim['name']}: {claim['detail']}" for claim in claims if claim["verdict"] == verdict]
    if as_json:
        typer.echo(json.dumps({"proof": str(stored), "verdict": verdict, "claims": claims, "exit_code": code}))
    elif verdict == "refused":
        complain(f"{stored}: refused: {said[0]}")
    else:
        rest = f"; quoted, not proven: {', '.join(said)}" if verdict == "quoted" else ""
        console().print(printable(f"{stored}: the {about}{rest}"), markup=False, soft_wrap=True)
    return code
