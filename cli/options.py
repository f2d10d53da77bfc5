"""Options that several commands share."""

from __future__ import annotations

import json
import math
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["Engine", "EngineOption", "GapOption", "InstanceFile", "PolicyOption", "SettingsOption", "TimeLimitOption"]


class Engine(StrEnum):
    """Ways to solve: the same answer at different speed."""

    PULP = "pulp"
    HIGHS = "highs"
    NETWORK = "network"


def _positive(value: float | None) -> float | None:
    if value is not None and not (value > 0 and math.isfinite(value)):
        raise typer.BadParameter(f"{value} is not a positive, finite number of seconds")
    return value


def _gap(value: float) -> float:
    if not (value >= 0 and math.isfinite(value)):
        raise typer.BadParameter(f"{value} is not a finite number of at least 0")
    return value


InstanceFile = Annotated[Path, typer.Argument(metavar="FILE", help="Instance file (JSON or DIMACS, plain or gzip).")]
PolicyOption = Annotated[
    str | None, typer.Option("--policy", metavar="P", help="Short for `--set policy=P`, such as FSP, FS or FSU.")
]
EngineOption = Annotated[Engine, typer.Option("--engine", help="The same answer at different speed.")]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="An option by name; repeat for more (`flowlex show` lists them)."),
]
TimeLimitOption = Annotated[
    float | None,
    typer.Option("--time-limit", metavar="S", callback=_positive, help="Seconds per instance, reading included."),
]
GapOption = Annotated[
    float,
    typer.Option("--gap", metavar="G", callback=_gap, help="Relative gap at which an integer program may stop."),
]


def parse_settings(settings: list[str] | None, **named: str | None) -> dict[str, Any]:
    """Read ``key=value`` texts, and options that are short for one; a value in brackets or braces is JSON.

    Raises
    ------
    typer.BadParameter
        A text without ``=``, a key given twice, or a value that begins like JSON and is not.
    """
    values: dict[str, Any] = {}
    texts = [*(settings or ()), *(f"{key}={value}" for key, value in named.items() if value is not None)]
    for text in texts:
        key, equals, value = text.partition("=")
        key = key.strip().replace("-", "_")
        if not equals or not key:
            raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--set")
        if key in values:
            raise typer.BadParameter(f"{key!r} is given twice", param_hint="--set")
        values[key] = _value(value.strip())
    return values


def _value(text: str) -> Any:
    if not text.startswith(("{", "[")):
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not JSON ({error})", param_hint="--set") from error


def solver_options(
    engine: Engine, *, time_limit_s: float | None, gap: float, threads: int | None = None
) -> dict[str, Any]:
    """Keywords for `Model.solve`, only those that differ from the defaults (an engine refuses what it lacks)."""
    options: dict[str, Any] = {}
    if time_limit_s is not None:
        options["time_limit_s"] = time_limit_s
    if gap:
        options["gap"] = gap
    if threads is not None and engine is not Engine.NETWORK:
        options["threads"] = threads
    return options
