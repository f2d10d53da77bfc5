"""Tasks that ask for CPU and memory: against all schedules there are, and against a program written here."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from flowlex import solve
from flowlex.formulations.arrays import Integers
from flowlex.formulations.engines import solve as solve_formulation
from flowlex.formulations.outcome import EngineError, Status
from flowlex.instances.flow import FlowInstance, FlowJob, FlowTask, Machine, RunningOn
from flowlex.models.base import ModelError
from flowlex.models.flow.capacities import document as document_module
from flowlex.models.flow.capacities import method as packed_module
from flowlex.models.flow.capacities import search
from flowlex.models.flow.capacities.amounts import Amounts
from flowlex.models.flow.capacities.bound import Bound, Relaxation
from flowlex.models.flow.capacities.program import Program, Size
from flowlex.models.flow.goals import Continuity, FairShares, LoadSpread, Placement, Priority
from flowlex.models.flow.model import FlowScheduling
from flowlex.validation.certificates import verify
from flowlex.validation.certificates.certificate import CertificateError
from tests.models.flow.capacity_cases import best, by_program, cluster, judged, settle

BORG = (Priority(), Placement(), Continuity(base=4, rate=2), LoadSpread())


def stated(solution, *, ranked: bool) -> tuple[int, ...]:
    """The figures of a solution in the order of `judged`."""
    score = solution.score
    costs = tuple(dict(score.by_goal).values()) if ranked else (score.cost,)
    return (score.shortfall, *(n for _, n in score.waiting), *costs)


@pytest.mark.parametrize("seed", range(12))
def test_no_schedule_is_better_and_none_is_below_its_bound(seed: int) -> None:
    instance = settle(cluster(seed))
    caps, ranked = bool(seed % 2), seed % 3 == 0
    goals = (*BORG, FairShares(kind="caps")) if caps else BORG
    solution = FlowScheduling(instance, goals=goals, lexicographic=ranked).solve("highs")
    true = best(instance, caps=caps, ranked=ranked)
    assert solution.status is Status.OPTIMAL
    assert stated(solution, ranked=ranked) == true
    at = {machine.name: m for m, machine in enumerate(instance.machines)}
    where = tuple(at.get(solution.machine_of.get(task.name, ""), -1) for task in instance.tasks)
    assert judged(instance, where, caps=caps, ranked=ranked) == true
    assert solution.certificate.claim in ("optimal", "bounded")
    assert all(bound <= solution.stages[name] for name, bound in solution.bounds.items())
    assert verify(json.loads(json.dumps(solution.to_dict())), instance).ok


@pytest.mark.parametrize("seed", range(100, 104))
def test_an_integer_program_written_here_finds_the_same(seed: int) -> None:
    instance = settle(cluster(seed, tasks=14, machines=5))
    caps = bool(seed % 2)
    goals = (*BORG, FairShares(kind="caps")) if caps else BORG
    solution = FlowScheduling(instance, goals=goals).solve("highs")
    assert solution.status is Status.OPTIMAL
    assert stated(solution, ranked=False) == by_program(instance, caps=caps)


@pytest.fixture(scope="module")
def hand() -> FlowInstance:
    """Three machines of 10 CPUs; six tasks of 6 and six of 4 CPUs, those with much memory."""
    boxes = tuple(Machine(name=f"m{m}", slots=10, capacity={"cpu": 10, "gb": 1.5}) for m in range(3))
    wide = tuple(FlowTask(name=f"a{k}", demands={"cpu": 6, "gb": 0.1}) for k in range(6))
    deep = tuple(FlowTask(name=f"b{k}", demands={"cpu": 4, "gb": 0.7}) for k in range(6))
    return FlowInstance(
        name="hand", machines=boxes, jobs=(FlowJob(name="a", tasks=wide), FlowJob(name="b", tasks=deep))
    )


def test_slot_sizes_prove_what_the_plain_relaxation_cannot(hand: FlowInstance) -> None:
    solution = solve(hand, "highs")
    assert (len(solution.machine_of), solution.bounds["waiting_1001"]) == (6, 6)  # relaxed: 30 CPUs hold 7.5 tasks of 4
    assert solution.certificate.claim == "optimal"
    assert set(solution.waiting.values()) == {"no machine that it may use has as much left of everything it asks for"}


def test_where_everything_fits_the_network_decides_and_proves(hand: FlowInstance) -> None:
    roomy = FlowInstance(name="roomy", machines=hand.machines, jobs=hand.jobs[:1]).model_dump()
    for machine in roomy["machines"]:
        machine["capacity"] = {"cpu": 12.5}
    solution = solve(FlowInstance.model_validate(roomy), "highs")
    assert len(solution.machine_of) == 6 and solution.weights is not None and not solution.bounds
    assert solution.certificate.claim == "optimal" and "machine" in solution.duals


def test_beyond_the_program_schedule_and_bound_stand_apart(hand: FlowInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three bins that two kinds of items leave room in, and no program allowed."""
    sizes = [5, 5, 4, 4, 3, 3, 3, 3]
    tasks = tuple(FlowTask(name=f"t{k}", demands={"cpu": size}) for k, size in enumerate(sizes))
    boxes = tuple(Machine(name=f"m{m}", slots=9, capacity={"cpu": 10}) for m in range(3))
    instance = FlowInstance(name="bins", machines=boxes, jobs=(FlowJob(name="j", tasks=tasks),))
    monkeypatch.setattr(search, "MOST_COLUMNS", 3)
    solution = solve(instance, "highs")
    assert solution.status is Status.FEASIBLE and solution.certificate.claim == "bounded"
    assert "no integer program is tried beyond 3 columns" in solution.message
    assert solution.bounds["waiting_1001"] <= 1 <= solution.stages["waiting_1001"]


