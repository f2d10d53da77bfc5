"""Progress bars and lines while something is solved, on terminals only."""

from __future__ import annotations

import os
from typing import Any

from rich import progress
from rich.console import Console
from rich.text import Text

#: Seconds before progress is shown.
_PATIENCE_S = 2.0


class _Line(progress.ProgressColumn):
    """Progress of one solve: stage, incumbent and time; empty at first."""

    def render(self, task: progress.Task) -> Text:
        elapsed = task.elapsed or 0.0
        if elapsed < _PATIENCE_S:
            return Text("")
        said = f": {task.fields['said']}" if task.fields["said"] else ""
        return Text(f"{task.description}{said}  {elapsed:.0f} s", overflow="ellipsis", no_wrap=True)


def progress_bar(verb: str, *, single: bool, console: Console | None = None) -> progress.Progress:
    """Return a bar for several instances (``bad``: failures), or a line for one (``said``: see `so_far`)."""
    console = console or Console(stderr=True)
    visible = console.is_terminal and os.environ.get("TERM") != "dumb"
    columns = (
        (_Line(),)
        if single
        else (
            progress.TextColumn(verb),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeElapsedColumn(),
            progress.TimeRemainingColumn(),
            progress.TextColumn("{task.fields[bad]}", style="red"),
        )
    )
    return progress.Progress(*columns, console=console, redirect_stdout=False, transient=single, disable=not visible)


def so_far(event: dict[str, Any]) -> str:
    """Return the progress message of a worker's event.

    Examples
    --------
    >>> so_far({"event": "stage", "stage": "compiling"})
    'compiling'
    >>> so_far({"event": "answer", "record": {"objective": 12, "bound": 9, "gap": 0.25}})
    'best 12, bound 9, gap 25 %'
    """
    if event["event"] == "stage":
        return str(event["stage"])
    if event["event"] == "compiling":
        return "compiling loops, once for this machine" if event["on"] else "solving"
    record = event["record"]
    named = {"best": record["objective"], "bound": record["bound"]}
    words = [f"{name} {value:.6g}" for name, value in named.items() if value is not None]
    if record["gap"] is not None:
        words.append(f"gap {record['gap']:.2g}" if record["gap"] > 10 else f"gap {100 * record['gap']:.3g} %")
    return ", ".join(words)
