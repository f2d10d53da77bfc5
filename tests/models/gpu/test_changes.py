"""Changed rounds: comparison with a plain program, certificates, files, labels, messages."""

from collections.abc import Callable
from typing import Any

import pytest

from flowlex import generate
from flowlex.instances.gpu import GpuInstance
from flowlex.models.gpu.model import GpuAssignment, Penalties
from flowlex.models.model_base import ModelError
from tests.models.gpu.cases import job, task


def hand(*jobs: int, memory: float = 8.0, running: bool = False) -> GpuInstance:
    """Three GPUs: two on n1 of rack r1, one on n2 of rack r2. Jobs a, b, ... have data of one second, all on n1."""
    nodes = [
        {"name": f"n{k}", "rack": f"r{k}", "gpus": [{"name": f"g{g}", "memory_gb": memory} for g in gpus]}
        for k, gpus in ((1, (1, 2)), (2, (3,)))
    ]
    made = [
        job(
            name,
            *(
                task(f"{name}{t}", (100.0, "n1"), running=(f"g{t}", t) if running and name == "a" else None)
                for t in range(1, count + 1)
            ),
        )
        for name, count in zip("abc", jobs, strict=False)
    ]
    speeds = {"disk_mb_per_s": 100.0, "rack_mb_per_s": 50.0, "between_racks_mb_per_s": 25.0}
    return GpuInstance.model_validate({"name": "hand", "nodes": nodes, "jobs": made, **speeds})


def figures(solution: Any) -> dict[str, float]:
    return {name: float(value) for name, value in solution.stages.items()}


def test_labels_are_those_of_the_instance() -> None:
    instance = generate("gpu-random", seed=3)
    where = {gpu.name: (node.name, node.rack) for node in instance.nodes for gpu in node.gpus}
    job_of = {task.name: job.name for job in instance.jobs for task in job.tasks}
    memory = {gpu.name: gpu.memory_gb for gpu in instance.gpus}
    model = GpuAssignment(instance, policy="FS")
    pairs = set()
    for label in model.variables["x"].index.to_frame(index=False).to_dict("records"):
        assert label["job"] == job_of[label["task"]] and (label["node"], label["rack"]) == where[label["gpu"]]
        pairs.add((label["task"], label["gpu"]))
    assert pairs == {
        (task.name, gpu)
        for task in instance.tasks
        for gpu in where
        if (task.memory_gb <= memory[gpu] if task.running is None else task.running.gpu == gpu)
    }
    steps = model.variables["share_step"].index.to_frame(index=False)
    for each in instance.jobs:
        assert steps[steps.job == each.name].step.tolist() == list(range(1, len(each.tasks) + 1))


def test_an_own_row_binds_in_every_stage() -> None:
    model = GpuAssignment(hand(3, 3))
    x = model.variables["x"]
    assert figures(model.with_constraint("none", x.sum() <= 9).solve()) == {
        "share_1": 2, "share_2": 1, "share_3": 0, "running": 3, "transfer": 2 + 4 + 3 * 4
    }  # fmt: skip
    capped = model.with_constraint("quiet", x.sel(job="a", rack="r1").sum() <= 0).solve()
    assert figures(capped) == {"share_1": 2, "share_2": 1, "share_3": 0, "running": 3, "transfer": 18}
    assert capped.job_frame()["running"].tolist() == [1, 2]  # the fairest of the schedules that keep the rule
    only = model.with_constraint("quiet", x.sel(job="a").sum() <= 0).solve()
    assert figures(only) == {"share_1": 1, "share_2": 1, "share_3": 1, "running": 3, "transfer": 18}
    assert only.certificate is not None and (only.certificate.claim, only.certificate.exact) == ("optimal", True)


def test_one_row_for_each_job_and_rack() -> None:
    model = GpuAssignment(hand(3))
    x = model.variables["x"]
    changed = model.with_constraint("spread", x.sum(by=["job", "rack"]) <= 1)
    solution = changed.solve()
    assert figures(solution)["running"] == 2 and figures(solution)["transfer"] == 1 + 4 + 4
    assert changed.constraints["spread"].to_frame().index.tolist() == [("a", "r1"), ("a", "r2")]
    assert solution.stated.slack["spread"]["a,r1"] == 0


