"""The cluster simulator compared with queueing theory, sharing by hand, conservation laws and fairness."""

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowlex import generate
from flowlex.instances.gpu import GpuInstance
from flowlex.instances.gpu_policy import GpuPolicy as Fairness
from flowlex.models.flow.goals import preset
from flowlex.models.gpu.model import GpuAssignment
from flowlex.systems.scheduler.live.replay_events import replay_events
from flowlex.systems.simulation.cluster import SIMULATOR, simulate_cluster
from flowlex.systems.simulation.cluster.max_min_transfers import Transfer, Transfers
from flowlex.systems.simulation.cluster.policies.gpu_assignment import round_instance
from flowlex.systems.simulation.cluster.run_metrics import figures, job_spans, megabytes, stays
from flowlex.systems.simulation.cluster_workload import (
    ClusterJob,
    ClusterNode,
    ClusterTask,
    ClusterWorkload,
    Outage,
    Place,
    Read,
)
from flowlex.systems.simulation.confidence_intervals import Estimate
from flowlex.systems.simulation.event_log import RunLog
from flowlex.systems.simulation.event_queue import SimulationError
from flowlex.systems.simulation.max_min import max_min_rates
from flowlex.systems.simulation.policy_registry import make_policy, policies
from flowlex.systems.simulation.scenario import Decision, PolicyChoice


def made(name: str, **parameters: object):
    return make_policy("cluster", PolicyChoice(name=name, parameters=parameters))


def node(name: str, rack: str = "r", places: int = 1, **more: object) -> ClusterNode:
    found = tuple(Place(name=f"{name}.{k}", capacity={"gpu": 1}) for k in range(places))
    return ClusterNode(name=name, rack=rack, places=found, **more)


def task(name: str, compute_s: float = 0.0, reads: tuple[Read, ...] = (), after: tuple[str, ...] = ()) -> ClusterTask:
    return ClusterTask(name=name, demand={"gpu": 1}, compute_s=compute_s, reads=reads, after=after)


def workload(nodes, *tasks: ClusterTask, **more: object) -> ClusterWorkload:
    jobs = more.pop("jobs", None) or (ClusterJob(name="job", tasks=tasks),)
    return ClusterWorkload(nodes=tuple(nodes), jobs=jobs, **more)


def ends(log: RunLog) -> dict[str, float]:
    return {record["task"]: record["at_s"] for record in log.of("end")}


# Theory ------------------------------------------------------------------------------------------------------------
def erlang_c(servers: int, load: float) -> float:
    """Mean wait of M/M/c with mean service 1."""
    offered = load * servers
    terms = [offered**k / np.prod(np.arange(1, k + 1), dtype=float) for k in range(servers)]
    last = offered**servers / np.prod(np.arange(1, servers + 1), dtype=float) / (1 - load)
    return float(last / (sum(terms) + last) / (servers * (1 - load)))


@pytest.mark.parametrize(
    ("servers", "load", "service", "wait_s"),
    [
        (1, 0.6, "exponential", 0.6 / 0.4),
        (3, 0.7, "exponential", erlang_c(3, 0.7)),
        (1, 0.6, "constant", 0.6 / (2 * 0.4)),  # Pollaczek-Khinchine: load (1 + variance) / 2 (1 - load)
        (1, 0.6, "uniform", 0.6 * (1 + 1 / 3) / (2 * 0.4)),
    ],
)
def test_waits_are_those_of_queueing_theory(servers, load, service, wait_s):
    waits = []
    for seed in range(6):
        queue = generate("cluster-queue", seed=seed, servers=servers, load=load, service=service, tasks=600)
        waits.append(figures(simulate_cluster(queue, made("FIFO")))["wait_s"])
    ours = Estimate.of(waits)
    assert ours.low <= wait_s <= ours.high
    assert ours.half < 0.5 * wait_s


# By hand -----------------------------------------------------------------------------------------------------------
def test_one_local_read_takes_size_over_disk():
    log = simulate_cluster(workload([node("a")], task("t", 3.0, (Read(size_mb=400.0, replicas=("a",)),))), made("FIFO"))
    assert ends(log) == {"t": pytest.approx(400 / 200 + 3)}
    assert megabytes(log) == {"node": 400.0, "rack": 0.0, "between": 0.0}


def test_two_transfers_share_a_link_and_the_second_half_is_quicker():
    # Both read from h's port of 125 MB/s: 62.5 each until the smaller ends at 2 s, then the other has 125.
    reads = [(Read(size_mb=125.0, replicas=("h",)),), (Read(size_mb=250.0, replicas=("h",)),)]
    cluster = [node("h", places=0), node("a"), node("b")]
    log = simulate_cluster(workload(cluster, task("t", 0.0, reads[0]), task("u", 0.0, reads[1])), made("FIFO"))
    assert ends(log) == {"t": pytest.approx(2.0), "u": pytest.approx(3.0)}


