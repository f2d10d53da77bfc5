"""``flowlex plot``: solve an instance and draw the answer."""

from __future__ import annotations

import io
from typing import Annotated

import typer

from flowlex.cli.options import (
    Engine,
    EngineOption,
    ForceOption,
    GapOption,
    InstanceFile,
    PolicyOption,
    SettingsOption,
    TimeLimitOption,
    parse_settings,
    solver_options,
)
from flowlex.cli.output import complain, note, refuse_existing, write_output

__all__ = ["plot"]

_FORMATS = ("png", "svg", "pdf")


def plot(
    file: InstanceFile,
    output: Annotated[str, typer.Option("-o", "--output", metavar="FILE", help="Ends in .png, .svg or .pdf.")],
    policy: PolicyOption = None,
    engine: EngineOption = Engine.PULP,
    settings: SettingsOption = None,
    time_limit: TimeLimitOption = None,
    gap: GapOption = 0.0,
    force: ForceOption = False,
) -> None:
    """Solve an instance and draw the answer; exit code 1 when there is no answer to draw."""
    suffix = output.rpartition(".")[2].lower()
    if suffix not in _FORMATS:
        raise typer.BadParameter(f"{output!r} does not end in .png, .svg or .pdf", param_hint="-o")
    refuse_existing(output, force)
    values = parse_settings(settings, policy=policy)

    import matplotlib as mpl

    from flowlex.instances.files import read_instance
    from flowlex.models.registry import model_for

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "flowlex"  # same answer, same bytes
    model = model_for(read_instance(file), **values)
    solution = model.solve(engine.value, **solver_options(engine, time_limit_s=time_limit, gap=gap))
    if not solution.status.has_answer:
        complain(f"{file}: nothing to draw ({solution.status}). {solution.message}".rstrip())
        raise typer.Exit(1)
    try:
        axes = solution.plot()
    except NotImplementedError as error:
        complain(f"{file}: answers of kind {model.instance.kind!r} have no picture; `flowlex solve` prints a table")
        raise typer.Exit(2) from error
    figure = axes.get_figure(root=True)
    assert figure is not None  # axes are always drawn on one
    buffer = io.BytesIO()
    metadata = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[suffix]
    figure.savefig(buffer, format=suffix, bbox_inches="tight", dpi=150, metadata=metadata)
    write_output(output, buffer.getvalue())
    note(f"{output}: {solution.model}, {solution.status}, objective {solution.objective}")
