"""Flow scheduling: the paper's examples, strict orders compared with brute force, combined goals."""

from collections import Counter

import pytest

from flowlex.formulations import EngineError
from flowlex.instances.flow import Block, Constraint, FlowInstance, FlowJob, FlowTask, Machine, RunningOn
from flowlex.instances.generators import generate
from flowlex.models import ModelError
from flowlex.models.flow.goals import (
    PRESETS,
    Continuity,
    DataLocality,
    FairShares,
    LoadSpread,
    Placement,
    Priority,
    RandomCosts,
    preset,
)
from flowlex.models.flow.model import FlowScheduling

Task = FlowTask


def cluster(count, slots=1, **more):
    return tuple(Machine(name=f"M{k}", slots=slots, **more) for k in range(count))


def job(name, *tasks, **more):
    return FlowJob(name=name, tasks=tuple(Task(name=t) if isinstance(t, str) else t for t in tasks), **more)


def requires(*machines):
    return (Constraint(kind="required", resources=tuple(f"machine:{m}" for m in machines)),)


def counter_example():
    """The paper's case: displacing a chain of tasks costs more than the gap between two priorities."""
    high = job(
        "high",
        Task(name="H", constraints=requires("M0")),
        Task(name="A1", constraints=requires("M0", "M1"), costs={"M0": 0, "M1": 10}),
        Task(name="A2", constraints=requires("M1", "M2"), costs={"M1": 0, "M2": 10}),
        priority=1,
    )
    low = job("low", Task(name="L", constraints=requires("M2")), priority=2)
    return FlowInstance(name="chain", machines=cluster(3), jobs=(high, low))


@pytest.mark.parametrize("engine", ["pulp", "highs", "network"])
def test_fairness_bounds_of_the_paper(engine):
    instance = FlowInstance(machines=cluster(4), jobs=(job("a", "a0", "a1", "a2"), job("b", "b0", "b1", "b2", "b3")))
    model = FlowScheduling(instance, goals=(FairShares(),))
    network = model.solution_method.schedule.network
    share = network.arc_blocks["share"].slice
    assert list(zip(network.lower[share], network.upper[share], strict=True)) == [(1, 1), (2, 2)]
    solution = model.solve(engine)
    assert Counter(solution.job_of[t] for t in solution.machine_of) == {"a": 2, "b": 2}
    assert set(solution.waiting.values()) == {"the share of its job is used up"}


def test_gpu_utility_of_the_paper():
    likes = (Constraint(kind="preferred", resources=("gpu",), utility=1),)
    machines = (Machine(name="M2"), Machine(name="M1", labels=("gpu",)))
    instance = FlowInstance(machines=machines, jobs=(job("j", Task(name="T1", constraints=likes)),))
    solution = FlowScheduling(instance, goals=(Placement(),)).solve("network")
    assert solution.machine_of == {"T1": "M1"}
    assert solution.score.cost == -1


@pytest.mark.parametrize("mode", ["strict", "weighted"])
def test_priorities_of_the_paper(mode):
    jobs = tuple(job(f"j{p}", f"T{p}", priority=p) for p in (5, 2, 1))
    instance = FlowInstance(machines=cluster(1), jobs=jobs)
    assert FlowScheduling(instance, goals=(Priority(mode=mode),)).solve("network").machine_of == {"T1": "M0"}


@pytest.mark.parametrize("method", ["weights", "phases"])
def test_strict_priority_is_strict_where_the_papers_weight_is_not(method):
    instance = counter_example()
    strict = FlowScheduling(instance, goals=(Priority(), Placement()), order=method).solve("network")
    assert strict.machine_of == {"H": "M0", "A1": "M1", "A2": "M2"}
    assert set(strict.waiting) == {"L"}
    weighted = FlowScheduling(instance, goals=(Priority(mode="weighted", omega=10), Placement())).solve("network")
    assert Priority(mode="weighted", omega=10).gap == 11
    assert "L" in weighted.machine_of
    assert weighted.score.cost == 22


