"""``flowlex generate``: make an instance file from a seed."""

from __future__ import annotations

import gzip
import typing
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from flowlex.cli.options import parse_settings
from flowlex.cli.output import complain, console, note, rows_table, text_of, write_output

if TYPE_CHECKING:
    from flowlex.instances.base import Instance

__all__ = ["generate"]

_DIMACS = (".min", ".dimacs")


def generate(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Which generator; --list names them.")] = "",
    seed: Annotated[int, typer.Option(min=0, help="Same name, seed and parameters: same bytes.")] = 0,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A parameter; repeat for more.")
    ] = None,
    output: Annotated[
        str,
        typer.Option("-o", "--output", metavar="FILE", help=".json, .json.gz, .min, .min.gz; '-': standard output."),
    ] = "",
    listing: Annotated[bool, typer.Option("--list", help="List the generators with their parameters.")] = False,
) -> None:
    """Make an instance file from a seed."""
    from flowlex.cli.registry import load_generators
    from flowlex.instances.base import InstanceError
    from flowlex.instances.generators import registry

    load_generators()
    if listing:
        _print_list()
        return
    if not name:
        raise typer.BadParameter("which generator? `flowlex generate --list` names them", param_hint="NAME")
    if not output:
        raise typer.BadParameter("where to? -o FILE, or -o - for standard output", param_hint="-o")
    try:
        instance = registry.generate(name, seed=seed, **parse_settings(settings))
    except InstanceError:
        raise
    except (ValueError, OverflowError, MemoryError, ZeroDivisionError) as error:
        complain(f"{name}: these parameters make no instance: {error or type(error).__name__}")
        raise typer.Exit(2) from error
    write_output(output, _encoded(instance, output))
    if output != "-":
        sizes = list(instance.summary().items())[:4]
        note(f"{output}: {instance.kind}: {', '.join(f'{what} {text_of(size)}' for what, size in sizes)}")


def _encoded(instance: Instance, output: str) -> bytes:
    from flowlex.instances.base import InstanceError
    from flowlex.instances.dimacs import format_dimacs
    from flowlex.instances.network import NetworkInstance

    if output.removesuffix(".gz").endswith(_DIMACS):
        if not isinstance(instance, NetworkInstance):
            raise InstanceError(
                f"a DIMACS file holds networks, this is kind {instance.kind!r}; use .json or .json.gz", path=output
            )
        data = format_dimacs(instance).encode()
    else:
        data = (instance.model_dump_json(indent=1) + "\n").encode()
    return gzip.compress(data, mtime=0) if output.endswith(".gz") else data


def _print_list() -> None:
    from flowlex.instances.generators.registry import GENERATORS

    rows = [
        (name, spec.title, "\n".join(_described(spec.types[key], p) for key, p in spec.parameters.items()))
        for name, spec in sorted(GENERATORS.items())
    ]
    if not rows:
        note("There are no generators in this installation.")
        return
    console().print(rows_table("Generators", ("name", "makes", "parameters (--set KEY=VALUE)"), rows))


def _described(annotation: Any, parameter: Any) -> str:
    if typing.get_origin(annotation) is typing.Annotated:
        annotation = typing.get_args(annotation)[0]
    choices = typing.get_args(annotation) if typing.get_origin(annotation) is Literal else ()
    kind = " | ".join(map(str, choices)) or getattr(annotation, "__name__", str(annotation))
    if parameter.default is parameter.empty:
        return f"{parameter.name} ({kind}, needed)"
    return f"{parameter.name}={parameter.default} ({kind})"
