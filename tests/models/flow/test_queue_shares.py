"""Shares with lending: exhaustive search on tiny trees of queues, with and without placement rules."""

import importlib

import numpy as np
import pytest

from flowlex import FlowScheduling
from flowlex.instances.flow import Constraint, FlowInstance, FlowJob, FlowTask, Machine, Queue
from flowlex.instances.group_rules import Gang
from flowlex.models import ModelError
from flowlex.models.flow.goals import Continuity, FairShares, Placement
from flowlex.validation.certificates import verify
from flowlex.validation.restated.flow.goal_costs import Problem
from flowlex.validation.restated.flow.job_shares import unfair
from tests.seeds import seeds


def job(name: str, *wants: str, **fields: object) -> FlowJob:
    """Return a job with one task per word: the machine label that it requires, or none."""
    tasks = []
    for k, want in enumerate(wants):
        said = (Constraint(kind="required", resources=(want,)),) if want else ()
        tasks.append(FlowTask(name=f"{name}{k}", constraints=said))
    return FlowJob(name=name, tasks=tuple(tasks), **fields)


def random_instance(rng: np.random.Generator, *, placement: bool) -> FlowInstance:
    queues, names = [], []
    for k in range(int(rng.integers(0, 4))):
        parent = None if not names or rng.random() < 0.5 else str(rng.choice(names))
        least = int(rng.integers(0, 3))
        most = None if rng.random() < 0.6 else least + int(rng.integers(0, 3))
        weight = int(rng.integers(1, 4))
        queues.append(Queue(name=f"q{k}", parent=parent, min_tasks=least, max_tasks=most, weight=weight))
        names.append(f"q{k}")
    words = ["", "a", "b"] if placement else [""]
    jobs = []
    for k in range(int(rng.integers(1, 5))):
        wants = [str(w) for w in rng.choice(words, int(rng.integers(1, 4)))]
        least = int(rng.integers(0, 2))
        fields = {"min_tasks": least, "max_tasks": least + 2 if rng.random() < 0.3 else None}
        queue = str(rng.choice(names)) if names and rng.random() < 0.8 else None
        jobs.append(job(f"j{k}", *wants, weight=int(rng.integers(1, 4)), queue=queue, **fields))
    labels = [(), ("a",), ("b",), ("a", "b")]
    machines = tuple(
        Machine(name=f"m{k}", slots=int(rng.integers(0, 3)), labels=labels[int(rng.integers(4)) if placement else 0])
        for k in range(3)
    )
    return FlowInstance(name="tree", machines=machines, jobs=tuple(jobs), queues=tuple(queues))


def placeable(instance: FlowInstance) -> set[tuple[int, ...]]:
    """All vectors of running tasks per job: every subset of tasks is tried by filling slots one by one."""
    slots = [frozenset(m.labels) for m in instance.machines for _ in range(m.slots)]
    reached = {(frozenset(), (0,) * len(instance.jobs))}
    tasks = [(j, t) for j, each in enumerate(instance.jobs) for t in each.tasks]
    for j, task in tasks:
        more = set()
        for used, counts in reached:
            for s, labels in enumerate(slots):
                wanted = {r for c in task.constraints for r in c.resources}
                if s not in used and wanted <= labels:
                    more.add((used | {s}, (*counts[:j], counts[j] + 1, *counts[j + 1 :])))
        reached |= more
    return {counts for _, counts in reached}


