"""``flowlex claims``: check the published claims again and print a table."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from flowlex.cli.output import console, rows_table

__all__ = ["claims"]


def claims(
    names: Annotated[list[str] | None, typer.Argument(help="Claims to check; all when none is named.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check published claims (and ours) again, by our own code, and say which hold.

    Exit code 0 whatever the outcomes: a claim that fails is a finding, not an error. 2: no such claim.
    """
    from flowlex.cli.registry import load_kinds
    from flowlex.validation.claims.registry import CLAIMS

    load_kinds()
    for name in names or []:
        if name not in CLAIMS:
            raise typer.BadParameter(f"no claim is named {name!r}; one of: {', '.join(CLAIMS)}", param_hint="NAMES")
    chosen = [CLAIMS[name] for name in dict.fromkeys(names or CLAIMS)]
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
