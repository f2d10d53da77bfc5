import multiprocessing
import os
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from flowlex.formulations import EngineError, FlowNetwork, LinearProgram, SolveOptions, solve
from flowlex.formulations.engines import ENGINES as ENGINES_BY_NAME
from flowlex.formulations.engines import chosen_engine
from flowlex.formulations.engines import highs as highs_engine
from flowlex.formulations.engines import network as network_engine
from flowlex.formulations.solver_outcome import Outcome, Status
from flowlex.validation.certificates import certify_program

ENGINES = ("pulp", "highs", "network")


@pytest.fixture
def network() -> FlowNetwork:
    return FlowNetwork.from_arrays([0, 0], [1, 1], upper=[2, 9], cost=[1, 4], supply=[5, -5])


@pytest.fixture
def program() -> LinearProgram:
    lp = LinearProgram("p")
    x = lp.variables("x", 3, upper=4)
    lp.constrain("mix", (x * np.array([1, 2, 3])).sum(), "<=", 10)
    lp.maximize((x * np.array([1, 3, 4])).sum())
    return lp


@pytest.mark.parametrize("engine", ENGINES)
def test_an_unknown_keyword_is_named(engine: str, network: FlowNetwork) -> None:
    with pytest.raises(
        TypeError, match="unknown solver option 'timelimit'; one of: time_limit_s, max_steps, gap, seed, threads"
    ):
        solve(network, engine, timelimit=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="either options or keywords"):
        solve(network, engine, SolveOptions(), gap=0.1)  # type: ignore[arg-type]
    with pytest.raises(EngineError, match="unknown engine 'gurobi'; one of: auto, pulp, highs, network"):
        solve(network, "gurobi")


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"time_limit_s": 0}, "time_limit_s must be a positive number of seconds, got 0"),
        ({"time_limit_s": float("nan")}, "got nan"),
        ({"time_limit_s": float("inf")}, "got inf"),
        ({"gap": -1}, "gap must be a finite number of at least 0, got -1"),
        ({"gap": float("nan")}, "gap must be"),
        ({"seed": -1}, r"seed must lie in 0\.\.2147483647, got -1"),
        ({"threads": 0}, "threads must be at least 1, got 0"),
        ({"algorithm": "magic"}, "unknown algorithm 'magic'; one of auto, simplex, ipm, hipo, pdlp"),
    ],
)
def test_values_that_make_no_sense_are_refused(option: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SolveOptions(**option)


@pytest.mark.parametrize("algorithm", ["auto", "simplex", "ipm", "hipo", "pdlp"])
@pytest.mark.parametrize("engine", ["pulp", "highs"])
def test_every_algorithm_gives_the_same_certified_answer(engine: str, algorithm: str, program: LinearProgram) -> None:
    outcome = solve(program, engine, algorithm=algorithm)  # type: ignore[arg-type]
    assert outcome.status == "optimal"
    assert outcome.objective == pytest.approx(14 + 2 / 3, abs=1e-3)
    assert certify_program(program, outcome, tolerance=1e-4 if algorithm == "pdlp" else 1e-6).ok


@pytest.mark.parametrize("engine", ["pulp", "highs"])
def test_the_log_is_shown_only_when_asked_for(
    engine: str, program: LinearProgram, capfd: pytest.CaptureFixture[str]
) -> None:
    solve(program, engine)
    assert capfd.readouterr().out == ""
    solve(program, engine, log=True)
    assert "HiGHS" in capfd.readouterr().out
    assert solve(program, engine, threads=2).status == "optimal"  # another number in the same process


def test_hipo_is_refused_where_it_is_missing(program: LinearProgram, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(highs_engine, "_has_hipo", lambda: False)
    with pytest.raises(EngineError, match=r"this HiGHS has no HiPO solver; install highspy\[extras\]"):
        solve(program, "highs", algorithm="hipo")
    assert solve(program, "highs").status == "optimal"


def test_the_network_engine_stops_at_its_time_limit(network: FlowNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    assert solve(network, "network", time_limit_s=60).objective == 14
    forked: list[int] = []
    fork = os.fork
    monkeypatch.setattr(os, "fork", lambda: forked.append(fork()) or forked[-1])
    monkeypatch.setattr(network_engine, "_solve", lambda _: time.sleep(600))
    outcome = solve(network, "network", time_limit_s=1)
    assert outcome.status == "time_limit"
    assert outcome.message == "stopped after 1 s"
    assert outcome.values is None
    with pytest.raises(ProcessLookupError):
        os.kill(forked[0], 0)  # the child is gone, not left running


def test_errors_of_the_forked_solve_reach_the_caller(network: FlowNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: FlowNetwork) -> Outcome:
        raise EngineError("broken inside")

    monkeypatch.setattr(network_engine, "_solve", fail)
    with pytest.raises(EngineError, match="broken inside"):
        solve(network, "network", time_limit_s=60)
    monkeypatch.setattr(network_engine, "_solve", lambda _: os._exit(3))
    with pytest.raises(EngineError, match="ended without an answer"):
        solve(network, "network", time_limit_s=60)


def _solve_with_limit(network: FlowNetwork) -> Status:
    return solve(network, "network", time_limit_s=60).status


def test_the_time_limit_works_in_daemonic_workers(network: FlowNetwork) -> None:
    """A batch may run in a `multiprocessing.Pool`, whose workers may not start processes of their own."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.map(_solve_with_limit, [network]) == ["optimal"]


@pytest.mark.parametrize("engine", ["highs", "pulp"])
def test_linear_programs_and_networks_go_to_the_simplex_method(
    program: LinearProgram, network: FlowNetwork, engine: Any
) -> None:
    assert {solve(stated, engine).algorithm for stated in (program, network)} == {"simplex"}


def test_only_networks_are_spared_the_search_for_dependent_equations(capfd: pytest.CaptureFixture[str]) -> None:
    """HiGHS numbers its presolve rules; the one switched off must be the one that is meant."""
    cost = np.random.default_rng(0).integers(1, 50, 400)
    tail, head = np.divmod(np.arange(400), 20)
    network = FlowNetwork.from_arrays(tail, 20 + head, upper=3, cost=cost, supply=np.repeat([9, -9], 20))
    arrays = network.arrays()
    scaled = replace(arrays, matrix=arrays.matrix * 2, row_lower=arrays.row_lower * 2, row_upper=arrays.row_upper * 2)
    searched = []
    for program in (arrays, scaled):
        outcome = highs_engine.solve_arrays(program, SolveOptions(log=True))
        assert outcome.status is Status.OPTIMAL
        searched.append("Dependent equations search" in capfd.readouterr().out)
    assert searched == [False, True]


def test_auto_is_the_quickest_engine_that_can() -> None:
    """Network simplex meets a gap, a seed and a number of threads; a step limit or a log is HiGHS's."""
    for options in ({}, {"gap": 0.1}, {"seed": 3, "threads": 2}, {"time_limit_s": 60.0}):
        name, kept = chosen_engine("auto", SolveOptions(**options), network=True)
        assert name == "network" and set(kept.changed()) <= ENGINES_BY_NAME["network"].options
    assert chosen_engine("auto", SolveOptions(max_steps=9), network=True)[0] == "highs"
    assert chosen_engine("auto", SolveOptions(gap=0.1), network=False) == ("highs", SolveOptions(gap=0.1))
    assert chosen_engine("auto", SolveOptions(solver="HiGHS"), network=True)[0] == "pulp"
    assert chosen_engine("highs", SolveOptions(), network=True)[0] == "highs"