def fairest(instance: FlowInstance, weighted: bool) -> list[tuple[int, ...]]:
    """Return the best vectors: the first task that does not run is as late as possible, and so on."""
    jobs, queues = instance.jobs, {q.name: q for q in instance.queues}

    def path(j: int) -> tuple[str, ...]:
        found, above = [f"job {j}"], jobs[j].queue
        while above is not None:
            found.append(above)
            above = queues[above].parent
        return tuple(reversed(found))

    paths = [path(j) for j in range(len(jobs))]
    order = {name: k for k, name in enumerate([*queues, *(f"job {j}" for j in range(len(jobs)))])}
    claim = {f"job {j}": (x.min_tasks, x.max_tasks, x.weight) for j, x in enumerate(jobs)}
    claim |= {q.name: (q.min_tasks, q.max_tasks, q.weight) for q in instance.queues}

    def running(counts: tuple[int, ...], node: str) -> int:
        return sum(n for n, p in zip(counts, paths, strict=True) if node in p)

    def demand(node: str) -> int:
        _, most, _ = claim[node]
        if node.startswith("job "):
            wanted = len(jobs[int(node[4:])].tasks)
        else:
            wanted = sum(demand(child) for child in {p[p.index(node) + 1] for p in paths if node in p})
        return wanted if most is None else min(most, wanted)

    nodes = {node for p in paths for node in p}
    allowed = [c for c in placeable(instance) if all(running(c, n) <= demand(n) for n in nodes)]
    for depth in range(4):
        here = sorted({p[depth] for p in paths if len(p) > depth})

        def key(counts: tuple[int, ...], here: list[str] = here) -> list[tuple[float, ...]]:
            lost = []
            for node in here:
                least, _, weight = claim[node]
                least, weight = min(least, demand(node)), weight if weighted else 1
                for k in range(running(counts, node) + 1, demand(node) + 1):
                    lost.append((0, k / least, order[node]) if k <= least else (1, k / weight, order[node]))
            return [*sorted(lost), (2.0,)]

        best = max(map(key, allowed))
        allowed = [c for c in allowed if key(c) == best]
    return allowed


def shares_of(instance: FlowInstance, kind: str) -> tuple[int, ...]:
    solution = FlowScheduling(instance, goals=(FairShares(kind), Placement())).solve("network")
    assert solution.certificate.claim == "optimal"
    running = [sum(t.name in solution.machine_of for t in each.tasks) for each in instance.jobs]
    assert running == [solution.shares[each.name][0] for each in instance.jobs]
    return tuple(running)


@pytest.mark.parametrize("placement", [False, True])
@pytest.mark.parametrize("kind", ["max_min", "weighted"])
def test_shares_equal_exhaustive_search(kind: str, placement: bool) -> None:
    rng = np.random.default_rng(7)
    for _ in range(20):
        instance = random_instance(rng, placement=placement)
        assert fairest(instance, kind == "weighted") == [shares_of(instance, kind)], instance.model_dump_json()


def test_slots_that_a_share_may_not_use_go_to_who_can() -> None:
    system = pytest.importorskip("flowlex.systems.scheduler.live.scheduler")
    """Regression test: half of four slots were idle, as a job's share counted slots that it may not use."""
    machines = (Machine(name="a", slots=1, labels=("gpu",)), Machine(name="b", slots=3))
    instance = FlowInstance(machines=machines, jobs=(job("picky", *["gpu"] * 4), job("other", *[""] * 4)))
    assert shares_of(instance, "max_min") == (1, 3)
    live = system.FlowScheduler(instance, (FairShares(), Placement()))
    assert live.step(0.0).running == 4
    live.relabel("b", labels=("gpu",))
    live.step(1.0)
    assert sorted(task[:-1] for task in live.placements()) == ["other", "other", "picky", "picky"]


def test_queues_lend_and_take_back_from_who_ran_last() -> None:
    system = pytest.importorskip("flowlex.systems.scheduler.live.scheduler")
    """Borrowed slots are reclaimed where stopping costs least."""
    queues = (Queue(name="left", min_tasks=2), Queue(name="right", min_tasks=2))
    cluster = FlowInstance(machines=(Machine(name="m", slots=4),), queues=queues)
    live = system.FlowScheduler(cluster, (FairShares(), Continuity(base=1, rate=1)))
    live.submit(job("old", "", "", queue="left"))
    live.step(0.0)
    live.submit(job("new", "", "", queue="left"))
    live.step(600.0)
    assert len(live.placements()) == 4  # everything, as the other queue is empty
    live.submit(job("owner", "", "", "", queue="right"))
    delta = live.step(1200.0)
    assert len(delta.placed) == 2 and len(delta.stopped) == 2
    live.set_queues((*queues[:1], Queue(name="right", parent="left", max_tasks=1)))
    live.step(1300.0)
    assert sum(name.startswith("owner") for name in live.placements()) == 1


