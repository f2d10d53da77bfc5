"""``flowlex options``: what ``--set`` takes for a kind of problem."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from flowlex.cli.completion import kinds_starting
from flowlex.cli.console_output import console, note, rows_table


def options(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="Kind of problem; without it, all.", autocompletion=kinds_starting)
    ] = "",
    name: Annotated[str, typer.Argument(metavar="NAME", help="One option only.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="As one JSON object: kind to its options.")] = False,
) -> None:
    """List the options of a kind of problem: what ``--set NAME=VALUE`` takes, the default, and what it means."""
    import dataclasses

    from flowlex.instances.extensions import added_names, kinds
    from flowlex.instances.input_errors import did_you_mean
    from flowlex.models.model_base import ModelError
    from flowlex.models.model_options import Option, options_of
    from flowlex.models.registry import model_class

    solved = kinds() if not kind else (kind,)
    found: dict[str, list[Option]] = {}
    for each in solved:
        try:
            found[each] = options_of(model_class(each))
        except ModelError as error:
            if kind:
                raise
            if each in added_names("flowlex.models"):
                note(str(error))
    if name:
        known = [option.name for option in found[kind]]
        if name not in known:
            hint = did_you_mean(name, known)
            raise ModelError(f"{kind} has no option {name!r}; it has: {', '.join(known) or 'none'}{hint}")
        found = {kind: [option for option in found[kind] if option.name == name]}
    if as_json:
        typer.echo(json.dumps({each: [dataclasses.asdict(option) for option in has] for each, has in found.items()}))
        return
    out = console()
    for each, has in found.items():
        rows = [(option.name, option.values, option.default, option.says) for option in has]
        out.print(rows_table(f"{each}: --set NAME=VALUE", ("name", "values", "default", "meaning"), rows))
