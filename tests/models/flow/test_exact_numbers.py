"""Regression tests with decimals that binary floats cannot represent."""

from fractions import Fraction

import pytest

from flowlex import solve
from flowlex.instances.flow import Block, FlowInstance, FlowJob, FlowTask, Machine
from flowlex.models import ModelError
from flowlex.models.flow.goals import DataLocality, FairShares, Priority


def one_task(task: FlowTask, slots: int = 1) -> FlowInstance:
    return FlowInstance(
        name="one", machines=(Machine(name="m", slots=slots),), jobs=(FlowJob(name="j", tasks=(task,)),)
    )


@pytest.mark.parametrize("cost", [36028797018963969, -36028797018963969, 2**56, 0.1, 1234567.123456])
def test_an_explicit_cost_is_the_number_that_is_written(cost: float) -> None:
    solution = solve(one_task(FlowTask(name="t", costs={"m": cost})), "network", preset="none")
    assert Fraction(solution.score.cost, solution.scale) == Fraction(str(cost))
    assert solution.certificate.claim == "optimal"


@pytest.mark.parametrize("cost", [1e22, 10**22])
def test_a_cost_beyond_exact_sums_is_refused_by_name(cost: float) -> None:
    with pytest.raises(ModelError, match=r"cost of 't' on 'm' is 1.*, more than 72057594037927936 units of 1/1; use a"):
        solve(one_task(FlowTask(name="t", costs={"m": cost})), "network", preset="none")


def test_a_weighted_priority_counts_decimals_as_written() -> None:
    goal = Priority({"cpu": 1}, "weighted", omega=100, limits={"cpu": 1.0})
    solution = solve(one_task(FlowTask(name="t", demands={"cpu": 0.29}), slots=0), "network", goals=(goal,))
    assert solution.score.cost == 101 - 29  # 0.29 of 100 is 29; in floats it is 28.999


def test_weighted_shares_are_right_where_floats_round() -> None:
    jobs = tuple(
        FlowJob(name=name, tasks=tuple(FlowTask(name=f"{name}{k}") for k in range(count)), weight=weight, min_tasks=1)
        for name, count, weight in (("A", 20, 544105), ("B", 16, 285279))
    )
    instance = FlowInstance(name="shares", machines=(Machine(name="m", slots=35),), jobs=jobs)
    solution = solve(instance, "network", goals=(FairShares("weighted"),))
    assert dict(solution.shares) == {"A": (20, 20), "B": (15, 15)}


def test_a_task_knows_a_machine_with_exactly_the_threshold_of_its_data() -> None:
    """In floats 0.07 of 100 is more than 7."""
    machines = (Machine(name="a", rack="r0"), Machine(name="b", rack="r1", slots=0))
    data = (Block(size_mb=7, machines=("a",)), Block(size_mb=93, machines=("b",)))
    job = FlowJob(name="j", tasks=(FlowTask(name="t", data=data),))
    instance = FlowInstance(name="edge", machines=machines, jobs=(job,))
    solution = solve(instance, "network", goals=(DataLocality(1, 2, threshold=0.07),))
    assert (0.07 * 100 > 7, solution.score.cost) == (True, 2 * 93)