@pytest.mark.parametrize(("aggregation", "seconds"), [(None, 1.0), (125.0, 2.0)])
def test_racks_have_uplinks_of_their_own_and_share_the_aggregation(aggregation, seconds):
    # a1 -> b1 and c1 -> d1 use four different uplinks of 125 MB/s; they share only the switch.
    cluster = [node("a", "A", 0), node("b", "B"), node("c", "C", 0), node("d", "D")]
    jobs = tuple(
        ClusterJob(name=f"j{s}", tasks=(task(f"t{s}", 0.0, (Read(size_mb=125.0, replicas=(s,)),)),)) for s in "ac"
    )
    log = simulate_cluster(workload(cluster, jobs=jobs, aggregation_mb_per_s=aggregation), made("FIFO"))
    assert list(ends(log).values()) == [pytest.approx(seconds)] * 2
    assert megabytes(log)["between"] == pytest.approx(250.0)


def test_a_task_waits_for_what_it_reads_and_reads_it_where_it_was_made():
    first = task("t", 5.0)
    second = task("u", 1.0, (Read(size_mb=125.0, task="t"),))
    hold = ClusterJob(name="hold", tasks=(task("x", 20.0),), arrival_s=4.0)
    jobs = (ClusterJob(name="job", tasks=(first, second)), hold)
    log = simulate_cluster(workload([node("a"), node("b")], jobs=jobs), made("FIFO"))
    # x holds b from 4 s on; u starts on a, where t ran, at 5 s.
    assert ends(log)["u"] == pytest.approx(5 + 125 / 200 + 1)


def test_decision_time_delays_the_start():
    work = workload([node("a")], task("t", 1.0))
    log = simulate_cluster(work, made("FIFO"), decision=Decision(mode="fixed", seconds=2.5))
    assert next(log.of("start"))["at_s"] == 2.5
    counted = Decision(mode="counted", seconds_per_unit=0.5)
    assert next(simulate_cluster(work, made("FIFO"), decision=counted).of("start"))["at_s"] == 0.5


def test_rounds_happen_at_whole_multiples():
    late = ClusterJob(name="late", tasks=(task("t", 1.0),), arrival_s=7.5)
    log = simulate_cluster(workload([node("a")], jobs=(late,)), made("FIFO"), round_s=5.0)
    assert [record["at_s"] for record in log.of("round")] == [10.0, 15.0][: len(list(log.of("round")))]
    assert next(log.of("start"))["at_s"] == 10.0


def test_only_so_many_jobs_run_at_once():
    jobs = tuple(ClusterJob(name=f"j{k}", tasks=(task(f"t{k}", 10.0),)) for k in range(3))
    log = simulate_cluster(workload([node("a", places=4)], jobs=jobs, jobs_at_once=2), made("FIFO"))
    assert [record["at_s"] for record in log.of("admit")] == [0.0, 0.0, 10.0]


# Failures ----------------------------------------------------------------------------------------------------------
def test_a_node_that_fails_stops_its_task_which_runs_again_elsewhere():
    cluster = [node("a", outages=(Outage(from_s=4.0),)), node("b")]
    log = simulate_cluster(workload(cluster, task("t", 10.0)), made("FIFO"))
    assert [(s.node, s.start_s, s.end_s, s.ended) for s in stays(log)] == [
        ("a", 0.0, 4.0, False),
        ("b", 4.0, 14.0, True),
    ]


def test_a_reader_goes_on_from_another_replica():
    # b fails when 125 of 250 MB have come; the rest comes from c.
    cluster = [node("a"), node("b", places=0, outages=(Outage(from_s=1.0),)), node("c", places=0)]
    log = simulate_cluster(workload(cluster, task("t", 0.0, (Read(size_mb=250.0, replicas=("b", "c")),))), made("FIFO"))
    assert ends(log) == {"t": pytest.approx(2.0)}
    assert [(record["source"], record["mb"]) for record in log.of("read")] == [("b", 125.0), ("c", 125.0)]


def test_what_a_dead_node_had_made_is_made_again():
    cluster = [node("a", outages=(Outage(from_s=6.0),)), node("b")]
    tasks = (task("t", 5.0), task("long", 9.0), task("u", 1.0, (Read(size_mb=1.0, task="t"),), ("long",)))
    log = simulate_cluster(workload(cluster, *tasks), made("FIFO"))
    assert [record["task"] for record in log.of("lost")] == ["t"]
    assert ends(log)["u"] == pytest.approx(9.0 + 5.0 + 1 / 200 + 1.0)


def test_a_source_that_never_returns_is_named():
    cluster = [node("a"), node("b", places=0, outages=(Outage(from_s=0.5),))]
    with pytest.raises(SimulationError, match="'t' waits for data whose nodes are down for good"):
        simulate_cluster(workload(cluster, task("t", 0.0, (Read(size_mb=250.0, replicas=("b",)),))), made("FIFO"))


