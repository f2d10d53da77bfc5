"""What every replay ends with: a histogram of its steps, and the events that were refused."""

from __future__ import annotations

from collections.abc import Sequence

from flowlex.cli.output import console, note

__all__ = ["print_steps"]


def print_steps(histogram: Sequence[tuple[float, float, int]], refused: Sequence[tuple[int, str]]) -> None:
    """Print both."""
    most = max((count for *_, count in histogram), default=0)
    for low, high, count in histogram:
        bar = "#" * round(50 * count / most) if most else ""
        console().print(f"{low:10.2f} .. {high:10.2f} ms  {count:6d}  {bar}")
    for number, reason in refused[:10]:
        note(f"event {number} was refused: {reason}")
    if len(refused) > 10:
        note(f"... and {len(refused) - 10} more events were refused")
