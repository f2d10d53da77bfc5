"""Changed models of flow scheduling: comparison with a plain program, certificates, files, labels, messages."""

import json
from dataclasses import replace
from fractions import Fraction

import pytest

from flowlex.instances.flow import FlowInstance, FlowJob, FlowTask, Machine
from flowlex.models.flow.model import FlowScheduling
from flowlex.models.model_base import ModelError
from flowlex.validation.certificates import verify
from tests.models.flow.ties import GOALS, tied_cluster, with_capacities
from tests.pulp_solver import solver_of_pulp


def hand(**changes) -> FlowInstance:
    """Two jobs of two tasks; a (2 slots) and b (1) in rack r1, zone z; c (1) in r2. Placing costs 1 on a, 2 on b, 4."""
    machines = [
        {"name": "a", "slots": 2, "rack": "r1", "labels": ["zone=z", "gpu"]},
        {"name": "b", "rack": "r1", "labels": ["zone=z"]},
        {"name": "c", "rack": "r2"},
    ]
    costs = {"a": 1, "b": 2, "c": 4}
    jobs = [
        {"name": job, "tasks": [{"name": f"{job}{k}", "costs": costs} for k in (1, 2)], "priority": p}
        for job, p in (("J", 0), ("K", 1))
    ]
    return FlowInstance.model_validate({"name": "hand", "machines": machines, "jobs": jobs, **changes})


def model(**options) -> FlowScheduling:
    return FlowScheduling(hand(), **({"preset": "none"} | options))


def figures(solution) -> dict[str, float]:
    return {name: float(value) for name, value in solution.stages.items()}


def proven(solution):
    """Return the solution after checking that its file is proven too."""
    document = json.loads(json.dumps(solution.to_dict()))
    assert verify(document, solution.source).claim == solution.certificate.claim
    assert solution.certificate.claim in ("optimal", "infeasible")
    return solution


def test_labels_are_those_of_the_instance():
    x = model().variables["x"].index.to_frame(index=False)
    rows = {(r.task, r.machine): (r.job, r.rack, r.zone, r.gpu) for r in x.itertuples()}
    assert len(rows) == 12
    for (task, machine), labels in rows.items():
        where = {"a": ("r1", "z", "yes"), "b": ("r1", "z", "no"), "c": ("r2", "", "no")}[machine]
        assert labels == (task[0], *where)
    assert model().variables["waits"].index.to_frame(index=False).to_numpy().tolist() == [
        ["J1", "J"], ["J2", "J"], ["K1", "K"], ["K2", "K"]
    ]  # fmt: skip


def test_each_kind_of_change_by_hand():
    free = model()
    assert figures(run(free)) == {"waiting_1": 0, "cost": 1 + 1 + 2 + 4}
    x, waits = free.variables["x"], free.variables["waits"]
    assert figures(proven(free.with_constraint("quiet", x.sel(rack="r1").sum() <= 2).solve())) == {
        "waiting_1": 1, "cost": 1 + 1 + 4
    }  # fmt: skip
    one = proven(free.with_constraint("one_in_a_rack", x.sum(by=["job", "rack"]) <= 1).solve())
    assert figures(one) == {"waiting_1": 1, "cost": 1 + 1 + 4} and len(one.waiting) == 1
    assert set(one.waiting.values()) == {
        "no slot that the changed model leaves it is worth more to it than to others, or than waiting"
    }
    assert figures(proven(free.with_fixed(x.sel(task="J1", machine="c"), 1).solve()))["cost"] == 4 + 1 + 1 + 2
    assert figures(proven(free.with_fixed(waits.sel(task="K2"), 1).solve())) == {"waiting_1": 1, "cost": 4}
    assert figures(proven(free.with_bounds(x.sel(gpu="yes"), upper=0).solve())) == {"waiting_1": 2, "cost": 6}
    assert figures(proven(free.without("machine").solve()))["cost"] == 4
    assert figures(proven(free.without("machine", "a").solve()))["cost"] == 4
    assert figures(proven(free.with_cost(Fraction(5, 2) * x.sel(machine="b").sum()).solve()))["cost"] == 10.5
    owner = free.with_variable("open", upper=1, integer=True, machine=["b", "c"])
    own, x = owner.variables["open"], owner.variables["x"]
    linked = owner.with_constraint("linked", x.sel(machine=["b", "c"]).sum(by="machine") - own.sum(by="machine") <= 0)
    assert figures(proven(linked.with_constraint("one", own.sum() <= 1).solve())) == {"waiting_1": 1, "cost": 4}


