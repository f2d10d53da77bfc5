"""Solve, verify, plot and check once, in the environment that runs this script."""

from __future__ import annotations

import sys
import tempfile
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path

from typer.testing import CliRunner

from flowlex.cli.app import app

PACKAGES = ("numpy", "scipy", "pandas", "pulp", "highspy", "numba", "pydantic", "typer", "matplotlib")


def flowlex(*arguments: str, code: int = 0) -> str:
    """Run a command of flowlex in this process; another exit code ends the check."""
    done = CliRunner().invoke(app, arguments)
    if done.exit_code != code:
        said = f"exit code {done.exit_code}, expected {code}\n{done.output}{done.exception!r}"
        sys.exit(f"flowlex {' '.join(arguments)}: {said}")
    return done.stdout


def main() -> None:
    """Go through the commands, and through PuLP by hand."""
    print(f"Python {sys.version.split()[0]}:", ", ".join(f"{name} {version(name)}" for name in PACKAGES), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        names = ("a.json", "a.solution.json", "a.png", "a.mps", "a.lp", "b.mps")
        at = {name: str(Path(folder, name)) for name in names}
        flowlex("generate", "gpu-figure4", "-o", at["a.json"])
        flowlex("show", at["a.json"])
        flowlex("solve", at["a.json"], "-o", folder)
        flowlex("verify", at["a.solution.json"], at["a.json"])
        flowlex("plot", at["a.json"], "-o", at["a.png"])
        for name in ("a.mps", "a.lp"):
            flowlex("export", at["a.json"], "-o", at[name])
        flowlex("tu", at["a.mps"])
        flowlex("integers", at["a.lp"], "-o", at["b.mps"])
    import pulp

    import flowlex as package
    from flowlex.formulations.engines.pulp import solve_named
    from flowlex.formulations.pulp_adapter import program_of_pulp
    from flowlex.formulations.solver_outcome import SolveOptions
    from flowlex.testing import assert_integral, assert_optimum

    problem = pulp.LpProblem("shifts")
    days = [problem.add_variable(day, 0, 5, cat="Integer") for day in ("mon", "tue", "wed")]
    problem += pulp.lpSum(days)
    for first, second in pairwise(days):
        problem += first + second >= 3
    assert_optimum(problem, 3)
    assert_integral(problem)
    assert package.check(problem).is_tu
    named = program_of_pulp(problem)
    for solver in (None, pulp.HiGHS(msg=False)):
        outcome = solve_named(named.arrays, "p", named.column_names, named.row_names, SolveOptions(solver=solver))
        assert outcome.objective == 3, outcome
    print("solved, verified, plotted, exported and checked")


main()