def document(instance: FlowInstance) -> dict:
    return json.loads(json.dumps(solve(instance, "highs").to_dict()))


@pytest.mark.parametrize(
    "fault",
    [
        "overfull",
        "a stronger bound",
        "a bound of nothing",
        "a price below nothing",
        "a price of nobody",
        "a later stage weighed",
        "a size of nothing",
        "a resource nobody has",
        "worse, but optimal",
        "a metric",
        "a stage left out",
    ],
)
def test_changed_files_are_refused(hand: FlowInstance, fault: str) -> None:
    true = document(hand)
    assert verify(copy.deepcopy(true), hand).ok
    false = copy.deepcopy(true)
    stages, placed = false["proof"]["stages"], false["answer"]["placements"]
    first = stages["waiting_1001"]
    match fault:
        case "overfull":
            moved = next(task for task in placed if placed[task] != "m0")
            placed[moved] = "m0"
        case "a stronger bound":
            stages["cost"]["at_least"] += 1
        case "a bound of nothing":
            stages["joy"] = stages["cost"]
        case "a price below nothing":
            first["size_price"][0]["price"] = -1
        case "a price of nobody":
            first["machine_price"]["m9"] = 1
        case "a later stage weighed":
            first["weights"]["cost"] = 1
        case "a size of nothing":
            first["size_price"][0]["size"] = 0
        case "a resource nobody has":
            first["size_price"][0]["resource"] = "tape"
        case "worse, but optimal":
            lost = next(iter(placed))
            del placed[lost]
            false["answer"]["waiting"][lost] = "no room"
        case "a metric":
            false["metrics"]["waiting_1001_at_least"] += 1
        case "a stage left out":
            del false["stages"]["waiting_1001"]
    try:
        assert not verify(false, hand).ok
    except ValueError as error:
        assert "price" in str(error)


def test_what_a_person_gets_wrong_is_said(hand: FlowInstance) -> None:
    with pytest.raises(ValueError, match="has a capacity but no slots; say how many tasks it may run at most"):
        Machine(name="m", capacity={"cpu": 4})
    box = Machine(name="m", slots=2, capacity={"cpu": 4})
    runs = FlowTask(name="t", demands={"cpu": 5}, running=RunningOn(machine="m"))
    with pytest.raises(ValueError, match="machine 'm' has 4 cpu but runs tasks that ask for 5; let one of them wait"):
        FlowInstance(machines=(box,), jobs=(FlowJob(name="j", tasks=(runs,)),))
    fine = FlowTask(name="t", demands={"cpu": 1.00000000001})
    with pytest.raises(ModelError, match="amounts of 'cpu' differ in more digits"):
        solve(FlowInstance(machines=(box,), jobs=(FlowJob(name="j", tasks=(fine,)),)))
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


def test_the_program_is_there_to_read(hand: FlowInstance) -> None:
    model = FlowScheduling(hand, stage="waiting_1001")
    program = model.formulation
    assert program.is_mip and program.constraint_blocks["capacity"].count == 6
    assert "run[a0,m0]" in program.column_names()
    assert solve_formulation(program, "highs").objective == 6
    last = FlowScheduling(hand).formulation
    assert last.constraint_blocks["stage"].rhs.tolist() == [6.0]


def _ceiled(self: Program, size: Size) -> Integers:
    return -(-self.classes.demand[:, size.resource] // size.size)


def _blind(self: Amounts, machine: Integers) -> Integers:
    return np.zeros((0, 2), np.int64)


def _stronger(
    self: Relaxation, stage: str, fixed: dict[str, int], old: Callable[..., Bound] = Relaxation.bound
) -> Bound:
    bound = old(self, stage, fixed)
    return replace(bound, value=bound.value + 1)


def _priced_twice(*given: object, old: Callable[..., dict[str, Any]] = document_module.proof_of) -> dict[str, Any]:
    proof = old(*given)
    for stage in proof["stages"].values():
        for size in stage["size_price"]:
            size["price"] *= 2
    return proof


def _as_proposed(*given: Any) -> Iterator[Integers]:
    yield given[-1]


@pytest.mark.parametrize(
    ("place", "name", "fault"),
    [
        (Program, "taken", _ceiled),
        (Amounts, "over", _blind),
        (Relaxation, "bound", _stronger),
        (packed_module, "proof_of", _priced_twice),
        (search, "repaired", _as_proposed),
    ],
    ids=lambda fault: getattr(fault, "__name__", str(fault)),
)
def test_seeded_faults_are_refused(place: Any, name: str, fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every fault in making or proving a schedule is refused on some instance."""
    monkeypatch.setattr(place, name, fault)
    refused = 0
    for seed in range(6):
        try:
            FlowScheduling(settle(cluster(seed)), goals=BORG).solve("highs")
        except CertificateError:
            refused += 1
    assert refused
