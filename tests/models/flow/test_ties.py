"""Gangs, spreads and affinities: cases by hand, enumeration of all schedules, reasons, and faults in the model."""

import pytest

from flowlex.formulations import LinearProgram, solve
from flowlex.formulations.solver_outcome import EngineError
from flowlex.instances.flow import FlowInstance
from flowlex.models.flow.goals import FairShares, Priority
from flowlex.models.flow.model import FlowScheduling
from tests.models.flow.capacity_cases import cluster as capacity_cluster
from tests.models.flow.changes_oracle import best, stated
from tests.models.flow.ties import GOALS, tied_cluster, with_capacities


def cluster(slots=(2, 2, 2, 2), sizes=(4, 4), **rules):
    """Machines m0, m1 in rack r0 and zone a, m2, m3 in r1 and b; jobs j0, j1, ... with ``sizes`` tasks."""
    machines = [
        {"name": f"m{k}", "slots": n, "rack": f"r{k // 2}", "labels": [f"zone={'ab'[k // 2]}"]}
        for k, n in enumerate(slots)
    ]
    jobs = [{"name": f"j{j}", "tasks": [{"name": f"t{j}{k}"} for k in range(n)]} for j, n in enumerate(sizes)]
    return FlowInstance.model_validate({"name": "tied", "machines": machines, "jobs": jobs, **rules})


def racks(solution, job):
    """Return the racks in which the tasks of a job run."""
    return [("r0", "r1")[int(m[1]) // 2] for t, m in solution.machine_of.items() if t.startswith(f"t{job[1:]}")]


def test_an_affinity_keeps_together_what_runs():
    keep = {"affinities": [{"name": "a", "jobs": ["j0"], "within": "zone"}]}
    solution = FlowScheduling(cluster((1, 1, 2, 1), (4, 1), **keep)).solve("highs")
    assert racks(solution, "j0") == ["r1"] * 3 and len(solution.machine_of) == 4
    (why,) = solution.waiting.values()
    assert why == "affinity 'a' keeps it with the others on zone=b, where no slot is worth more to it"


@pytest.mark.parametrize("seed", [*range(12), 77, 216])
@pytest.mark.parametrize("packed", [False, True])
def test_no_schedule_is_better(seed, packed):
    instance = tied_cluster(seed, most_tasks=6)
    instance = with_capacities(instance, seed) if packed else instance
    solution = FlowScheduling(instance, goals=GOALS).solve("highs" if seed % 2 else "pulp")
    assert (solution.certificate.claim, stated(solution)) == ("optimal", best(instance))


def test_why_a_gang_waits():
    def why(instance, *more):
        return FlowScheduling(instance, goals=(*more, Priority())).solve("highs").waiting["t10"]

    gang = {"gangs": [{"name": "g", "jobs": ["j1"]}]}
    assert why(cluster(sizes=(1, 9), **gang)) == (
        "gang 'g' runs completely or not at all and needs 9 slots at once; the machines that it may take have at most 8"
    )
    narrow = {"gangs": [{"name": "g", "jobs": ["j1"], "within": "rack"}]}
    assert "needs 5 slots at once within one rack; the machines that it may take have at most 4 on rack:r" in why(
        cluster(sizes=(1, 5), **narrow)
    )
    document = cluster((2, 2, 2, 0), (5, 4), **gang).model_dump()
    document["jobs"][1]["priority"] = 1
    assert why(FlowInstance.model_validate(document)) == (
        "gang 'g' runs completely or not at all and needs 4 slots at once; 1 are free, and tasks worth as much or "
        "more hold the others"
    )
    shares = why(cluster(sizes=(8, 5), **gang), FairShares())
    assert shares == (
        "gang 'g' runs completely or not at all and needs 5 slots at once, 5 of them of job 'j1', whose share is 4"
    )
    spread = cluster(sizes=(1, 3), spreads=[{"name": "s", "jobs": ["j1"], "most": 1}])
    waiting = FlowScheduling(spread).solve("highs").waiting
    assert list(waiting.values()) == ["spread 's' has its limit wherever it could run (1 on rack:r0, 1 on rack:r1)"]


def test_the_program_is_what_is_solved_and_options_are_refused_by_name():
    instance = cluster(gangs=[{"name": "g", "jobs": ["j1"], "within": "rack"}], sizes=(3, 5))
    model = FlowScheduling(instance)
    program = model.formulation
    assert isinstance(program, LinearProgram) and program.is_mip
    assert {"gang", "gang_within", "gang_within_one", "waiting_1001_kept"} <= program.constraint_blocks.keys()
    assert solve(program, "highs").objective == model.solve("highs").score.cost
    with pytest.raises(EngineError, match="for integer programs use 'pulp' or 'highs'"):
        model.solve("network")
    assert FlowScheduling(instance, stage="waiting_1001").formulation.objective.count == 1


def test_what_the_tree_leaves_open_is_said() -> None:
    found = FlowScheduling(capacity_cluster(4, 16, 5), goals=GOALS).solve("highs", max_steps=1)
    assert found.certificate.ok and found.certificate.claim in ("optimal", "bounded")
    assert (found.status == "feasible") == ("not proven best" in found.message)
    assert all(bound <= found.stages[name] for name, bound in found.bounds.items())
