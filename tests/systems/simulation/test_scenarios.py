"""Scenarios in this process: workloads from files and generators, one policy of several, the same log again."""

from flowlex import generate
from flowlex.instances import write_instance
from flowlex.systems.simulation.scenario import Scenario
from flowlex.systems.simulation.scenario_runs import run_scenario, workload_of

SCENARIO = {
    "kind": "scenario",
    "name": "small",
    "simulator": "cluster",
    "workload": {"generator": "cluster-random", "parameters": {"jobs": 2}},
    "policies": ["FIFO", {"name": "random", "label": "anywhere"}],
    "seeds": [0, 1],
}


def scenario(**changes: object) -> Scenario:
    return Scenario.model_validate(SCENARIO | changes)


def test_a_seed_gives_its_own_workload_and_the_same_log(tmp_path):
    instance, log = run_scenario(scenario(), "anywhere", 1)
    assert instance == generate("cluster-random", seed=1, jobs=2) != workload_of(scenario(), 0)
    assert (log.header["policy"], log.header["scenario"], log.header["seed"]) == ("anywhere", "small", 1)
    again = run_scenario(scenario(), "anywhere", 1)[1]
    assert list(again.lines()) == list(log.lines())
    write_instance(instance, tmp_path / "work.json")
    filed = scenario(workload={"file": "work.json"})
    assert workload_of(filed, 7, tmp_path) == workload_of(filed, 8, tmp_path) == instance  # all seeds share a file


def test_a_generator_may_be_told_its_seed():
    fixed = scenario(workload={"generator": "cluster-random", "parameters": {"seed": 5}})
    assert workload_of(fixed, 0) == workload_of(fixed, 1) == generate("cluster-random", seed=5)