def run(unchanged):
    """Solve the statement of the unchanged model."""
    solution = unchanged.problem.solve()
    return replace(solution, stages={name: stage.value for name, stage in solution.stages.items()})


def test_an_answer_is_the_familys_own():
    solution = proven(model().with_fixed(model().variables["x"].sel(task="J1", machine="c"), 1).solve())
    assert solution.machine_of["J1"] == "c" and solution.score.cost == solution.objective == 8
    assert solution.to_frame().machine.tolist()[0] == "c"
    assert solution.placed == tuple(solution.machine_of)
    assert solution.stated.slack["machine"]["c"] == 0


def test_shares_bind_until_they_are_dropped():
    from flowlex.models.flow.goals import FairShares

    instance = hand(jobs=[
        {"name": "J", "tasks": [{"name": f"J{k}"} for k in range(4)]},
        {"name": "K", "tasks": [{"name": f"K{k}"} for k in range(4)]},
    ])  # fmt: skip
    fair = FlowScheduling(instance, goals=(FairShares(),))
    x = fair.variables["x"]
    tight = proven(fair.with_constraint("few", x.sel(job="J").sum() <= 1).solve())
    assert figures(tight)["shortfall"] == 1 and len(tight.machine_of) == 3
    loose = fair.with_constraint("few", x.sel(job="J").sum() <= 1).without("share")
    assert len(proven(loose.solve()).machine_of) == 4


def test_rules_that_nothing_keeps_are_named_and_proven():
    free = model()
    x = free.variables["x"]
    found = proven(free.with_constraint("many", x.sel(rack="r2").sum() >= 2).solve())
    assert str(found.status) == "infeasible" and "many" in found.infeasibility.constraints


def test_fractions_of_a_relaxation_are_said():
    free = model()
    x = free.variables["x"]
    split = free.with_constraint("half", x.sel(task="J1", machine="a") == Fraction(1, 2)).relaxed().solve()
    assert "share fractions" in split.message and "J1" not in split.machine_of


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda m: m.variables["x"].sel(node="a"), "no level 'node'.*here are: task, machine, job, rack, zone, gpu"),
        (lambda m: m.variables["x"].sel(machine="aa"), "no machine 'aa'; did you mean 'a'"),
        (lambda m: m.with_fixed(m.variables["x"].sel(task="J1", machine="a"), 2), "outside its bounds 0 and 1"),
        (lambda m: m.without("machines"), "no rows named 'machines'; did you mean 'machine'"),
        (lambda m: m.without("task"), "cannot be dropped: a task runs on one machine or waits"),
        (lambda m: m.with_cost(m.variables["x"].sum(), stage="costs"), "no objective 'costs'; did you mean 'cost'"),
        (lambda m: m.with_constraint("r", m.variables["x"].sum() <= float("nan")), "finite"),
        (lambda m: m.variables["x"].sum() < 1, "write <="),
        (lambda m: m.variables["x"].sum() * m.variables["x"].sum(), "product"),
        (lambda m: bool(0 <= m.variables["x"].sum() <= 2), "neither true nor false"),
        (lambda m: m.with_bounds(m.variables["x"].sel(task="J1"), lower=2), "lower bound 2 above its upper 1"),
    ],
)  # fmt: skip
def test_what_cannot_be_changed_says_so(change, says):
    with pytest.raises(ModelError, match=says):
        change(model())


def test_a_changed_model_keeps_the_weights_of_its_objective():
    found = []
    for order in ("auto", "weights"):
        changed = FlowScheduling(hand(), order=order)
        found.append(proven(changed.with_constraint("few", changed.variables["x"].sum() <= 1).solve()))
    assert found[0].objective == found[1].objective and found[0].weights == found[1].weights is not None