def test_failing_tasks_are_tried_again_and_given_up_at_last():
    work = workload([node("a", places=2)], *(task(f"t{k}", 2.0) for k in range(30)))
    log = simulate_cluster(work, made("FIFO"), fail=0.3, most_attempts=50)
    failed = sum(record["why"] == "failed" for record in log.of("stop"))
    assert failed >= 5 and len(ends(log)) == 30 and figures(log)["jobs"] == 1
    log = simulate_cluster(work, made("FIFO"), fail=0.9, most_attempts=2)
    assert figures(log)["given_up"] == 1 and figures(log)["jobs"] == 0


def test_what_a_policy_stops_does_not_count_as_a_failure():
    work = generate("cluster-testbed", seed=0, count=3)
    log = simulate_cluster(work, made("GSP"), fail=0.1, most_attempts=3, round_s=2.0)
    starts, at_failure = Counter[str](), list[int]()
    for record in log.of("start", "stop"):
        starts[record["task"]] += record["event"] == "start"
        if record.get("why") == "failed":
            at_failure.append(starts[record["task"]])
    assert max(at_failure) >= 3  # some third start failed, so policy stops do not count as failures
    assert figures(log)["given_up"] == 0 and figures(log)["jobs"] == 3


# Rates -------------------------------------------------------------------------------------------------------------
@pytest.mark.loops
@settings(max_examples=15)
@given(st.data())
def test_rates_are_max_min_by_definition(data):
    resources = data.draw(st.integers(1, 6))
    count = data.draw(st.integers(1, 8))
    paths = np.full((count, 8), -1, np.int64)
    for row in paths:
        chosen = data.draw(st.lists(st.integers(0, resources - 1), min_size=1, max_size=4, unique=True))
        row[: len(chosen)] = chosen
    capacity = np.array(data.draw(st.lists(st.integers(1, 100), min_size=resources, max_size=resources)), float)
    rates = max_min_rates(paths, capacity)
    transfers = Transfers(capacity)
    for row in paths:
        transfers.start(Transfer(1.0, [r for r in row.tolist() if r >= 0], print))
    transfers.share()  # checks its rates against the definition
    assert transfers.rate[transfers.path[:, 0] >= 0].tolist() == rates.tolist()
    # By the definition of lexicographic order: no other point of a grid of feasible rates has a larger sorted vector.
    for flow in range(count):
        faster = rates.copy()
        faster[flow] += 1e-3
        slower_equals = [k for k in range(count) if k != flow and rates[k] <= rates[flow]]
        used = {r: sum(faster[k] for k in range(count) if r in paths[k]) for r in set(paths[flow]) - {-1}}
        hurt = [r for r, much in used.items() if much > capacity[r] + 1e-9]
        assert hurt, "a transfer could be faster for free"
        assert any(all(rates[k] <= rates[flow] + 1e-9 for k in range(count) if r in paths[k]) for r in hurt)
        assert slower_equals is not None
    for wrong, message in ((0.9, "could be faster"), (1.1, "carries")):
        transfers.rate *= wrong
        with pytest.raises(SimulationError, match=message):
            transfers.check()
        transfers.rate /= wrong


# Any scenario, any policy ------------------------------------------------------------------------------------------
GPU_POLICIES = [name for name in policies("cluster") if name not in ("FlowScheduler", "Quincy")]
SLOT_POLICIES = ["FIFO", "FlowScheduler", "Quincy", "YARN-fair", "random"]


def check(work: ClusterWorkload, log: RunLog) -> None:
    """No place is used twice, no task runs before its data are read, all bytes are read, every task ends once."""
    by_place: dict[str, list[tuple[float, float]]] = {}
    first_end: dict[str, float] = {}
    runs: dict[str, list[float]] = {}
    for stay in stays(log):
        by_place.setdefault(stay.place, []).append((stay.start_s, stay.end_s))
        if stay.ended:
            first_end.setdefault(stay.task, stay.end_s)
            runs.setdefault(stay.task, []).append(stay.start_s)
    for spans in by_place.values():
        for (_, before), (after, _) in itertools.pairwise(sorted(spans)):
            assert after >= before - 1e-9
    tasks = {task.name: task for task in work.tasks}
    assert set(first_end) == set(tasks)
    for name, starts in runs.items():
        for needed in {*tasks[name].after, *(read.task for read in tasks[name].reads)} - {None}:
            assert all(start >= first_end[needed] - 1e-9 for start in starts)
    read_mb: dict[str, float] = {}
    for record in log.of("read"):
        read_mb[record["task"]] = read_mb.get(record["task"], 0.0) + record["mb"]
    for name, task_ in tasks.items():
        wanted = sum(read.size_mb for read in task_.reads)
        assert read_mb.get(name, 0.0) >= wanted * (1 - 1e-9)
        if not any(record["task"] == name for record in log.of("stop")) and len(runs[name]) == 1:
            assert read_mb.get(name, 0.0) == pytest.approx(wanted)


