"""``flowlex generate``: make an instance file from a seed."""

from __future__ import annotations

import typing
from typing import Annotated, Any, Literal

import typer

from flowlex.cli.completion import generators_starting, settings_starting
from flowlex.cli.console_output import complain, console, refuse_existing, rows_table, write_instance_output
from flowlex.cli.options import ForceOption, parse_settings


def generate(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="Which generator; --list names them.", autocompletion=generators_starting),
    ] = "",
    files: Annotated[
        list[str] | None, typer.Argument(metavar="[FILE]...", help="What the generator needs to read, in its order.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Same name, seed and parameters: same bytes.")] = 0,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="A parameter; repeat for more.", autocompletion=settings_starting
        ),
    ] = None,
    output: Annotated[
        str,
        typer.Option("-o", "--output", metavar="FILE", help=".json, .json.gz, .min, .min.gz; '-': standard output."),
    ] = "",
    force: ForceOption = False,
    listing: Annotated[bool, typer.Option("--list", help="List the generators with their parameters.")] = False,
) -> None:
    """Make an instance file from a seed."""
    from flowlex.instances.generators import registry
    from flowlex.instances.instance_base import InstanceError

    if listing:
        _print_list()
        return
    if not name:
        raise typer.BadParameter("which generator? `flowlex generate --list` names them", param_hint="NAME")
    if not output:
        raise typer.BadParameter("where to? -o FILE, or -o - for standard output", param_hint="-o")
    refuse_existing(force, output)
    chosen = parse_settings(settings)
    if "seed" in chosen:
        raise typer.BadParameter("the seed has an option of its own: --seed N", param_hint="--set")
    try:
        given = {"seed": seed, **_needed(name, files or []), **chosen}
        instance = registry.generate(name, **given)
    except InstanceError:
        raise
    except (ValueError, OverflowError, MemoryError, ZeroDivisionError) as error:
        complain(f"{name}: these parameters make no instance: {error or type(error).__name__}")
        raise typer.Exit(2) from error
    write_instance_output(instance, output)


def _needed(name: str, files: list[str]) -> dict[str, str]:
    """The files by the parameters that have no default."""
    from flowlex.instances.generators.registry import find

    spec = find(name)
    needed = [] if spec is None else [key for key, p in spec.parameters.items() if p.default is p.empty]
    if spec is not None and len(files) > len(needed):
        wanted = " ".join(needed) or "no file"
        raise typer.BadParameter(f"{name} reads {wanted}; {files[len(needed)]!r} is too much", param_hint="FILE")
    return dict(zip(needed, files, strict=False))


def _print_list() -> None:
    from flowlex.instances.generators.registry import all_generators

    rows = [
        (name, spec.title, "\n".join(_described(spec.types[key], p) for key, p in spec.parameters.items()))
        for name, spec in all_generators().items()
    ]
    console().print(rows_table("Generators", ("name", "makes", "parameters (--set KEY=VALUE)"), rows))


def _described(annotation: Any, parameter: Any) -> str:
    if typing.get_origin(annotation) is typing.Annotated:
        annotation = typing.get_args(annotation)[0]
    choices = typing.get_args(annotation) if typing.get_origin(annotation) is Literal else ()
    kind = " | ".join(map(str, choices)) or getattr(annotation, "__name__", str(annotation))
    if parameter.default is parameter.empty:
        return f"{parameter.name} ({kind}, needed)"
    return f"{parameter.name}={parameter.default} ({kind})"