@pytest.mark.parametrize("seed", seeds(2, 6))
def test_lives_share_as_a_fresh_solve_does(seed: int, tmp_path) -> None:
    system = pytest.importorskip("flowlex.systems.scheduler.live.scheduler")
    rng = np.random.default_rng(seed)
    goals = (FairShares("weighted"), Placement(), Continuity(base=1, rate=0))
    start = random_instance(rng, placement=True)
    live = system.FlowScheduler(start, goals)
    for turn in range(8):
        more = random_instance(rng, placement=True)
        names = [queue.name for queue in live.state.queues]
        for other in more.jobs[:2]:
            queue = str(rng.choice(names)) if names else None
            tasks = tuple(t.model_copy(update={"name": f"{turn}{t.name}"}) for t in other.tasks)
            live.submit(other.model_copy(update={"name": f"{turn}{other.name}", "tasks": tasks, "queue": queue}))
        live.cancel(task=str(rng.choice(list(live.state.tasks))))
        machine = str(rng.choice(list(live.state.cluster.machines)))
        live.relabel(machine, labels=("a",)) if turn % 2 else live.set_slots(machine, int(rng.integers(0, 4)))
        if turn % 3 == 2:
            snapshot = importlib.import_module("flowlex.systems.scheduler.live.snapshot")
            snapshot.save_scheduler(live, tmp_path / "state.npz")
            live = snapshot.load_scheduler(tmp_path / "state.npz", goals)
        instance = live.instance()
        live.step(float(turn))
        static = FlowScheduling(instance, goals=goals).solve("network")
        assert live.score() == static.score and live.score().shortfall == 0
        bounds = {name: live.state.network.jobs[name].bounds.short for name in live.state.jobs}
        assert bounds == {name: least for name, (least, _) in static.shares.items()}


def test_a_share_moved_by_hand_is_refused() -> None:
    queues = (Queue(name="q", min_tasks=1), Queue(name="r"))
    jobs = (job("a", "", "", "", queue="q"), job("b", "", "", "", queue="r"), job("c", "gpu", queue="r"))
    machines = (Machine(name="m", slots=3), Machine(name="g", slots=1, labels=("gpu",)))
    goals = (FairShares(), Placement())
    solution = FlowScheduling(FlowInstance(machines=machines, jobs=jobs, queues=queues), goals=goals).solve("network")
    problem = Problem(FlowInstance(machines=machines, jobs=jobs, queues=queues), OPTIONS, 1)
    right = [solution.shares[name][0] for name in "abc"]
    assert unfair(problem, right) == ""
    wrong = {(3, 1, 0), (1, 2, 1), (2, 2, 0), (2, 1, 0), (3, 0, 1), (2, 0, 1), (1, 3, 0), (4, 0, 0), (0, 3, 1)}
    for share in wrong - {tuple(right)}:
        assert unfair(problem, list(share)), share


def test_changed_models_have_queues_beside_placement() -> None:
    """The first job waits; shares stay as they are, so that its share falls short and the others run theirs."""
    rng = np.random.default_rng(3)
    for instance in [random_instance(rng, placement=True) for _ in range(12)][9:]:  # two cannot be filled in order
        model = FlowScheduling(instance, goals=(FairShares("weighted"), Placement()))
        shares = shares_of(instance, "weighted")
        mine = model.variables["waits"].sel(job="j0")
        changed = model.with_constraint("none", mine.sum() >= len(mine)).solve()
        assert changed.certificate.claim == "optimal"
        assert (changed.stages.get("shortfall", 0), len(changed.machine_of)) == (shares[0], sum(shares[1:]))
        never = model.with_constraint("never", model.variables["waits"].sum() >= 99).solve()
        assert never.certificate.claim == "infeasible"
        document = changed.to_dict()
        for stated in document["answer"]["shares"].values():
            stated[:] = [stated[0] + 1] * 2
        assert not verify(document, instance).ok


