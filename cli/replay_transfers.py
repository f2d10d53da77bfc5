"""``flowlex replay`` of a log of transfers: a network, jobs that arrive, and what `JitScheduler` plans for them."""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterable
from typing import Any

import typer

from flowlex.cli.output import console, facts_table, note
from flowlex.cli.report_steps import print_steps
from flowlex.instances.base import Part

__all__ = ["replay_transfers"]

#: Options of the command that a log of transfers knows.
_KNOWN = ("log", "settings", "write_log", "force")


def replay_transfers(context: typer.Context, events: Iterable[Part], settings: dict[str, Any]) -> None:
    """Replay, and print totals, latencies and refused events."""
    from flowlex.models.jit.replay import replay_jit_events
    from flowlex.models.jit.scheduler import JitScheduler

    for name in context.params:
        source = context.get_parameter_source(name)
        if name not in _KNOWN and source is not None and source.name == "COMMANDLINE":
            raise typer.BadParameter("is an option of flow scheduling; a log of transfers knows --set", param_hint=name)
    known = [p.name for p in inspect.signature(JitScheduler).parameters.values() if p.kind is p.KEYWORD_ONLY]
    known = [name for name in (*known, "time_limit_s") if name not in ("slot_s", "unit_mb")]
    if odd := [name for name in settings if name not in known]:
        raise typer.BadParameter(f"{odd[0]!r} is none of {', '.join(known)}", param_hint="--set")
    started = time.perf_counter()
    report = replay_jit_events(events, **{name: _value(text) for name, text in settings.items()})
    facts = report.summary() | {"seconds in all": round(time.perf_counter() - started, 3)}
    console().print(facts_table(f"Replay of {context.params['log']} (just in time)", facts))
    print_steps(report.histogram(), report.refused)
    if report.late:
        worst = max(report.late, key=lambda name: report.late[name])
        note(f"latest against its due slot: {worst}, {report.late[worst]} slots")


def _value(text: Any) -> Any:
    """Numbers and truth values as what they are; other text as it stands."""
    if text in ("true", "false"):
        return text == "true"
    try:
        return float(text)
    except (TypeError, ValueError):
        return text