def test_bounds_fixed_choices_costs_and_own_variables() -> None:
    model = GpuAssignment(hand(2))
    x = model.variables["x"]
    assert figures(model.with_cost(0 * x.sum()).solve())["transfer"] == 2
    far = model.with_fixed(x.sel(task="a1", gpu="g3"), 1).solve()
    assert figures(far)["transfer"] == 1 + 4 and far.placement.gpu.tolist()[0] == 2
    assert figures(model.with_bounds(x.sel(gpu="g1"), upper=0).solve())["transfer"] == 1 + 4
    assert figures(model.with_cost(7 * x.sel(node="n1").sum()).solve())["transfer"] == 8 + 4
    opened = model.with_variable("open", upper=1, integer=True, node=["n1", "n2"])
    y, x = opened.variables["open"], opened.variables["x"]
    linked = opened.with_constraint("linked", x.sum(by="node") - 2 * y.sum(by="node") <= 0)
    assert figures(linked.with_cost(10 * y.sum()).solve())["transfer"] == 10 + 2  # both tasks on n1


def test_jobs_that_may_lose_tasks_are_those_above_the_shares_of_the_instance() -> None:
    model = GpuAssignment(hand(3, 1, running=True))
    assert figures(model.solve())["transfer"] == model.solve().objective
    x = model.variables["x"]
    kept = model.with_constraint("late", x.sel(job="a").sum() >= 3).solve()
    assert kept.preempted == () and kept.waiting == ("b1",)
    shut = model.with_fixed(x.sel(job="b"), 0).solve()
    assert shut.preempted == ()  # no job gains by a stop
    assert figures(model.with_fixed(x.sel(task="a1"), 0).solve())["stops"] == 1
    # a2 runs longer than a1, and a may lose one task only
    assert str(model.with_fixed(x.sel(task="a2"), 0).solve().status) == "infeasible"
    assert str(model.with_fixed(x.sel(task="a2"), 0).without("order").solve().status) == "optimal"
    assert str(model.with_fixed(x.sel(job="a"), 0).without("keep", "a").solve().status) == "optimal"
    assert str(model.with_fixed(x.sel(job="a"), 0).solve().status) == "infeasible"


def test_without_shares_only_totals_and_transfer_count() -> None:
    model = GpuAssignment(hand(3, 3))
    x = model.variables["x"]
    dropped = model.without("share").with_cost(-1 * x.sel(job="a").sum())
    assert dropped.solve().job_frame()["running"].tolist() == [3, 0]


def test_infeasible_rules_are_named_and_proven() -> None:
    model = GpuAssignment(hand(3, 3))
    x = model.variables["x"]
    many = model.with_constraint("busy", x.sel(rack="r2").sum() >= 2).solve()
    assert str(many.status) == "infeasible" and "busy" in many.infeasibility.constraints
    assert many.certificate is not None and many.certificate.claim == "infeasible"
    odd = model.with_constraint("odd", 2 * x.sel(rack="r1").sum() == 3).solve()
    assert str(odd.status) == "infeasible" and odd.infeasibility.constraints == ("odd",)
    assert odd.certificate is not None and odd.certificate.claim == "infeasible"