def test_the_published_weight_of_a_step_of_priority_only_ties_with_the_other_dimensions():
    high, low = Task(name="high", costs={"M0": 10}), Task(name="low")
    instance = FlowInstance(machines=cluster(1), jobs=(job("a", high, priority=0), job("b", low, priority=1)))
    goals = {mode: (Priority(mode=mode, omega=10), Placement()) for mode in ("published", "weighted")}
    solved = {mode: FlowScheduling(instance, goals=each).solve("network") for mode, each in goals.items()}
    assert solved["published"].score.cost == 20  # 10 to place high and 10 to let low wait, or 2 x 10 for high
    assert solved["weighted"].score.cost == 21 and set(solved["weighted"].machine_of) == {"high"}
    assert all(each.certificate.claim == "optimal" for each in solved.values())
    model = FlowScheduling(instance, goals=goals["published"])
    assert model.problem.symbols["w"][0].endswith("(Sirius' vector cost)")
    assert [each.name for each in model.problem.objectives] == ["cost"]


def test_weights_that_would_overflow_switch_to_phases_and_say_so():
    huge = Task(name="t", costs={"M0": 2**45}, constraints=requires("M0"))
    instance = FlowInstance(machines=cluster(1), jobs=(job("a", huge, priority=1), job("b", "u", priority=0)))
    solution = FlowScheduling(instance, goals=(Priority(), Placement())).solve("network")
    assert solution.method.startswith("phases: the strict order would need a weight of")
    assert solution.machine_of == {"u": "M0"}
    with pytest.raises(ModelError, match="use order='phases'"):
        FlowScheduling(instance, goals=(Priority(), Placement()), order="weights").solve("network")
    assert FlowScheduling(instance, goals=(Priority(), Placement())).solve("highs").machine_of == {"u": "M0"}
    with pytest.raises(EngineError, match="not exact in floating point"):
        dear = instance.model_copy(update={"jobs": (job("a", Task(name="t", costs={"M0": 2**54}), priority=1),)})
        FlowScheduling(dear, goals=(Priority(), Placement())).solve("highs")


@pytest.mark.parametrize("options", [{"order": "phases"}, {"lexicographic": True, "preset": "quincy"}])
def test_strict_orders_are_proven_by_every_engine(options):
    instance = generate("flow-random", seed=1)
    found = [FlowScheduling(instance, **options).solve(engine) for engine in ("network", "highs", "pulp")]
    assert len({tuple(solution.stages.items()) for solution in found}) == 1
    assert all(solution.certificate.claim == "optimal" and solution.certificate.exact for solution in found)
    stopped = FlowScheduling(instance, **options).solve("highs", max_steps=3)
    assert (stopped.status in ("feasible", "time_limit") and stopped.certificate is None) or stopped.certificate.ok


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", sorted(PRESETS))
def test_engines_agree_on_every_preset(name, seed):
    instance = generate("flow-random", seed=seed)
    scores = {FlowScheduling(instance, preset=name).solve(engine).score for engine in ("network", "highs")}
    assert len(scores) == 1


def test_the_network_is_totally_unimodular():
    from flowlex.validation.unimodularity.check import check

    assert check(FlowScheduling(generate("flow-random", seed=1))).answer == "tu"


def test_goals_in_strict_order():
    """Locality first keeps the task at its data, spreading first moves it away."""
    data = (Block(size_mb=5, machines=("M0",)),)
    tasks = [Task(name=f"t{k}", data=data) for k in range(2)]
    instance = FlowInstance(machines=cluster(2, slots=2), jobs=(job("j", *tasks),))
    near = FlowScheduling(instance, goals=(DataLocality(), LoadSpread()), lexicographic=True).solve("network")
    assert set(near.machine_of.values()) == {"M0"}
    spread = FlowScheduling(instance, goals=(LoadSpread(), DataLocality()), lexicographic=True).solve("network")
    assert set(spread.machine_of.values()) == {"M0", "M1"}


def test_a_required_resource_that_is_nowhere_lets_the_task_wait_with_the_reason():
    wants = (Constraint(kind="required", resources=("tpu",)),)
    instance = FlowInstance(machines=cluster(1), jobs=(job("j", Task(name="t", constraints=wants)),))
    solution = FlowScheduling(instance, goals=(Placement(), FairShares())).solve("network")
    assert solution.waiting == {"t": "no machine meets its placement (tpu)"}
    assert solution.score.shortfall == 0  # slots that it may not use do not count for its share


