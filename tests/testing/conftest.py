"""A small PuLP model as users write them, and the plugin as pytest loads it."""

import pulp
import pytest

pytest_plugins = ["pytester"]


def knapsack(
    room: float = 4.0, need: tuple[float, ...] = (2, 3), value: tuple[float, ...] = (2, 4), kind: str = "Integer"
) -> pulp.LpProblem:
    """A knapsack problem with items A, B, ... of a size and a value, at most one of each."""
    problem = pulp.LpProblem("knapsack", pulp.LpMaximize)
    items = "ABCDEF"[: len(need)]
    x = [problem.add_variable(f"x_{item}_", 0, 1, kind) for item in items]  # PuLP 3 would make this of x[A], PuLP 4 not
    problem += pulp.lpSum(v * each for v, each in zip(value, x, strict=True))
    problem += pulp.lpSum(n * each for n, each in zip(need, x, strict=True)) <= room, "room"
    for item, each in zip(items, x, strict=True):
        problem += each <= 1, f"once[{item}]"
    return problem


@pytest.fixture
def small() -> pulp.LpProblem:
    return knapsack()
