"""Tasks that need CPU and memory, compared with all schedules and with an independent program."""

import json

import pytest

from flowlex import solve
from flowlex.formulations.solver_outcome import EngineError
from flowlex.instances.flow import FlowInstance, FlowJob, FlowTask, Machine, RunningOn
from flowlex.models.flow.goals import Continuity, LoadSpread, Placement, Priority
from flowlex.models.flow.model import FlowScheduling
from flowlex.models.model_base import ModelError
from flowlex.validation.certificates import verify
from tests.models.flow.capacity_cases import cluster, settle
from tests.models.flow.changes_oracle import best, stated
from tests.models.flow.ties import GOALS

BORG = (Priority(), Placement(), Continuity(base=4, rate=2), LoadSpread())


@pytest.mark.parametrize("seed", range(12))
def test_no_schedule_is_better_and_none_is_below_its_bound(seed: int) -> None:
    instance = settle(cluster(seed))
    solution = FlowScheduling(instance, goals=GOALS).solve("highs")
    assert (solution.status, solution.certificate.claim, stated(solution)) == ("optimal", "optimal", best(instance))
    assert all(bound <= solution.stages[name] for name, bound in solution.bounds.items())
    assert verify(json.loads(json.dumps(solution.to_dict())), instance).ok
    ranked = FlowScheduling(instance, goals=GOALS, lexicographic=True).solve("highs")
    assert ranked.certificate.claim == "optimal" and stated(ranked)[:-1] == stated(solution)[:-1]


@pytest.fixture(scope="module")
def hand() -> FlowInstance:
    """Three machines of 10 CPUs; six tasks of 6 and six of 4 CPUs, those with much memory."""
    boxes = tuple(Machine(name=f"m{m}", slots=10, capacity={"cpu": 10, "gb": 1.5}) for m in range(3))
    wide = tuple(FlowTask(name=f"a{k}", demands={"cpu": 6, "gb": 0.1}) for k in range(6))
    deep = tuple(FlowTask(name=f"b{k}", demands={"cpu": 4, "gb": 0.7}) for k in range(6))
    return FlowInstance(
        name="hand", machines=boxes, jobs=(FlowJob(name="a", tasks=wide), FlowJob(name="b", tasks=deep))
    )


def test_cuts_prove_what_the_plain_relaxation_cannot(hand: FlowInstance) -> None:
    solution = solve(hand, "highs")
    assert (len(solution.machine_of), solution.bounds["waiting_1001"]) == (6, 6)  # relaxed: 30 CPUs hold 7.5 tasks of 4
    assert solution.certificate.claim == "optimal" and solution.method.startswith("integer program, stage by stage")
    assert set(solution.waiting.values()) == {"no machine that it may use has as much left of everything it asks for"}


def test_where_everything_fits_the_network_decides_and_proves(hand: FlowInstance) -> None:
    roomy = FlowInstance(name="roomy", machines=hand.machines, jobs=hand.jobs[:1]).model_dump()
    for machine in roomy["machines"]:
        machine["capacity"] = {"cpu": 12.5}
    solution = solve(FlowInstance.model_validate(roomy), "highs")
    assert len(solution.machine_of) == 6 and solution.weights is not None and not solution.bounds
    assert solution.certificate.claim == "optimal" and "machine" in solution.duals


def test_what_a_person_gets_wrong_is_said(hand: FlowInstance) -> None:
    with pytest.raises(ValueError, match="has a capacity but no slots; say how many tasks it may run at most"):
        Machine(name="m", capacity={"cpu": 4})
    box = Machine(name="m", slots=2, capacity={"cpu": 4})
    runs = FlowTask(name="t", demands={"cpu": 5}, running=RunningOn(machine="m"))
    with pytest.raises(ValueError, match="machine 'm' has 4 cpu but runs tasks that ask for 5; let one of them wait"):
        FlowInstance(machines=(box,), jobs=(FlowJob(name="j", tasks=(runs,)),))
    with pytest.raises(ModelError, match="there is no stage 'joy'; the stages are: waiting_1001, cost"):
        _ = FlowScheduling(hand, stage="joy").formulation
    with pytest.raises(EngineError, match="for integer programs use 'pulp' or 'highs'"):
        FlowScheduling(settle(cluster(5)), goals=BORG).solve("network")


def test_a_task_larger_than_every_machine_waits_and_says_so() -> None:
    box = Machine(name="m", slots=2, capacity={"cpu": 4})
    tasks = tuple(FlowTask(name=f"t{size}", demands={"cpu": size}) for size in (3, 5))
    solution = solve(FlowInstance(machines=(box,), jobs=(FlowJob(name="j", tasks=tasks),)), "highs")
    assert solution.machine_of == {"t3": "m"} and solution.certificate.claim == "optimal"
    assert solution.waiting == {"t5": "no machine that it may use has as much of everything it asks for"}


@pytest.mark.parametrize(
    ("amounts", "running", "claim"),
    [
        ((2.0, 1e-300), 1, "bounded"),  # no solver tells 2 + 1e-300 from 2
        ((0.1, 1.9, 5e-324, 1e-17), 3, "bounded"),
        ((1e300, 2.0, 1e-300, 1 / 3, 0.7), 3, "bounded"),
        ((1e300, 2.0, 1 / 3, 0.7), 2, "optimal"),
        ((1.0, 1 / 3, 1 / 3, 1 / 3), 4, "optimal"),
        ((1.0, 0.33333333333333337, 0.33333333333333337, 0.33333333333333337), 3, "bounded"),
    ],
)
def test_amounts_of_any_digits_never_overfill_a_machine(amounts: tuple[float, ...], running: int, claim: str) -> None:
    box = Machine(name="m", slots=9, capacity={"gpu": 2})
    tasks = tuple(FlowTask(name=f"t{k}", demands={"gpu": amount}) for k, amount in enumerate(amounts))
    instance = FlowInstance(name="digits", machines=(box,), jobs=(FlowJob(name="j", tasks=tasks),))
    solution = solve(instance, "highs")
    assert (len(solution.machine_of), solution.certificate.claim) == (running, claim)
    assert solution.bounds["waiting_1001"] <= len(solution.waiting) if solution.bounds else running == len(tasks)


@pytest.mark.parametrize("cpus", [4, 3])
def test_the_objective_is_one_weighted_sum_whichever_method_found_it(cpus: int) -> None:
    tasks = tuple(FlowTask(name=f"t{k}", demands={"cpu": 1}) for k in range(4))
    jobs, box = (FlowJob(name="a", tasks=tasks),), Machine(name="m", slots=4, capacity={"cpu": cpus})
    model = FlowScheduling(FlowInstance(name="one", machines=(box,), jobs=jobs))
    solution, loose = model.solve(), model.with_constraint("loose", model.variables["x"].sum() <= 100).solve()
    # The network decides with 4 CPUs and the integer program with 3; a rule that forbids nothing costs nothing.
    assert solution.method.startswith("weights" if cpus == 4 else "integer program")
    assert solution.objective == solution.bound == loose.objective == loose.bound
    values = {"shortfall": 0, "waiting_1001": 4 - cpus, "cost": solution.score.cost}
    assert solution.objective == sum(weight * values[name] for name, weight in solution.weights.items())
    document = json.loads(json.dumps(solution.to_dict()))
    assert verify(document, model.instance).claim == "optimal"
    document.update(objective=document["objective"] + 1, bound=document["bound"] + 1)
    assert not verify(document, model.instance).ok