def test_real_utilities_are_scaled_exactly_or_refused():
    def instance(utility):
        likes = (Constraint(kind="preferred", resources=("machine:M0",), utility=utility),)
        return FlowInstance(machines=cluster(1), jobs=(job("j", Task(name="t", constraints=likes)),))

    model = FlowScheduling(instance(0.125), goals=(Placement(),))
    assert model.rules.scale.factor == 8
    assert model.solve("network").score.cost == -1
    assert FlowScheduling(instance(1e-7), goals=(Placement(),)).solve("network").score.cost == -1
    with pytest.raises(ModelError, match="scaled by 25000000000000000, beyond 9007199254740992"):
        FlowScheduling(instance(0.1 + 0.2), goals=(Placement(),)).solve("network")
    with pytest.raises(ModelError, match="no whole number of 1/2; pass scale=8"):
        FlowScheduling(instance(0.125), goals=(Placement(),), scale=2).solve("network")
    with pytest.raises(ModelError, match="wait_cost is nan"):
        FlowScheduling(instance(1), wait_cost=float("nan"))


def test_refusals():
    instance = generate("flow-random", seed=0)
    with pytest.raises(ModelError, match="two goals are of kind Priority"):
        FlowScheduling(instance, goals=(Priority(), Priority())).solve("network")
    with pytest.raises(ModelError, match="Priority has no mode 'loose'"):
        Priority(mode="loose")
    with pytest.raises(ModelError, match="FairShares has no kind"):
        FairShares("equal")
    with pytest.raises(ModelError, match="no cost model is named 'mesos'"):
        preset("mesos")
    with pytest.raises(ModelError, match="weights are whole"):
        Priority(weights={"cpu": float("nan")})
    with pytest.raises(ModelError, match="priority 9 exceeds the lowest, 4"):
        nine = FlowInstance(machines=cluster(1), jobs=(job("j", "a", priority=9),))
        FlowScheduling(nine, goals=(Priority(mode="weighted", lowest=4),)).solve("network")


def test_weighted_priorities_and_demands():
    big = Task(name="big", demands={"cpu": 8})
    small = Task(name="small", demands={"cpu": 1})
    instance = FlowInstance(machines=cluster(1), jobs=(job("j", big, small),))
    goal = Priority(weights={"cpu": 1}, mode="weighted", limits={"cpu": 8})
    assert FlowScheduling(instance, goals=(goal,)).solve("network").machine_of == {"small": "M0"}
    with pytest.raises(ModelError, match="demands 8 cpu, beyond 4"):
        FlowScheduling(instance, goals=(Priority(weights={"cpu": 1}, mode="weighted", limits={"cpu": 4}),)).solve(
            "network"
        )


def test_an_explicit_cost_replaces_what_placing_costs_but_not_the_credit_for_staying():
    system = pytest.importorskip("flowlex.systems.scheduler.live.scheduler")

    def place(cost, elapsed=60):
        task = Task(name="t", running=RunningOn(machine="M0", elapsed_s=elapsed), costs={"M0": cost})
        instance = FlowInstance(machines=cluster(2), jobs=(job("j", task),))
        goals = (Continuity(base=1, rate=2, unit_s=60), RandomCosts(most=1))
        static = FlowScheduling(instance, goals=goals).solve("network")
        live = system.FlowScheduler(instance, goals)
        live.step()
        assert (live.placements(), live.score()) == (static.machine_of, static.score)
        return static.machine_of["t"], static.score.cost

    assert place(2) == ("M0", -1)  # the credit is 1 + 2
    assert place(4) == ("M1", 0)
    assert place(4, elapsed=180) == ("M0", -1)


def test_explicit_costs_count_with_the_first_of_ordered_goals():
    task = Task(name="t", costs={"M0": 1, "M1": 2})
    machines = (Machine(name="M0"), Machine(name="M1"), Machine(name="M2"))
    data = Task(name="u", data=(Block(size_mb=9, machines=("M1",)),), costs={"M2": 5})
    instance = FlowInstance(machines=machines, jobs=(job("j", task, data),))
    solution = FlowScheduling(instance, goals=(DataLocality(), LoadSpread()), lexicographic=True).solve("network")
    assert solution.machine_of == {"t": "M2", "u": "M1"}
    assert solution.score.by_goal == (("DataLocality", 0), ("LoadSpread", 0))
    second = FlowScheduling(instance, goals=(RandomCosts(most=1), DataLocality()), lexicographic=True).solve("network")
    assert second.machine_of == {"t": "M2", "u": "M1"}
    only = FlowInstance(machines=machines[:2], jobs=(job("j", task),))
    solution = FlowScheduling(only, goals=(DataLocality(), LoadSpread()), lexicographic=True).solve("network")
    assert solution.score.by_goal == (("DataLocality", 1), ("LoadSpread", 0))