def test_names_of_labels_that_are_taken():
    machines = [{"name": "a", "labels": ["rack=x", "zone", "zone=b"]}, {"name": "b"}]
    odd = FlowScheduling(
        FlowInstance.model_validate({"machines": machines, "jobs": [{"name": "J", "tasks": [{"name": "t"}]}]})
    )
    x = odd.variables["x"].index.to_frame(index=False)
    assert x.columns.tolist() == ["task", "machine", "job", "rack", "rack_label", "zone", "zone_label"]
    assert x.iloc[0].tolist() == ["t", "a", "J", "rack0", "x", "b", "yes"]
    proven(odd.with_bounds(odd.variables["x"].sel(zone_label="yes"), upper=0).solve())


def test_capacities_preemptions_and_gangs_stay_rows_of_a_changed_model():
    machines = [{"name": n, "slots": 3, "capacity": {"cpu": 1.5}} for n in "ab"]
    jobs = [{"name": "J", "tasks": [{"name": f"t{k}", "demands": {"cpu": 0.7}} for k in range(6)]}]
    packed = FlowScheduling(FlowInstance.model_validate({"machines": machines, "jobs": jobs}))
    x = packed.variables["x"]
    assert len(proven(packed.with_constraint("few", x.sel(machine="a").sum() <= 1).solve()).machine_of) == 3
    assert len(proven(packed.without("capacity", "a,cpu").solve()).machine_of) == 5
    kept = hand(jobs=[{"name": "J", "preemptions_per_hour": 1, "priority": 5, "tasks": [
        {"name": f"J{k}", "running": {"machine": "a"}} for k in (1, 2)]}])  # fmt: skip
    limited = FlowScheduling(kept)
    x = limited.variables["x"]
    assert {*x.index.get_level_values("machine")} == {"a"}
    assert len(proven(limited.with_constraint("less", x.sum() <= 1).solve()).stopped) == 1
    assert str(proven(limited.with_constraint("none", x.sum() <= 0).solve()).status) == "infeasible"
    both = FlowScheduling(hand(gangs=[{"name": "g", "tasks": ["J1", "J2", "K1"], "within": "rack"}]), preset="none")
    apart = both.with_constraint("one_on_a_machine", both.variables["x"].sel(task=["J1", "K1"]).sum(by="machine") <= 1)
    assert proven(apart.without("gang_within").solve()).status and len(apart.solve().machine_of) == 4


def test_a_program_goes_out_and_its_answer_comes_back():
    changed = model().with_constraint("quiet", model().variables["x"].sel(rack="r1").sum() <= 2)
    assert changed.sizes()["columns"] == 16 and "program" in changed.solve().stated.method
    problem = changed.compile("cost", before={"waiting_1": 1})
    problem.solve(solver_of_pulp())
    again = changed.interpret(problem)
    assert figures(again) == figures(changed.solve())


def test_labels_of_machines_may_have_names_of_levels() -> None:
    labels = (("slot=a", "job"), ("slot=b", "x[1]"))
    machines = tuple(Machine(name=f"m{k}", labels=each) for k, each in enumerate(labels))
    job = FlowJob(name="j", tasks=(FlowTask(name="t0"), FlowTask(name="t1")))
    model = FlowScheduling(FlowInstance(name="labels", machines=machines, jobs=(job,)))
    x = model.variables["x"]
    changed = model.with_constraint("empty", x.sel(slot_label="b").sum() <= 0).solve()
    assert set(changed.machine_of.values()) == {"m0"}
    assert changed.certificate.claim == "optimal"
    assert not model.with_constraint("none", x.sel(job_label="yes").sum() <= 0).solve().machine_of.keys() & {"m0"}


@pytest.mark.parametrize("seed", range(4))
def test_what_is_printed_is_what_the_model_holds(seed: int) -> None:
    for instance in (tied_cluster(seed), with_capacities(tied_cluster(seed), seed)):
        model = FlowScheduling(instance, goals=GOALS)
        printed = model.to_latex()
        assert list(model.constraints) == list(model.problem.rows)
        assert all(rf"\text{{{name}:}}".replace("_", r"\_") in printed for name in model.constraints)
        assert all(len(model.constraints[name]) == row.index.count for name, row in model.problem.rows.items())
