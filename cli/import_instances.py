"""``flowlex import``: foreign data as instance files; systems and other packages add its commands."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flowlex.cli.console_output import noted, refuse_existing, write_instance_output
from flowlex.cli.options import ForceOption, InstanceOutput

if TYPE_CHECKING:
    from flowlex.instances.instance_base import Instance

#: Types of parameters that a command line can set.
_PLAIN = (str, int, float, bool, Path, list[str])

app: typer.Typer = typer.Typer(
    name="import",
    help="Turn public traces into instance files and event logs.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)


@app.callback()
def _group() -> None:
    """Turn public traces into instance files and event logs."""


def _command(function: Callable[..., Instance]) -> Callable[..., None]:
    """Make a command of an importer, with its typed parameters and the output options."""

    def run(output: str, force: bool, **arguments: Any) -> None:
        refuse_existing(force, output)
        write_instance_output(noted(functools.partial(function, **arguments)), output)

    hints = typing.get_type_hints(function)
    kept = {}
    for name, parameter in inspect.signature(function).parameters.items():
        choices = typing.get_args(hints[name]) or (hints[name],)
        plain = Path if Path in choices else next((kind for kind in _PLAIN if kind in choices), None)
        if plain is None and parameter.default is parameter.empty:
            raise TypeError(f"parameter {name!r} of importer {function.__qualname__} is none that can be typed in")
        if plain is not None:
            annotation: Any = plain | None if type(None) in choices else plain
            if name == "jobs":  # in other commands, jobs are processes
                annotation = Annotated[annotation, typer.Option("--most-jobs")]
            kept[name] = parameter.replace(annotation=annotation)
    where = inspect.Parameter("output", inspect.Parameter.KEYWORD_ONLY, annotation=InstanceOutput)
    force = inspect.Parameter("force", inspect.Parameter.KEYWORD_ONLY, annotation=ForceOption, default=False)
    signature = inspect.Signature([*kept.values(), where, force])
    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__annotations__ = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    run.__doc__ = (function.__doc__ or "").strip().partition("\n\n")[0]
    return run


def _add_commands() -> None:
    from flowlex.instances.importers import importers
    from flowlex.instances.registered_systems import load, registered

    commands = registered("IMPORT_COMMANDS")
    for name, place in commands.items():
        app.command(name)(load(place))
    for name, function in importers().items():
        if name not in commands:
            app.command(name)(_command(function))


_add_commands()
