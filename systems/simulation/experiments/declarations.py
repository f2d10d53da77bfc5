"""Reader of the experiments' declarations: ``experiments.toml`` and ``statements.csv`` of this folder."""

from __future__ import annotations

import csv
import math
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.resources import files
from typing import Any

from flowlex.systems.simulation.experiments.statements_and_verdicts import Experiment, Picture, Rule, Statement, Table

_TEXTS = ("over", "minus", "says", "theirs", "unit", "tolerance", "source", "quote", "cause")
_HERE = "flowlex.systems.simulation.experiments"


@cache
def declared() -> tuple[Experiment, ...]:
    """All experiments, in the order of the file."""
    document = tomllib.loads(files(_HERE).joinpath("experiments.toml").read_text("utf-8"))
    rows = list(csv.DictReader(files(_HERE).joinpath("statements.csv").read_text("utf-8").splitlines()))
    unknown = {row["experiment"] for row in rows} - {name for paper in document.values() for name in paper}
    if unknown:
        raise ValueError(f"statements.csv names the experiment {min(unknown)!r}, which experiments.toml has not")
    return tuple(
        _experiment(paper, name, about, [row for row in rows if row["experiment"] == name])
        for paper, members in document.items()
        for name, about in members.items()
    )


def _experiment(paper: str, name: str, about: dict[str, Any], rows: list[dict[str, str]]) -> Experiment:
    lists = {key: tuple(about.pop(key, ())) for key in ("also", "joint", "needs", "tables", "pictures")}
    return Experiment(
        name=name,
        paper=paper,
        measure=getattr(import_module(f"{_HERE}.{paper}"), about.pop("measure")),
        statements=tuple(map(_statement, rows)),
        also=lists["also"],
        joint=lists["joint"],
        needs=lists["needs"],
        tables=tuple(Table(**each) for each in lists["tables"]),
        pictures=tuple(_picture(name, k, each) for k, each in enumerate(lists["pictures"], start=1)),
        **about,
    )


def _picture(experiment: str, number: int, about: Mapping[str, Any]) -> Picture:
    return Picture(name=f"{experiment}-{number}", **about)


def _statement(row: Mapping[str, str]) -> Statement:
    values = tuple(map(float, row["value"].split()))
    texts = {key: row[key] for key in _TEXTS}
    figures = tuple(row["figure"].split())
    return Statement(figures=figures, values=values, rule=_rule(row, values), because=row["because"], **texts)


def _rule(row: Mapping[str, str], values: tuple[float, ...]) -> Rule | None:
    """Return the rule: around a printed figure, a range, or, for a trend, a correlation above 0; None if not given."""
    if len(values) > 1:
        return Rule(0.5, math.inf, neutral=0.0)
    neutral, resolution = float(row["neutral"]) if row["neutral"] else None, float(row["resolution"] or 0.0)
    if values and row["within"]:
        return Rule(
            values[0] - float(row["within"]),
            values[0] + float(row["within"]),
            neutral,
            printed=True,
            resolution=resolution,
        )
    if row["low"] or row["high"]:
        return Rule(float(row["low"] or -math.inf), float(row["high"] or math.inf), neutral, resolution=resolution)
    return None
