"""``flowlex explain``: why a task of a saved flow scheduler waits, and what would place it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flowlex.cli.console_output import console, facts_table


def explain(
    state: Annotated[Path, typer.Argument(help="Saved state of a live flow scheduler.", show_default=False)],
    task: Annotated[str, typer.Argument(help="Name of the task that waits.", show_default=False)],
    goals: Annotated[
        str | None,
        typer.Option("--goals", help="Cost model that the state was saved with; found if left out."),
    ] = None,
) -> None:
    """Say which rule, share or more important task keeps a task out, what would have to change, and its price."""
    from flowlex.models.flow.goals import preset
    from flowlex.systems.scheduler.live.snapshot import load_scheduler

    why = load_scheduler(state, None if goals is None else preset(goals), certify=False).explain(task)
    nobody = "no single one"
    facts = {
        "kept out by": why.rule,
        "reason": why.reason,
        "what would change it": why.remedy,
    }
    if why.unpriced:
        facts["price"] = f"none: {why.unpriced}"
    else:
        facts |= {
            "cheapest machine": "none" if why.machine is None else f"{why.machine} (rack {why.rack})",
            "its waiting must cost more by": "no cost within the limit is enough"
            if why.price is None
            else f"{why.price:g}",
            "for it would stop": ", ".join(why.stops) or "nobody",
            "for it would move": ", ".join(why.moves) or "nobody",
            "runs when this ends": nobody if why.blocker is None else why.blocker,
        }
    if why.cost is not None:
        facts["or explicit cost there"] = f"{why.cost:g}"
    console().print(facts_table(f"Why {why.task} of {why.job} waits", facts))
