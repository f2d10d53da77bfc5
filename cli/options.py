"""Options that several commands share."""

from __future__ import annotations

import contextlib
import inspect
import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from flowlex.cli.completion import settings_starting


def positive(value: float | None) -> float | None:
    """Refuse seconds that are not positive and finite."""
    if value is not None and not (value > 0 and math.isfinite(value)):
        raise typer.BadParameter(f"{value} is not a positive, finite number of seconds")
    return value


def _gap(value: float) -> float:
    if not (value >= 0 and math.isfinite(value)):
        raise typer.BadParameter(f"{value} is not a finite number of at least 0")
    return value


InstanceFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="Instance or model file (JSON, MPS, LP, DIMACS; plain or gzip).")
]
PolicyOption = Annotated[
    str | None, typer.Option("--policy", metavar="P", help="Short for `--set policy=P`, such as FSP, FS or FSU.")
]
Engine = Literal["auto", "pulp", "highs", "network"]
EngineOption = Annotated[
    Engine, typer.Option("--engine", help="Same answers, different speed; auto: network if it is one, else highs.")
]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="An option by name; repeat for more (`flowlex options KIND` lists them).",
        autocompletion=settings_starting,
    ),
]
ChangesOption = Annotated[
    Path | None,
    typer.Option("--changes", metavar="FILE", help="Rules and other changes of the model (`flowlex schema changes`)."),
]
TimeLimitOption = Annotated[
    float | None,
    typer.Option("--time-limit", metavar="S", callback=positive, help="Seconds per instance, reading included."),
]
GapOption = Annotated[
    float,
    typer.Option("--gap", metavar="G", callback=_gap, help="Relative gap at which an integer program may stop."),
]

InstanceOutput = Annotated[
    str, typer.Option("-o", "--output", metavar="FILE", help=".json or .json.gz; '-': standard output.")
]
ForceOption = Annotated[bool, typer.Option("--force", help="Overwrite existing files.")]
SolverOption = Annotated[
    str | None,
    typer.Option("--solver", metavar="NAME", help="Another PuLP solver by its PuLP name, such as COIN_CMD (pulp)."),
]
ThreadsOption = Annotated[
    int | None, typer.Option("--threads", min=1, metavar="N", help="Threads of each solver; one with several jobs.")
]
SeedOption = Annotated[int | None, typer.Option("--seed", min=0, metavar="N", help="Random seed of the solver.")]
LogOption = Annotated[bool, typer.Option("--log", help="Show the solver's own log on standard error.")]
MemoryLimitOption = Annotated[
    int | None,
    typer.Option("--memory-limit", min=1, metavar="MB", help="Memory that an instance may take, in megabytes."),
]

SchedulerOption = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        metavar="ADDRESS",
        help="Work on a Dask cluster: tcp://HOST:PORT, or local:N for N workers here (instead of --jobs).",
    ),
]


def place(text: str) -> Path:
    """Read a PATH: a file or folder of this machine, or any URL that fsspec knows."""
    from flowlex.instances.file_storage import location
    from flowlex.instances.input_errors import InstanceError

    try:
        return location(text)
    except InstanceError as error:
        raise typer.BadParameter(str(error), param_hint="PATH") from error


def check_scheduler(scheduler: str | None, jobs: int, *, log: bool = False) -> None:
    """Refuse options that a cluster decides itself."""
    if scheduler is None:
        return
    if jobs != 1:
        remedy = "the cluster's workers and threads say how many instances run at once; leave out one of the two"
        raise typer.BadParameter(f"is not for --scheduler: {remedy}", param_hint="--jobs")
    if log:
        raise typer.BadParameter("is not for --scheduler: solvers run on other machines", param_hint="--log")


def named_texts(texts: Iterable[str] | None, form: str, option: str, *, dashes: bool = True) -> dict[str, str]:
    """Read texts of the form NAME=TEXT, each name once; without ``dashes`` names have underscores instead."""
    found: dict[str, str] = {}
    for text in texts or ():
        name, equals, value = (part.strip() for part in text.partition("="))
        name = name if dashes else name.replace("-", "_")
        if not equals or not name:
            raise typer.BadParameter(f"{text!r} is not {form}", param_hint=option)
        if name in found:
            raise typer.BadParameter(f"{name!r} is given twice", param_hint=option)
        found[name] = value
    return found


def parse_settings(settings: list[str] | None, *, changes: Path | None = None, **named: str | None) -> dict[str, Any]:
    """Parse ``key=value`` texts and their shorthand options; a value in brackets or braces is JSON.

    A file of changes becomes the setting ``changes``, which is recorded with a result.
    """
    texts = [*(settings or ()), *(f"{key}={value}" for key, value in named.items() if value is not None)]
    given = named_texts(texts, "KEY=VALUE", "--set", dashes=False)
    values: dict[str, Any] = {key: _value(value) for key, value in given.items()}
    if "changes" in values:
        raise typer.BadParameter("changes come from a file: --changes FILE", param_hint="--set")
    if changes is not None:
        from flowlex.instances.model_changes import read_changes

        values["changes"] = read_changes(changes).plain()
    return values


def _value(text: str) -> Any:
    if not text.startswith(("{", "[")):
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not JSON ({error})", param_hint="--set") from error


def typed(context: typer.Context, name: str) -> bool:
    """Return whether the user gave an option."""
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def with_options(**shared: Callable[..., Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of other functions; the command receives each function's result as a keyword.

    A context manager is entered while the command runs.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True).parameters
        added = {name: inspect.signature(make, eval_str=True).parameters for name, make in shared.items()}
        parameters = {name: each for name, each in own.items() if name not in shared}
        parameters |= {name: each for options in added.values() for name, each in options.items()}
        ordered = sorted(parameters.values(), key=lambda each: each.default is not each.empty)

        def run(**given: Any) -> None:
            with contextlib.ExitStack() as stack:
                for name, make in shared.items():
                    made = make(**{key: given.pop(key) for key in added[name]})
                    given[name] = stack.enter_context(made) if hasattr(made, "__enter__") else made
                command(**given)

        run.__signature__ = inspect.Signature(ordered)  # type: ignore[attr-defined]
        run.__annotations__ = {name: each.annotation for name, each in parameters.items()}
        run.__doc__, run.__name__ = command.__doc__, command.__name__
        return run

    return decorate


def settings_of(
    policy: PolicyOption = None, settings: SettingsOption = None, changes: ChangesOption = None
) -> dict[str, Any]:
    """The options of a model."""
    return parse_settings(settings, policy=policy, changes=changes)
