"""Engines do what they declare; `check_engine` is the test suite for engines of other packages."""

from unittest.mock import patch

import numpy as np
import pytest

from flowlex.formulations import ENGINES, EngineError, FlowNetwork, LinearProgram, Outcome, SolveOptions, Status, solve
from flowlex.formulations.engines import Engine, register

CHANGED = {
    "time_limit_s": 60.0,
    "max_steps": 10**6,
    "gap": 0.5,
    "seed": 7,
    "threads": 1,
    "log": True,
    "algorithm": "simplex",
    "solver": "HiGHS",
}


def transport() -> FlowNetwork:
    """Two sources, two sinks, one arc forced: 3 units at 1, 2 at 4, 1 at 6."""
    return FlowNetwork.from_arrays(
        [0, 0, 1, 1], [2, 3, 2, 3], lower=[0, 0, 1, 0], upper=[3, 9, 9, 9], cost=[1, 6, 6, 4], supply=[3, 3, -4, -2]
    )


def formulations() -> dict[str, tuple[FlowNetwork | LinearProgram, float]]:
    def program(integer: bool) -> LinearProgram:
        lp = LinearProgram("knapsack")
        x = lp.variables("x", 2, upper=3, integer=integer)
        lp.constrain("size", (x * np.array([2, 3])).sum(), "<=", 8)
        lp.maximize((x * np.array([2, 4])).sum())
        return lp

    return {
        "flow networks": (transport(), 17),
        "linear programs": (program(False), 32 / 3),
        "integer programs": (program(True), 10),
    }


def check_engine(name: str) -> None:
    """Check that the engine solves and refuses what it declares."""
    engine = ENGINES[name]
    for kind, (formulation, best) in formulations().items():
        if kind not in engine.solves:
            with pytest.raises(EngineError, match=f"engine '{name}' solves .* only; for {kind} use"):
                solve(formulation, name)
            continue
        outcome = solve(formulation, name)
        assert (outcome.status, outcome.engine) == ("optimal", name)
        assert outcome.objective == pytest.approx(best)
        assert ("bound" in engine.gives) == (outcome.bound is not None)
        assert (kind != "integer programs" and "duals" in engine.gives) == (outcome.duals is not None)
        for option, value in CHANGED.items():
            if option in engine.options:
                assert solve(formulation, name, **{option: value}).status.has_answer
            else:
                with pytest.raises(EngineError, match=f"engine '{name}' has no option '{option}'; drop it or use"):
                    solve(formulation, name, **{option: value})
    if "exact integers" in engine.gives:
        odd = 2**53 + 1
        big = FlowNetwork.from_arrays([0], [1], lower=odd, upper=odd + 2, cost=3, supply=[odd, -odd])
        assert solve(big, name).objective == 3 * odd


@pytest.mark.parametrize("name", list(ENGINES))
def test_an_engine_does_what_it_declares(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    check_engine(name)


def test_every_option_has_a_value_to_try() -> None:
    assert CHANGED.keys() == SolveOptions.__dataclass_fields__.keys() - {"offer"}
    assert SolveOptions(**CHANGED).changed() == list(CHANGED)


@patch.dict(ENGINES)
def test_engines_of_others_are_offered_and_held_to_their_word() -> None:
    def nothing(formulation: LinearProgram, options: SolveOptions) -> Outcome:
        return Outcome(Status.TIME_LIMIT, "lazy")

    lazy = Engine("lazy", frozenset(["linear programs"]), frozenset(), frozenset(["seed"]), nothing)
    register(lazy)
    with pytest.raises(ValueError, match="an engine named 'lazy' exists already"):
        register(lazy)
    assert solve(formulations()["linear programs"][0], "lazy").status == "time_limit"
    with pytest.raises(EngineError, match=r"solves linear programs only; for flow networks use 'pulp' or 'highs' or"):
        solve(transport(), "lazy")
    with pytest.raises(AssertionError):
        check_engine("lazy")
