"""``flowlex claims``: check the published claims again and print a table."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from flowlex.cli.console_output import console, note, refuse_existing, rows_table, write_picture
from flowlex.cli.options import ForceOption


def claims(
    names: Annotated[list[str] | None, typer.Argument(help="Claims to check; all when none is named.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    picture: Annotated[
        str | None,
        typer.Option("--plot", metavar="FILE", help="Draw how often random JIT matrices are not TU, too (a minute)."),
    ] = None,
    force: ForceOption = False,
) -> None:
    """Check published claims (and ours) again, by our own code, and say which hold.

    Exit code 0 whatever the outcomes: a claim that fails is a finding, not an error. 2: no such claim.
    """
    from flowlex.validation.claims.registry import CLAIMS

    refuse_existing(force, picture)
    for name in names or []:
        if name not in CLAIMS:
            raise typer.BadParameter(f"no claim is named {name!r}; one of: {', '.join(CLAIMS)}", param_hint="NAMES")
    chosen = [CLAIMS[name] for name in dict.fromkeys(names or CLAIMS)]
    if picture is not None:
        _draw_failing_share(picture)
    findings = [(claim, claim.check()) for claim in chosen]
    if as_json:
        document = {
            claim.name: {
                "statement": claim.statement,
                "source": claim.source,
                "outcome": finding.outcome.value,
                "evidence": finding.evidence,
                "data": dict(finding.data),
            }
            for claim, finding in findings
        }
        typer.echo(json.dumps(document))
        return
    rows = [(c.name, c.statement, c.source, f.outcome.value, f.evidence) for c, f in findings]
    console().print(rows_table("Claims", ("claim", "says", "source", "outcome", "evidence"), rows))


def _draw_failing_share(picture: str) -> None:
    """Write a heat map for Lemma 3: the share of random JIT matrices that are not totally unimodular."""
    from flowlex.validation.claims.jit_lemma_3 import failing_share, plot_failing_share

    transfers, slots = (2, 4, 6, 8, 12, 16), (1, 2, 3, 4, 6)
    share = failing_share(transfers, slots)
    write_picture(picture, lambda: plot_failing_share(share, transfers, slots), "--plot")
    note(f"picture: {picture}")
