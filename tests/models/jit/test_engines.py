"""Engines that re-solve one program from level to level; all engines give the same answer."""

from typing import Any

import pulp
import pytest

from flowlex.formulations.sessions.fixed_matrix_program import BoundedProgram
from flowlex.formulations.solver_outcome import EngineError, EngineName, Outcome
from flowlex.instances.generators import generate
from flowlex.models.jit.model import JitBandwidth


@pytest.mark.parametrize(
    ("engine", "solver", "warm"),
    [
        ("pulp", {}, True),
        ("pulp", {"solver": "HiGHS"}, True),
        ("highs", {}, True),
        ("pulp", {"algorithm": "ipm"}, False),
        ("pulp", {"solver": "PULP_CBC_CMD"}, False),
        ("pulp", {"solver": "a CBC of the user's own"}, False),
    ],
)
def test_whatever_ends_in_highs_is_warm(
    monkeypatch: pytest.MonkeyPatch, engine: EngineName, solver: dict[str, Any], warm: bool
) -> None:
    """With HiGHS one program is re-solved from level to level; other solvers and algorithms get a program per level."""
    if "CBC" in str(solver) and "PULP_CBC_CMD" not in pulp.listSolvers(onlyAvailable=True):
        pytest.skip("PuLP has no CBC here")
    if solver.get("solver") == "a CBC of the user's own":
        solver = {"solver": pulp.PULP_CBC_CMD(msg=False)}
    whole, solves = BoundedProgram.solve, [0]

    def counted(*arguments: Any) -> Outcome:
        solves[0] += 1
        return whole(*arguments)

    monkeypatch.setattr(BoundedProgram, "solve", counted)
    cluster = generate("jit-cluster", seed=1, jobs=4, machines=4, mix="LeNet", gflops=5000.0, copies=0)
    solution = JitBandwidth(cluster, share=1.0, load="port").solve(engine, **solver)
    assert (solves[0] > 0) is warm
    assert solution.lateness == 104
    assert solution.levels == {10: 6, 9: 7, 8: 8, 7: 10, 6: 10, 5: 13, 4: 16, 3: 20, 2: 25, 1: 29}
    assert solution.certificate is not None and solution.certificate.claim == "optimal"


@pytest.mark.parametrize("name", ["NOPE", "COPT_CMD"])
def test_a_solver_that_is_not_there_is_refused_where_none_is_needed(name):
    with pytest.raises(EngineError, match=f"{name}.*available here"):
        JitBandwidth(generate("jit-figure4")).solve(solver=name)
    with pytest.raises(EngineError, match="engine 'highs' has no option 'solver'"):
        JitBandwidth(generate("jit-figure4")).solve("highs", solver=name)
