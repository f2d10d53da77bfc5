"""A cluster in parts: cut, solved, joined, and what the cut costs at most, against solving the cluster whole."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowlex import generate, read_instance, solve, verify
from flowlex.errors import FlowlexError
from flowlex.instances.files import write_instance
from flowlex.instances.flow import FlowInstance, FlowJob, FlowTask, Machine, RunningOn
from flowlex.instances.flow_partition import cut
from flowlex.validation.restated.flow.joined_parts import join

PRESETS = ("quincy", "borg", "alsched", "load_spread", "random", "none")


def part(name, machines, *tasks):
    """A part of the cluster of machines a, b and c, in racks of their own, with slots on some of them."""
    cluster = tuple(Machine(name=m, rack=m, slots=int(m in machines)) for m in "abc")
    return FlowInstance(name=name, machines=cluster, jobs=(FlowJob(name=name, tasks=tasks),) if tasks else ())


def test_a_cut_that_costs_exactly_one():
    """The task of the first part runs at home for 1; in the cluster it would run on b for 0, and the other on a."""
    first = part("p", "a", FlowTask(name="s", costs={"a": 1, "b": 0}))
    second = part("q", "b", FlowTask(name="t"))
    solved = [(each, solve(each, preset="alsched").to_dict()) for each in (first, second)]
    cluster = FlowInstance(
        name="both", machines=(first.machines[0], second.machines[1]), jobs=(first.jobs[0], second.jobs[0])
    )
    joined = join(solved, cluster)
    cost = joined.stages[-1]
    assert (cost.name, cost.value, cost.bound) == ("cost", 1, 0)
    assert joined.gap == 1.0
    assert solve(cluster, preset="alsched").objective == 0
    certificate = verify(joined.document, cluster)
    assert certificate.claim == "bounded" and certificate.ok


def lexicographic(solution):
    """Waiting tasks of the classes in order, and the cost, as a joined solution names them."""
    strict = solution.options["preset"] == "borg"
    waits = {f"waiting_{1001 - p if strict else 1}": n for p, n in solution.score.waiting}
    return waits | {"cost": solution.score.cost}


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.sampled_from(PRESETS), st.sampled_from(["auto", "phases"]), st.integers(1, 3))
def test_the_whole_optimum_lies_between_the_bound_and_the_joined_answer(seed, preset, order, parts):
    rng = np.random.default_rng(seed)
    sizes = {"machines": int(rng.integers(3, 9)), "jobs": int(rng.integers(0, 6)), "racks": int(rng.integers(2, 5))}
    cluster = generate("flow-random", seed=seed, **sizes)
    racks = len({machine.rack for machine in cluster.machines})
    made = cut(cluster, min(parts, racks))
    assert sorted(m.name for p in made for m in p.machines if m.slots) == sorted(
        m.name for m in cluster.machines if m.slots
    )
    joined = join([(each, solve(each, preset=preset, order=order).to_dict()) for each in made], cluster)
    certificate = verify(joined.document, cluster)
    assert certificate.ok, certificate
    best = lexicographic(solve(cluster, preset=preset, order=order))
    for stage in joined.stages:  # in strict order: a later one tells nothing once an earlier one is worse
        assert best[stage.name] <= stage.value
        assert stage.bound is None or stage.bound <= best[stage.name]
        if best[stage.name] < stage.value:
            break
    if len(made) == 1:
        assert all(stage.bound == stage.value for stage in joined.stages)


def overfull():
    """Two racks, one with two tasks too many; the other would have a slot for one."""
    machines = tuple(Machine(name=m, rack=m[0]) for m in ("a1", "a2", "b1", "b2"))
    held = [RunningOn(machine=m) for m in ("a1", "a2", "b1")]
    tasks = tuple(FlowTask(name=f"t{k}", running=run) for k, run in enumerate((*held, None)))
    return FlowInstance(name="c", machines=machines, jobs=(FlowJob(name="j", tasks=tasks),))


def test_racks_are_cut_in_order_into_near_equal_parts():
    slots = {"a": 4, "b": 1, "c": 1, "d": 3, "e": 3}
    machines = tuple(Machine(name=rack, rack=rack, slots=n) for rack, n in slots.items())
    cluster = FlowInstance(name="c", machines=machines)
    names = lambda parts: ["".join(m.name for m in each.machines) for each in cut(cluster, parts)]  # noqa: E731
    assert names(2) == ["abc", "de"] and names(3) == ["a", "bcd", "e"] and names(5) == ["a", "b", "c", "d", "e"]


def test_a_waiting_task_goes_where_a_slot_is_free():
    made = cut(overfull(), 2)
    assert sorted(len(list(each.tasks)) for each in made) == [2, 2]


def test_a_bound_that_is_too_high_and_prices_that_prove_less_are_refused():
    cluster = generate("flow-random", seed=0, machines=8, jobs=5, racks=4)
    joined = join([(each, solve(each, preset="quincy").to_dict()) for each in cut(cluster, 3)], cluster)
    document = joined.document
    cost = joined.stages[-1]
    assert cost.bound < cost.value and verify(document, cluster).ok
    raised = document | {"bound": cost.bound + 1, "gap": (cost.value - cost.bound - 1) / abs(cost.value)}
    assert not verify(raised, cluster).ok
    stated = document | {"metrics": document["metrics"] | {"cost_at_least": cost.bound + 1}}
    assert not verify(stated, cluster).ok
    stages = document["proof"]["stages"]
    leaf = {"complete": ["task"], "rows": {"machine": {"default": -1000, "at": {}}}}
    dear = document | {"proof": {"format": 3, "stages": stages | {"cost": [leaf]}}}
    assert not verify(dear, cluster).ok


def test_prices_of_the_wrong_sign_prove_nothing_false():
    """A negative price of the free slot would raise the bound above the costs, which are 0."""
    leaf = {"complete": ["task"], "rows": {"machine": {"default": 1000, "at": {}}}}
    forged = {"status": "feasible", "bound": None, "gap": None, "certificate": None}
    forged["proof"] = {"format": 3, "stages": {"cost": [leaf]}}
    parts = part("p", "a", FlowTask(name="s")), part("q", "b", FlowTask(name="t")), part("r", "c")
    joined = join([(each, solve(each, preset="alsched").to_dict() | forged) for each in parts])
    assert joined.stages[-1].bound <= joined.stages[-1].value == 0


def refusals():
    first = part("p", "a", FlowTask(name="s"))
    yield "both have slots on machine 'a'", [first, part("q", "ab")], {}
    yield "a task of the same name", [first, part("q", "b", FlowTask(name="s"))], {}
    yield "goals in strict order", [generate("flow-random", seed=1)], {"preset": "quincy", "lexicographic": True}
    other = part("q", "b").model_copy(update={"machines": (Machine(name="a", rack="r", slots=0),)})
    yield "another rack", [first, other], {}


@pytest.mark.parametrize(("message", "parts", "options"), [*refusals()], ids=lambda each: str(each)[:20])
def test_what_is_no_part_of_one_cluster_is_refused(message, parts, options):
    with pytest.raises(FlowlexError, match=message):
        join([(each, solve(each, **options).to_dict()) for each in parts])


def test_capacities_and_too_many_parts_are_refused():
    with pytest.raises(FlowlexError, match="expected 1 to 2 parts"):
        cut(overfull(), 3)
    machines = tuple(m.model_copy(update={"slots": 1, "capacity": {"cpu": 1}}) for m in overfull().machines)
    with pytest.raises(FlowlexError, match="capacities may join"):
        cut(overfull().model_copy(update={"machines": machines}), 2)


def test_limits_of_preemption_are_split_without_rest():
    cluster = overfull()
    job = cluster.jobs[0].model_copy(update={"preemptions_per_hour": 3, "preempted_s": (10.0, 4000.0)})
    made = cut(cluster.model_copy(update={"jobs": (job,)}), 2)
    assert sum(each.jobs[0].preemptions_per_hour for each in made) == 2


def test_the_commands_cut_solve_and_join_and_name_a_part_without_solution(run, tmp_path):
    cluster = generate("flow-random", seed=0, machines=8, jobs=5, racks=4)
    write_instance(cluster, tmp_path / "c.json")
    assert run("cut", "c.json", "--parts", 3, "-o", "parts").exit_code == 0
    assert "use --force" in run("cut", "c.json", "--parts", 3, "-o", "parts").stderr
    assert run("solve", "parts", "-o", "out", "--set", "preset=quincy").exit_code == 0
    told = run("join", "out", "parts", "--cluster", "c.json", "-o", "c.solution.json", "--json")
    facts = json.loads(told.stdout)
    assert facts["parts"] == 3 and facts["stages"]["cost"]["at_least"] <= facts["stages"]["cost"]["value"]
    assert run("verify", "c.solution.json", "c.json").exit_code == 0
    assert "cost of the cut" in run("join", "out", "parts").stdout
    (tmp_path / "out" / "c-2.solution.json").unlink()
    missing = run("join", "out", "parts")
    assert missing.exit_code == 2 and "c-2.json.gz" in missing.stderr and "--resume" in missing.stderr


def test_cells_of_a_simulated_cluster_are_parts_of_one(tmp_path):
    sizes = {"cells": 3, "machines": 100, "imbalance": 0.3, "load": 1.0}
    cells = [generate("flow-cell", cell=k, **sizes) for k in range(3)]
    for k, cell in enumerate(cells):
        write_instance(cell, tmp_path / f"{k}.json.gz")
    assert read_instance(tmp_path / "0.json.gz") == cells[0]
    joined = join([(tmp_path / f"{k}.json.gz", solve(c, preset="quincy").to_dict()) for k, c in enumerate(cells)])
    assert joined.machines == 300 and joined.tasks == sum(1 for cell in cells for _ in cell.tasks)
    slots = {m.name: m for cell in cells for m in cell.machines if m.slots}
    jobs = tuple(job for cell in cells for job in cell.jobs)
    best = solve(FlowInstance(name="all", machines=tuple(slots.values()), jobs=jobs), preset="quincy")
    waiting, cost = joined.stages
    assert waiting.bound <= best.score.waiting[0][1] <= waiting.value
    assert cost.bound is None or cost.bound <= best.score.cost <= cost.value


def test_prices_that_leave_64_bits_when_slots_multiply_them_prove_nothing():
    """A part may state any price of a machine; this one, times the slots, is 2 ** 63."""
    parts = [
        FlowInstance(
            name=m,
            machines=(Machine(name=m, rack=m, slots=16),),
            jobs=(FlowJob(name=m, tasks=(FlowTask(name=f"of {m}", costs={m: 1}),)),),
        )
        for m in "ab"
    ]
    solved = [(each, solve(each, preset="alsched").to_dict()) for each in parts]
    document = json.loads(json.dumps(solved[0][1])) | {"status": "feasible", "bound": None, "gap": None}
    leaf = document["proof"]["stages"]["cost"][0]
    leaf["rows"] = {"machine": {"at": {"a": -(2**59)}}}
    document["certificate"], document["metrics"] = (
        None,
        {"running": 1, "waiting": 0, "placed": 1, "moved": 0}
        | {
            "stopped": 0,
            "cost": 1,
        },
    )
    (cost,) = (stage for stage in join([(parts[0], document), solved[1]]).stages if stage.name == "cost")
    assert cost.value == 2 and cost.bound <= 2
