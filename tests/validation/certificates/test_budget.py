"""The time limit of a solve includes its certificate: facts are recomputed, the rest is quoted and reported."""

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from flowlex import generate, model_for
from flowlex.formulations.processor_clock import processor_seconds
from flowlex.formulations.solver_outcome import EngineName
from flowlex.instances.instance_base import Instance
from flowlex.models.model_base import QUOTED
from flowlex.validation.certificates import Budget, Certificate, verify
from tests.models.allocation.cases import random_instance
from tests.models.flow.capacity_cases import cluster
from tests.models.flow.ties import GOALS, tied_cluster


def test_a_budget_counts_processor_seconds() -> None:
    budget = Budget(0.02)
    time.sleep(0.03)
    assert not budget.spent  # waiting uses no processor time
    while processor_seconds() < budget._end:
        pass
    assert budget.spent and not Budget().spent


def test_what_remains_is_at_least_a_tenth() -> None:
    long_ago = processor_seconds() - 100
    assert not Budget.remaining(None, long_ago).spent
    left = Budget.remaining(10, long_ago)._end - processor_seconds()
    assert 0.9 < left <= 1
    assert 9.9 < Budget.remaining(10, processor_seconds())._end - processor_seconds() <= 10


def test_a_solve_whose_limit_has_passed_says_what_it_quotes(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = generate("network-random")
    monkeypatch.setattr(Budget, "remaining", lambda *_: Budget(0))
    solution = model_for(instance).solve("network", time_limit_s=60)
    certificate = solution.certificate
    assert isinstance(certificate, Certificate) and certificate.claim == "feasible" and QUOTED in solution.message
    quoted = [check.name for check in certificate.checks if check.how == "quoted"]
    assert quoted == ["no answer is better", "status", "bound"]
    assert verify(solution.to_dict(), instance).claim == "optimal"  # `verify` has no limit and proves more


class Looks(Budget):
    """A budget that is spent after a number of queries."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self.left = looks

    @property
    def spent(self) -> bool:
        self.left -= 1
        return self.left < 0


def _solved(instance: Instance, engine: EngineName = "highs", **options: object) -> tuple[Instance, dict[str, Any]]:
    document: dict[str, Any] = json.loads(json.dumps(model_for(instance, **options).solve(engine).to_dict()))
    return instance, document


CASES: dict[str, Callable[[], tuple[Instance, dict[str, Any]]]] = {
    "flow": lambda: _solved(generate("flow-random", seed=1), "network"),
    "flow with capacities": lambda: _solved(cluster(0)),
    "flow with rules": lambda: _solved(tied_cluster(3), goals=GOALS),  # type: ignore[no-untyped-call]
    "pods": lambda: _solved(generate("pods-scale", seed=0, nodes=4, pods=14)),
    "pods, all ways": lambda: _solved(generate("pods-scale", seed=0, nodes=2, pods=5)),
    "pods, largest load": lambda: _solved(generate("pods-scale", seed=0, nodes=4, pods=14), balance="max_load"),
    "jit": lambda: _solved(generate("jit-figure4")),
    "GPU": lambda: _solved(generate("gpu-random", seed=3, running=0.6)),
    "network": lambda: _solved(generate("network-random")),
    "load": lambda: _solved(generate("inference-cluster", workers=4, items=40, processors="mixed")),
    **{
        f"allocation, {policy}": partial(_solved, random_instance(2, tight=0.5), policy=policy)
        for policy in ("max_min", "water_filling", "hierarchical", "makespan", "finish_time", "min_cost")
    },
    "allocation by parts": lambda: _solved(random_instance(2, limits=False), policy="max_throughput", parts=2),
    "allocation, none": lambda: _solved(random_instance(2, tight=3.0), policy="max_throughput"),
}


@pytest.mark.parametrize("name", CASES)
def test_whenever_the_budget_ends_the_rest_is_quoted(name: str) -> None:
    instance, document = CASES[name]()
    true = verify(document, instance)
    quoted = False
    assert true.verdict == "proven"
    for looks in range(100):
        budget = Looks(looks)
        found = verify(document, instance, budget)
        if budget.left >= 0:
            break
        if not budget.quoting:  # another check proves everything
            assert (found.claim, found.verdict) == (true.claim, true.verdict)
            continue
        assert found.ok and found.verdict == "quoted", str(found)
        assert found.claim in ("bounded", "feasible")
        quoted = True
    assert quoted and budget.left >= 0
    assert (found.claim, found.verdict) == (true.claim, true.verdict)
