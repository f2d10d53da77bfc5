"""``flowlex schema`` and ``flowlex library``: the format of files, and the shipped files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flowlex.cli.completion import kinds_starting
from flowlex.cli.console_output import (
    console,
    printable,
    refuse_existing,
    rows_table,
    write_instance_output,
    write_output,
)
from flowlex.cli.options import ForceOption

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator


_SOLUTION = "solution"
_CHANGES = "changes"


def schema(
    kind: Annotated[
        str,
        typer.Argument(metavar="KIND", help="Kind; without it, the kinds are listed.", autocompletion=kinds_starting),
    ] = "",
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="FILE", help="Where to; '-': standard output.")
    ] = "-",
    force: ForceOption = False,
) -> None:
    """Print the JSON Schema of a kind of instance file, of solution files (KIND: solution), or of files of changes."""
    from flowlex.instances.extensions import kinds
    from flowlex.instances.files import json_schema

    refuse_existing(force, output)
    if not kind:
        typer.echo("\n".join((*kinds(), _SOLUTION, _CHANGES)))
        return
    if kind == _SOLUTION:
        from flowlex.validation.certificates import solution_schema

        document = solution_schema()
    elif kind == _CHANGES:
        from flowlex.instances.model_changes import Changes

        document = Changes.model_json_schema()
    elif kind in kinds():
        document = json_schema(kind)
    else:
        raise _unknown(kind, (*kinds(), _SOLUTION, _CHANGES))
    write_output(output, (json.dumps(document, indent=1) + "\n").encode())


#: Generator of a small instance, and its parameters, by kind.
EXAMPLES: dict[str, tuple[str, dict[str, Any]]] = {
    "allocation": ("gavel-like", {"jobs": 4, "gpus": 2}),
    "flow-scheduling": ("flow-random", {}),
    "gpu-assignment": ("gpu-figure1", {}),
    "jit-bandwidth": ("jit-figure4", {}),
    "load-partition": ("inference-cluster", {"items": 40, "block_items": 5}),
    "min-cost-flow": ("network-assignment", {"tasks": 3, "machines": 2, "choices": 2}),
    "pod-placement": ("kubeflow-testbed", {}),
}


def _shifts() -> dict[str, Any]:
    """A problem of one's own: who works when, at least cost, with nobody in two shifts in a row."""
    from flowlex.formulations.language.problem_document import to_document
    from flowlex.models.problem import Problem

    p = Problem("shifts")
    x = p.variables("x", worker=["ann", "bob"], shift=["mon", "tue", "wed"], binary=True)
    p.constrain("cover", x.sum(by="shift") >= {"mon": 1, "tue": 1, "wed": 1})
    p.constrain("rest", x + x.shift(shift=1) <= 1)
    p.minimize("wages", (x * {"ann": 10, "bob": 12}).sum())
    return to_document(p)


def example(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="Kind of file.", autocompletion=kinds_starting)],
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="FILE", help=".json or .json.gz; '-': standard output.")
    ] = "-",
    force: ForceOption = False,
) -> None:
    """Print a small instance file of a kind, to change into one of your own."""
    from flowlex.instances import generate
    from flowlex.instances.extensions import kinds
    from flowlex.instances.files import instance_from_document
    from flowlex.instances.registered_systems import load, registered

    refuse_existing(force, output)
    if kind == "problem":
        made = instance_from_document(_shifts())
    elif kind in EXAMPLES:
        name, parameters = EXAMPLES[kind]
        made = generate(name, **parameters)
    elif kind in (systems := registered("EXAMPLES")):
        made = load(systems[kind])()
    elif kind in kinds():
        raise typer.BadParameter(f"no example of {kind!r}; `flowlex schema {kind}` describes it", param_hint="KIND")
    else:
        raise _unknown(kind, kinds())
    write_instance_output(made, output)


def library(
    names_only: Annotated[bool, typer.Option("--paths", help="Print nothing but the paths.")] = False,
) -> None:
    """List the instance files that are shipped, with the paths to give to other commands."""
    from flowlex.instances.files import read_instance

    paths = list(_shipped())
    if names_only:
        for path in paths:
            typer.echo(printable(path))
        return
    read = ((path.name, read_instance(path)) for path in paths)
    rows = [(name, each.kind, each.name, each.comment.partition("\n")[0]) for name, each in read]
    console().print(rows_table("Library", ("file", "kind", "name", "comment"), rows))
    typer.echo(f"in {printable(paths[0].parent)}")


def _shipped() -> Iterator[Path]:
    from importlib import resources

    from flowlex.cli.input_files import has_instance_name

    with resources.as_file(resources.files("flowlex.instances") / "library") as folder:
        if folder.is_dir():
            yield from sorted(path for path in folder.rglob("*") if has_instance_name(path) and path.is_file())


def _unknown(kind: str, known: Collection[str]) -> typer.BadParameter:
    from flowlex.instances.input_errors import did_you_mean

    text = f"unknown kind {kind!r}; one of: {', '.join(known)}{did_you_mean(kind, known)}"
    return typer.BadParameter(text, param_hint="KIND")