OPTIONS = {
    "goals": [{"type": "FairShares", "kind": "max_min"}, {"type": "Placement", "rules": {}}],
    "wait_cost": None,
    "lexicographic": False,
}


def test_trees_that_are_none_are_refused() -> None:
    system = pytest.importorskip("flowlex.systems.scheduler.live.scheduler")
    machine = (Machine(name="m", slots=1),)
    for queues, inside, says in (
        ((Queue(name="q", parent="r"),), None, "'r', which does not exist"),
        ((Queue(name="q", parent="r"), Queue(name="r", parent="q")), None, "a part of itself"),
        ((Queue(name="q"), Queue(name="q")), None, "q"),
        ((Queue(name="q"),), "r", "queue 'r', which does not exist"),
    ):
        with pytest.raises(ValueError, match=says):
            FlowInstance(machines=machine, jobs=(job("j", "", queue=inside),), queues=queues)
    with pytest.raises(ValueError, match="min_tasks 3 exceeds max_tasks 2"):
        Queue(name="q", min_tasks=3, max_tasks=2)
    queued = FlowInstance(machines=machine, jobs=(job("j", "", queue="q"),), queues=(Queue(name="q"),))
    with pytest.raises(ModelError, match="knows no queues"):
        FlowScheduling(queued, goals=(FairShares("caps"),)).solve("network")
    live = system.FlowScheduler(queued, (FairShares(),))
    with pytest.raises(ModelError, match="in queue 'x', which does not exist; see set_queues"):
        live.submit(job("k", "", queue="x"))
    with pytest.raises(ModelError, match="job 'j' is in queue 'q', which does not exist"):
        live.set_queues(())


def test_the_guarantee_of_an_inner_queue_counts_above_it():
    """Research as a whole is guaranteed nothing, its queue 6 of 8 slots: 6 and 2, not 4 and 4."""
    queues = (Queue(name="research"), Queue(name="vision", parent="research", min_tasks=6), Queue(name="other"))
    jobs = tuple(
        FlowJob(name=name, queue=queue, tasks=tuple(FlowTask(name=f"{name}{k}") for k in range(8)))
        for name, queue in (("a", "vision"), ("b", "other"))
    )
    cluster = FlowInstance(name="inner", machines=(Machine(name="m", slots=8),), queues=queues, jobs=jobs)
    solution = FlowScheduling(cluster, goals=(FairShares(),)).solve("network")
    assert sorted(task[0] for task in solution.machine_of) == ["a"] * 6 + ["b"] * 2
    assert solution.certificate.claim == "optimal"


def test_a_share_that_nobody_can_use_is_said():
    """Ten slots, a gang of 8 whose share is 5 and a job of 10: 5 run, 5 stay idle."""
    jobs = tuple(
        FlowJob(name=name, tasks=tuple(FlowTask(name=f"{name}{k}") for k in range(count)))
        for name, count in (("g", 8), ("j", 10))
    )
    cluster = FlowInstance(
        name="gang", machines=(Machine(name="m", slots=10),), jobs=jobs, gangs=(Gang(name="g", jobs=("g",)),)
    )
    solution = FlowScheduling(cluster, goals=(FairShares(),)).solve("highs")
    assert len(solution.machine_of) == 5 and solution.metrics()["share_shortfall"] == 5
    assert solution.certificate.claim == "optimal"
    assert "5 slots that it could take stay idle" in solution.waiting["j9"]