def scenarios() -> list[tuple[str, str]]:
    return [*((name, "gpu") for name in GPU_POLICIES), *((name, "slot") for name in SLOT_POLICIES)]


@pytest.mark.parametrize(("name", "resource"), scenarios())
@settings(max_examples=2)
@given(seed=st.integers(0, 10_000), round_s=st.sampled_from([0.0, 3.0]), think=st.sampled_from([0.0, 0.7]))
def test_every_policy_on_random_scenarios(name, resource, seed, round_s, think):
    work = generate("cluster-random", seed=seed, outages=0.4, resource=resource)
    decision = Decision(mode="fixed", seconds=think) if think else None
    logs = [
        simulate_cluster(work, made(name), seed=seed, round_s=round_s, decision=decision, most_events=50_000)
        for _ in range(2)
    ]
    assert list(logs[0].lines()) == list(logs[1].lines())
    check(work, logs[0])
    spans = job_spans(logs[0])
    assert len(spans) == len(work.jobs) and figures(logs[0])["utilisation"] <= 1.0 + 1e-9


def test_jobs_are_given_up_and_data_lost_while_tasks_wait():
    """A policy with its own queue is notified of tasks that no longer wait; each leaves the queue exactly once."""
    ends: Counter[str] = Counter()
    for seed in (6, 51, 54):
        work = generate("cluster-random", seed=seed, outages=0.5, resource="slot")
        log = simulate_cluster(work, made("FlowScheduler"), seed=seed, fail=0.6, most_attempts=2, certify=0)
        waiting: set[str] = set()
        for record in log.of("ready", "start", "withdraw"):
            if record["event"] == "ready":
                assert record["task"] not in waiting
                waiting.add(record["task"])
            else:
                waiting.remove(record["task"])
        mine = Counter(record["event"] for record in log.of("give-up", "finish", "withdraw"))
        assert not waiting and mine["give-up"] + mine["finish"] == len(work.jobs)
        assert not replay_events(list(SIMULATOR.events(work, log)), preset("borg"), certify=False).refused
        ends += mine
    assert min(ends["give-up"], ends["finish"], ends["withdraw"]) > 0


def test_a_task_may_end_while_a_scheduler_thinks_of_stopping_it():
    first = ClusterTask(name="first", demand={"slot": 1}, compute_s=10.0)
    urgent = first.model_copy(update={"name": "urgent"})
    jobs = (ClusterJob(name="a", tasks=(first,), priority=5), ClusterJob(name="b", tasks=(urgent,), arrival_s=10.5))
    one = ClusterNode(name="n", rack="r", places=(Place(name="p", capacity={"slot": 1}),))
    log = simulate_cluster(
        workload((one,), jobs=jobs), made("FlowScheduler"), decision=Decision(mode="fixed", seconds=1.0)
    )
    assert [record["task"] for record in log.of("too-late")] == ["first"]
    assert ends(log) == {"first": 11.0, "urgent": 21.5}  # stop requested at 10.5, the task ended at 11


# One round is the model's optimum ----------------------------------------------------------------------------------
@pytest.mark.parametrize("fairness", list(Fairness))
@pytest.mark.parametrize("seed", range(3))
def test_the_first_round_is_the_optimum_of_the_model(fairness, seed):
    work = generate("cluster-testbed", seed=seed, count=5)
    log = simulate_cluster(work, made(fairness.value), horizon_s=0.001)
    started = {record["task"]: record["place"] for record in log.of("start") if record["at_s"] == 0.0}
    from flowlex.systems.simulation.cluster.policy_interface import LiveJob, LiveTask, State

    state = State(work, np.random.default_rng(0))
    for number, job in enumerate(work.jobs[: work.jobs_at_once]):
        live = state.jobs[job.name] = LiveJob(job, number)
        for part in job.tasks:
            if not part.after and all(read.task is None for read in part.reads):
                state.wait(LiveTask(part, live, 0))
    instance, _ = round_instance(state)
    assert isinstance(instance, GpuInstance)
    solution = GpuAssignment(instance, policy=fairness).solve("pulp")
    view = instance.arrays
    places = {view.gpu_names[k]: k for k in range(len(view.gpu_names))}
    ours = np.array([places[started[name]] if name in started else -1 for name in view.task_names])
    from flowlex.models.gpu.placement_metrics import Placement

    placed = Placement(view, solution.placement.costs, ours)
    assert placed.exact_transfer_s == solution.placement.exact_transfer_s
    assert np.count_nonzero(ours >= 0) == np.count_nonzero(solution.gpu >= 0)
