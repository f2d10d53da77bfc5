"""``flowlex flow``: a network that changes, read as a stream of DIMACS lines; each optimum is answered at once."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from flowlex.cli.console_output import complain, note, write_output

if TYPE_CHECKING:
    from flowlex.models.dimacs_stream import LiveOptimum


#: Most bytes read of one line.
_LINE = 2000


def flow(
    log: Annotated[Path | None, typer.Argument(help="The lines; standard input without it, or with '-'.")] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Rounds of changes, each ended by 'c EOI'; without it one network.")
    ] = False,
    assignments: Annotated[
        bool, typer.Option("--assignments", help="Answer 'm TASK PLACE' lines by the types of nodes, not the flow.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder for round-000001.sol and so on (DIMACS solutions).")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print the objective of each round only.")] = False,
) -> None:
    """Solve a network again and again while DIMACS lines (p, n, a, x, d, r) change it.

    Each optimum is proven in exact integers and answered as Flowlessly does: 'f TAIL HEAD FLOW' for each arc with flow,
    's COST', 'c ALGORITHM TIME' (microseconds), 'c EOI'. A round without a flow is answered by 'c INFEASIBLE', and the
    stream goes on; the exit code is then 1.
    """
    if assignments and quiet:
        raise typer.BadParameter("leave out one of --assignments and --quiet", param_hint="--quiet")
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
    if log is None or str(log) == "-":
        infeasible = _answer(sys.stdin.buffer, "standard input", live, assignments, quiet, output)
    else:
        with log.open("rb") as stream:
            infeasible = _answer(stream, str(log), live, assignments, quiet, output)
    if infeasible:
        complain(f"no flow satisfies {infeasible} of the rounds; they are answered by 'c INFEASIBLE'")
        raise typer.Exit(1)


def _answer(stream: BinaryIO, name: str, live: bool, assignments: bool, quiet: bool, output: Path | None) -> int:
    """Answer round after round; return the number of infeasible rounds."""
    from flowlex.instances.dimacs_live import rounds
    from flowlex.instances.instance_base import InstanceError
    from flowlex.models.dimacs_stream import LiveFlow

    network, infeasible, done = LiveFlow(), 0, 0
    try:
        for each in rounds(iter(partial(stream.readline, _LINE), b"")):
            if done and not live:
                raise InstanceError("a second round; say --live for a network that changes", place=f"line {each.line}")
            optimum = network.solve(each)
            done, infeasible = done + 1, infeasible + bool(optimum.reason)
            sys.stdout.write(_lines(optimum, network.assignments(optimum) if assignments else None, quiet))
            sys.stdout.flush()
            if output is not None:
                place = output / f"round-{optimum.round:06}.sol"
                write_output(str(place), _solution(optimum).encode())
    except InstanceError as error:
        raise error.at(name) from error
    if output is not None:
        note(f"{done} solutions in {output}")
    return infeasible


def _lines(optimum: LiveOptimum, assigned: list[tuple[int, int]] | None, quiet: bool) -> str:
    lines = [f"c ROUND {optimum.round}"]
    if optimum.reason:
        lines.append(f"c INFEASIBLE {optimum.reason}")
    elif assigned is not None:
        lines += [f"m {task} {place}" for task, place in assigned]
    else:
        lines += [] if quiet else [f"f {tail} {head} {units}" for tail, head, units in optimum.flows]
        lines.append(f"s {optimum.objective}")
    return "\n".join([*lines, f"c ALGORITHM TIME {round(1e6 * optimum.seconds)}", "c EOI", ""])


def _solution(optimum: LiveOptimum) -> str:
    if optimum.reason:
        return f"c round {optimum.round}: {optimum.reason}\n"
    flows = [f"f {tail} {head} {units}" for tail, head, units in optimum.flows]
    comment = f"c round {optimum.round}: minimum cost, proven in exact integers"
    return "\n".join([comment, f"s {optimum.objective}", *flows, ""])
