"""One test for each pitfall of PuLP and HiGHS that the adapter works around."""

import numpy as np
import pulp
import pytest

from flowlex.formulations import EngineError, FlowNetwork, LinearProgram, SolveOptions, solve
from flowlex.validation.certificates import certify_program

SOLVERS = [name for name in (None, "PULP_CBC_CMD") if name is None or name in pulp.listSolvers(onlyAvailable=True)]


def market_split(rows: int = 5, columns: int = 40, seed: int = 1) -> LinearProgram:
    """Cornuejols and Dawande's market split: too hard for branch and bound at this size, but feasible by slacks."""
    rng = np.random.default_rng(seed)
    weights = rng.integers(0, 100, (rows, columns))
    lp = LinearProgram("market split")
    x = lp.variables("x", columns, upper=1, integer=True)
    over, under = lp.variables("over", rows), lp.variables("under", rows)
    row, column = np.divmod(np.arange(weights.size), columns)
    use = (x[column] * weights.ravel()).sum_by(row)
    lp.constrain("split", use + over - under, "==", weights.sum(axis=1) // 2)
    lp.minimize(over.sum() + under.sum())
    return lp


@pytest.mark.parametrize(("engine", "solver"), [*(("pulp", solver) for solver in SOLVERS), ("highs", None)])
def test_a_run_stopped_by_its_time_limit_is_never_optimal(engine: str, solver: str | None) -> None:
    lp = market_split()
    outcome = solve(lp, engine, time_limit_s=0.5, **({} if solver is None else {"solver": solver}))
    assert outcome.status in ("feasible", "time_limit")
    if outcome.status == "feasible":
        assert outcome.bound is None or outcome.bound < outcome.objective
        assert certify_program(lp, outcome).ok


@pytest.mark.parametrize("engine", ["pulp", "highs"])
def test_a_budget_in_steps_ends_a_search_the_same_way_each_time(engine: str) -> None:
    lp = market_split(4, 30, seed=3)
    one, two = (solve(lp, engine, max_steps=20) for _ in range(2))
    assert one.status == "feasible"
    assert one.bound < one.objective
    assert one.values.tolist() == two.values.tolist()
    linear = LinearProgram("chain")
    y = linear.variables("y", 200)
    linear.constrain("chain", y[1:] - y[:-1], ">=", np.arange(1, 200))
    linear.minimize(y.sum())
    assert solve(linear, engine, max_steps=1, algorithm="simplex").status in ("feasible", "time_limit", "optimal")
    with pytest.raises(ValueError, match="max_steps must be an integer of at least 1, got 0"):
        SolveOptions(max_steps=0)


@pytest.mark.parametrize("engine", ["pulp", "highs"])
def test_a_run_stopped_at_its_gap_is_not_optimal(engine: str) -> None:
    lp = market_split(rows=2, columns=20)
    exact, loose = solve(lp, engine), solve(lp, engine, gap=1e6)
    assert exact.status == "optimal"
    assert exact.bound == pytest.approx(exact.objective, abs=1e-6)
    if loose.bound is None or loose.bound < loose.objective - 1e-3:
        assert loose.status == "feasible"
    assert loose.objective >= exact.objective - 1e-6


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_gap_makes_other_solvers_feasible_at_most(solver: str | None) -> None:
    if solver is not None:
        assert solve(market_split(2, 12), "pulp", solver=solver, gap=0.5).status == "feasible"
    assert solve(market_split(2, 12), "pulp", solver=solver).status == "optimal"


def test_an_option_that_another_solver_lacks_raises() -> None:
    lp = LinearProgram("p")
    if "PULP_CBC_CMD" in SOLVERS:
        with pytest.raises(EngineError, match="engine 'pulp:PULP_CBC_CMD' has no option 'seed'"):
            solve(lp, "pulp", solver="PULP_CBC_CMD", seed=7)
        with pytest.raises(EngineError, match="no option 'algorithm'"):
            solve(lp, "pulp", solver="PULP_CBC_CMD", algorithm="ipm")


@pytest.mark.parametrize("solver", SOLVERS)
def test_names_that_pulp_would_merge_stay_distinct(solver: str | None) -> None:
    labels = ["a-1", "a+1", "a 1", "a_1", "a_1_2", "a/1", "a\n1", "ä1", "", "]"]
    lp = LinearProgram("names - with / signs")
    x = lp.variables("x", len(labels), upper=np.arange(1.0, 1 + len(labels)), labels=labels)
    lp.constrain("cap", x, "<=", 100, labels=labels)
    lp.maximize(x.sum())
    problem = lp.to_pulp()
    assert len({v.name for v in problem.variables()}) == len(labels)
    assert len(problem.constraints()) == len(labels)
    outcome = solve(lp, "pulp", solver=solver)
    assert outcome.values.tolist() == list(range(1, 1 + len(labels)))


@pytest.mark.parametrize("solver", SOLVERS)
def test_variables_without_constraint_or_cost_survive(solver: str | None) -> None:
    lp = LinearProgram("lonely")
    lp.variables("nobody", 2, lower=3, upper=4)
    x = lp.variables("x", 1, upper=2)
    lp.constrain("cap", x, "<=", 1)
    lp.maximize(x.sum())
    assert len(lp.to_pulp().variables()) == 3
    outcome = solve(lp, "pulp", solver=solver)
    assert len(outcome.values) == 3
    assert certify_program(lp, outcome).ok


@pytest.mark.parametrize("solver", SOLVERS)
def test_columns_keep_their_order_though_pulp_sorts_by_name(solver: str | None) -> None:
    lp = LinearProgram("order")
    x = lp.variables("z", 12, upper=np.arange(12.0) + 1)
    y = lp.variables("a", 1, upper=50)
    lp.maximize(x.sum() + y.sum())
    outcome = solve(lp, "pulp", solver=solver)
    assert outcome.values.tolist() == [*range(1, 13), 50]


@pytest.mark.parametrize("algorithm", ["simplex", "ipm", "hipo"])
@pytest.mark.parametrize("engine", ["pulp", "highs"])
def test_choosing_an_algorithm_never_drops_the_integrality(engine: str, algorithm: str) -> None:
    """HiGHS documents that its option `solver` makes it ignore integrality."""
    lp = LinearProgram("mip")
    x = lp.variables("x", 2, upper=5, integer=True)
    lp.constrain("cap", (x * np.array([2, 2])).sum(), "<=", 5)
    lp.maximize(x.sum())
    assert solve(lp, engine, algorithm=algorithm).objective == pytest.approx(2)
    with pytest.raises(EngineError, match="'pdlp' cannot solve the relaxations of an integer program"):
        solve(lp, engine, algorithm="pdlp")


def test_other_solvers_that_fail_or_are_missing_say_so() -> None:
    network = FlowNetwork.from_arrays([0], [1], upper=1, cost=1, supply=[1, -1])
    with pytest.raises(EngineError, match="PuLP knows no solver 'CPLEXX'; available here: "):
        solve(network, "pulp", solver="CPLEXX")
    missing = sorted(set(pulp.listSolvers()) - set(pulp.listSolvers(onlyAvailable=True)))
    with pytest.raises(EngineError, match=f"solver '{missing[0]}' is not installed"):
        solve(network, "pulp", solver=missing[0])
    for solver in SOLVERS:
        assert solve(network, "pulp", solver=solver).objective == 1


@pytest.mark.skipif("PULP_CBC_CMD" not in SOLVERS, reason="CBC is not installed")
def test_a_solver_object_of_pulps_is_honoured_or_refused() -> None:
    lp = market_split(2, 12)
    best = solve(lp, "pulp").objective
    whole = solve(lp, "pulp", solver=pulp.PULP_CBC_CMD(msg=0))
    assert (whole.status, whole.algorithm) == ("optimal", "PULP_CBC_CMD")
    assert whole.objective == pytest.approx(best, abs=1e-6)
    assert solve(lp, "pulp", solver=pulp.HiGHS(msg=False)).objective == pytest.approx(best, abs=1e-6)
    assert solve(lp, "pulp", solver=pulp.PULP_CBC_CMD(msg=0, gapRel=0.5)).status == "feasible"
    assert solve(market_split(), "pulp", solver=pulp.PULP_CBC_CMD(msg=0, timeLimit=1)).status in (
        "feasible",
        "time_limit",
    )
    with pytest.raises(EngineError, match="'PULP_CBC_CMD' comes with its own options; set what 'threads' says on it"):
        solve(lp, "pulp", solver=pulp.PULP_CBC_CMD(msg=0), threads=2)
    with pytest.raises(EngineError, match="'PULP_CBC_CMD' has mip=False, which drops the integer requirements"):
        solve(lp, "pulp", solver=pulp.PULP_CBC_CMD(msg=0, mip=False))
    for engine in ("highs", "network"):
        network = FlowNetwork.from_arrays([0], [1], upper=1, cost=1, supply=[1, -1])
        with pytest.raises(EngineError, match=f"engine '{engine}' has no option 'solver'; drop it or use 'pulp'"):
            solve(network, engine, solver=pulp.PULP_CBC_CMD(msg=0))
    if not pulp.GUROBI(msg=0).available():
        with pytest.raises(EngineError, match="solver 'GUROBI' is not installed; available here: "):
            solve(lp, "pulp", solver=pulp.GUROBI(msg=0))
    with pytest.raises(ValueError, match="solver must be a PuLP solver or the name of one, got 7"):
        SolveOptions(solver=7)