def test_split_tasks_of_a_relaxation_are_said() -> None:
    model = GpuAssignment(hand(2))
    half = model.with_constraint("half", 2 * model.variables["x"].sel(gpu="g1").sum() == 1).relaxed().solve()
    assert "split" in half.message and half.certificate is not None and half.certificate.claim == "optimal"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda m, x: x.sel(rak="r1"), "no level 'rak'; did you mean 'rack'"),
        (lambda m, x: x.sel(gpu="g4"), "no gpu 'g4'; there are: g1, g2, g3"),
        (lambda m, x: x.sum(by=["job", "rak"]), "no level 'rak'; did you mean 'rack'"),
        (lambda m, x: m.without("shares"), "no rows named 'shares'; did you mean 'share'"),
        (lambda m, x: m.without("share", "d"), "'share': no row 'd'"),
        (lambda m, x: m.without("task"), "cannot be dropped: a task would run several times"),
        (lambda m, x: m.without("gpu_out", "g1"), "cannot be dropped: a GPU would run several tasks at once"),
        (lambda m, x: m.with_cost(x, stage="transfers"), "no objective 'transfers'; did you mean 'transfer'"),
        (lambda m, x: m.with_cost(x, stage="stops"), "no objective 'stops'"),
        (lambda m, x: m.with_constraint("e", x.sel(task="a1", job="b").sum() <= 1), "over no variable"),
        (lambda m, x: m.with_constraint("share", x.sum() <= 1), "exist already"),
        (lambda m, x: m.with_constraint("stage_transfer", x.sum() <= 1), "exist already"),
        (lambda m, x: m.variables["y"], "no variables named 'y'; there are: x, share_step"),
        (lambda m, x: m.with_fixed(x, float("nan")), "with_fixed: value: 'nan' is no number"),
        (lambda m, x: m.interpret({"x": {"a1,g1": 0.5}}), "is integer, its value is 0.5"),
        (lambda m, x: m.interpret({"x": {"a1,g1": float("nan")}}), "a finite number, got nan"),
        (lambda m, x: x.sum() < 3, "write <="),
        (lambda m, x: 1 <= x.sum() <= 3, "neither true nor false"),
        (lambda m, x: x.sum() <= float("nan"), "finite"),
        (lambda m, x: x * x, "not linear"),
        (lambda m, x: m.with_fixed(x.sel(task="a1"), 2), "lies outside its bounds 0 and 1"),
        (lambda m, x: m.with_bounds(x.sel(job="a"), lower=2), "lower bound 2 above its upper 1"),
        (lambda m, x: m.with_variable("x", upper=1), "exist already"),
        (lambda m, x: m.relaxed("y"), "no variables named 'y'"),
        (
            lambda m, x: m.with_constraint("other", GpuAssignment(hand(1)).variables["x"].sum() <= 1),
            "belongs to another model",
        ),
    ],
)
def test_bad_input_is_named(make: Callable[..., Any], message: str) -> None:
    model = GpuAssignment(hand(3, 3))
    with pytest.raises(ModelError, match=message):
        make(model, model.variables["x"])


def test_waiting_at_a_price_takes_rules() -> None:
    """Waiting costs 0.5 x 4 s: only a task that starts beside its data costs less, and two do unless a rule says."""
    model = GpuAssignment(hand(3, 3), waiting="priced", penalties=Penalties(waiting=0.5))
    x = model.variables["x"]
    assert figures(model.solve()) == {"transfer": 2 + 4 * 2, "waiting": 4}
    one = model.with_constraint("one", x.sel(rack="r1").sum() <= 1).solve()
    assert figures(one) == {"transfer": 1 + 5 * 2, "waiting": 5}
    assert one.certificate is not None and (one.certificate.claim, one.certificate.exact) == ("optimal", True)
    assert figures(model.without("share").solve())["waiting"] == 4


def test_rows_that_are_needed_say_why_not() -> None:
    model = GpuAssignment(hand(2, 1, running=True), policy="FS")
    with pytest.raises(ModelError, match="'stay' cannot be dropped: running tasks would be lost"):
        model.without("stay")
    with pytest.raises(ModelError, match="no objective 'share_1'"):
        unfair = GpuAssignment(hand(1), policy="FSU")
        unfair.with_cost(unfair.variables["x"], stage="share_1")


def test_reasons_name_the_rules_at_their_limit() -> None:
    model = GpuAssignment(hand(3))
    x = model.variables["x"]
    capped = model.with_constraint("quiet", x.sel(job="a", rack="r1").sum() <= 1)
    capped = capped.with_constraint("spare", x.sum(by=["job", "rack"]) <= 2).solve()
    reasons = [reason for reason in capped.reasons() if reason]
    assert len(reasons) == 1 and reasons[0].endswith("under the changes of the model; at its limit: quiet")
