"""Volcano-like and Kueue-like queues, and fair shares of users, on cases worked by hand."""

import pytest

from flowlex.instances import generate
from flowlex.systems.simulation.cluster import SIMULATOR, simulate_cluster
from flowlex.systems.simulation.cluster_workload import ClusterJob, ClusterNode, ClusterTask, ClusterWorkload, Place
from flowlex.systems.simulation.policy_registry import make_policy
from flowlex.systems.simulation.scenario import PolicyChoice


def job(name, user, count, *, at=0.0, seconds=100.0, priority=0):
    tasks = tuple(ClusterTask(name=f"{name}.{k}", demand={"slot": 1}, compute_s=seconds) for k in range(count))
    return ClusterJob(name=name, user=user, tasks=tasks, arrival_s=at, priority=priority)


def run(policy, slots, *jobs, **parameters):
    """Starts and stops as (second, event, task)."""
    node = ClusterNode(name="n", places=(Place(name="n.s", capacity={"slot": slots}),))
    work = ClusterWorkload(name="w", nodes=(node,), jobs=jobs)
    made = make_policy("cluster", PolicyChoice(name=policy, parameters=parameters))
    log = simulate_cluster(work, made)
    return [(record["at_s"], record["event"], record["task"]) for record in log.of("start", "stop")]


@pytest.mark.parametrize(("policy", "more"), [("Volcano", {}), ("FlowScheduler", {"fair": True, "goals": "none"})])
def test_a_user_below_its_share_takes_back_what_others_hold_beyond_theirs(policy, more):
    found = run(policy, 4, job("a", "ann", 4), job("b", "bob", 3, at=10.0), **more)
    later = [each for each in found if each[0] > 0]
    assert [event for at, event, _ in later if at == 10.0].count("stop") == 2
    assert sum(task.startswith("b") for at, event, task in later if at == 10.0 and event == "start") == 2


def test_volcano_stops_less_important_tasks_of_the_same_queue_only():
    found = run("Volcano", 2, job("low", "ann", 1, priority=5), job("b", "bob", 1), job("high", "ann", 1, at=10.0))
    assert found[2:4] == [(10.0, "stop", "low.0"), (10.0, "start", "high.0")]
    same = run("Volcano", 1, job("low", "ann", 1), job("next", "ann", 1, at=10.0))
    assert [event for _, event, _ in same] == ["start", "start"] and same[1][0] == 100.0


def test_kueue_admits_jobs_whole_and_reclaims_what_was_borrowed():
    found = run("Kueue", 4, job("a", "ann", 3), job("b", "bob", 2, at=10.0))
    assert [each for each in found if each[1] == "stop"] == [(10.0, "stop", f"a.{k}") for k in range(3)]
    assert [task for at, event, task in found if at == 10.0 and event == "start"] == ["b.0", "b.1"]
    assert [at for at, _, task in found if task.startswith("a")][-3:] == [110.0] * 3  # two free slots are not enough


def test_kueue_lends_and_passes_over_what_does_not_fit():
    jobs = job("a", "ann", 2), job("c", "ann", 3, at=1.0), job("d", "ann", 1, at=2.0), job("b", "bob", 1, at=50.0)
    found = run("Kueue", 4, *jobs)
    first = {task: at for at, event, task in reversed(found) if event == "start"}
    assert first["d.0"] == 2.0 and first["b.0"] == 50.0 and first["c.0"] > 99.0  # c waits until a has ended
    assert all(event == "start" for _, event, _ in found)


@pytest.mark.parametrize("policy", ["Volcano", "Kueue"])
def test_all_work_is_done(policy):
    work = generate("cluster-day", seed=3, machines=5, slots=3, tasks=150, load=0.9)
    figures = SIMULATOR.figures(simulate_cluster(work, make_policy("cluster", PolicyChoice(name=policy))))
    assert figures["tasks"] == len(list(work.tasks)) and figures["utilisation"] <= 1
