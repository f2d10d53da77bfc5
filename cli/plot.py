"""``flowlex plot``: solve an instance and draw the answer."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from flowlex.cli.console_output import complain, note, picture_suffix, refuse_existing, write_output, write_picture
from flowlex.cli.options import (
    EngineOption,
    ForceOption,
    GapOption,
    InstanceFile,
    TimeLimitOption,
    settings_of,
    with_options,
)


@with_options(values=settings_of)
def plot(
    file: InstanceFile,
    output: Annotated[
        str,
        typer.Option(
            "-o", "--output", metavar="FILE", help="Ends in .png, .svg, .pdf, or .html: a page to zoom and search."
        ),
    ],
    engine: EngineOption = "auto",
    time_limit: TimeLimitOption = None,
    gap: GapOption = 0.0,
    force: ForceOption = False,
    *,
    values: dict[str, Any],
) -> None:
    """Solve an instance and draw the answer; exit code 1 when there is no answer to draw."""
    suffix = picture_suffix(output, "-o", "html")
    refuse_existing(force, output)

    from flowlex.instances.files import read_instance
    from flowlex.models.registry import model_for

    model = model_for(read_instance(file), **values)
    solution = model.solve(engine, time_limit_s=time_limit, gap=gap)
    if not solution.status.has_answer:
        complain(f"{file}: nothing to draw ({solution.status}). {solution.message}".rstrip())
        raise typer.Exit(1)
    try:
        if suffix == "html":
            write_output(output, solution.to_html().encode())
        else:
            write_picture(output, solution.plot, "-o")
    except NotImplementedError as error:
        complain(f"{file}: answers of kind {model.instance.kind!r} have no picture; `flowlex solve` prints a table")
        raise typer.Exit(2) from error
    note(f"{output}: {solution.model}, {solution.status}, objective {solution.objective}")
