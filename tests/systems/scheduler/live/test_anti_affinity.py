"""Tasks that must run on different machines: the network gadget compared with brute force, static and live."""

import numpy as np
import pytest

from flowlex.instances.flow import Block, FlowInstance, FlowJob, FlowTask, Machine
from flowlex.instances.generators import generate
from flowlex.models.flow.goals import Continuity, DataLocality, LoadSpread, Placement
from flowlex.models.flow.model import FlowScheduling
from flowlex.systems.scheduler.live.scheduler import FlowScheduler
from tests.models.flow.changes_oracle import best, stated
from tests.models.flow.ties import GOALS as ORACLE

GOALS = (Placement(), DataLocality(), Continuity(base=2), LoadSpread())


def tagged(seed, **sizes):
    """A small random instance whose jobs have anti-affinity, some of them with tasks of other jobs."""
    instance = generate("flow-random", seed=seed, **sizes)
    rng = np.random.default_rng(seed)
    rules = [None, "red", "blue", "red"]
    jobs = tuple(j.model_copy(update={"different_machines": rules[int(rng.integers(4))]}) for j in instance.jobs)
    return instance.model_copy(update={"jobs": jobs})


@pytest.mark.parametrize("seed", range(20))
def test_the_gadget_is_the_best_of_all_schedules(seed):
    instance = tagged(seed, machines=3, jobs=3, most_tasks=3, most_slots=3)
    solution = FlowScheduling(instance, goals=ORACLE).solve("network")
    assert stated(solution) == best(instance)
    assert solution.certificate.ok


def test_engines_agree_and_the_network_stays_unimodular():
    from flowlex.validation.unimodularity.check import check

    model = FlowScheduling(tagged(3), goals=GOALS)
    assert "single file" in model.solution_method.schedule.network.arc_blocks
    assert len({model.solve(engine).score for engine in ("network", "highs", "pulp")}) == 1
    assert check(model).answer == "tu"


def spread_job(*tasks, rule="web", **more):
    return FlowJob(name=more.pop("name", "j"), tasks=tasks, different_machines=rule, **more)


def test_a_service_is_spread_over_machines_and_says_why_a_replica_waits():
    machines = (Machine(name="a", slots=4), Machine(name="b", slots=4))
    job = spread_job(*(FlowTask(name=f"t{k}") for k in range(3)))
    instance = FlowInstance(machines=machines, jobs=(job,))
    static = FlowScheduling(instance, goals=(Placement(),)).solve("network")
    live = FlowScheduler(instance, (Placement(),))
    delta = live.step()
    assert sorted(static.machine_of.values()) == ["a", "b"] == sorted(m for _, m in delta.placed)
    why = "every machine it could take runs another task of 'web'"
    assert list(static.waiting.values()) == [why] == list(live.waiting().values())
    live.add_machine(Machine(name="c"))
    assert [m for _, m in live.step().placed] == ["c"]


def test_jobs_with_one_rule_are_kept_apart_from_the_second_on():
    machines = (Machine(name="a", slots=3), Machine(name="b", slots=3))
    scheduler = FlowScheduler(FlowInstance(machines=machines), (DataLocality(),))
    near = (Block(size_mb=9, machines=("a",)),)
    scheduler.submit(spread_job(FlowTask(name="t", data=near)))
    scheduler.step()
    groups = len(scheduler.state.network.groups)
    assert scheduler.machine_of("t") == "a"
    assert not scheduler.state.network.single_file.groups  # alone, it needs no vertices of its own
    scheduler.submit(spread_job(FlowTask(name="u", data=near), name="k"))
    scheduler.submit(spread_job(FlowTask(name="v", data=near), name="l", rule="other"))
    scheduler.step()
    assert sorted(scheduler.machine_of(t) for t in "tuv") == ["a", "a", "b"]
    scheduler.cancel(job="j")
    scheduler.cancel(task="u")
    scheduler.step()
    assert not scheduler.state.network.single_file.groups
    assert len(scheduler.state.network.groups) == groups
