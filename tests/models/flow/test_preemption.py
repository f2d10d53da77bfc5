"""Cost and limits of preemption per job: static schedules compared with enumeration, live ones with static ones."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flowlex import FlowScheduling
from flowlex.instances.flow import FlowInstance, FlowJob, FlowTask, Machine, RunningOn
from flowlex.models.flow.goals import LoadSpread, Priority
from flowlex.validation.certificates.verifier_interface import verify
from tests.models.flow.changes_oracle import best, stated
from tests.models.flow.ties import GOALS, tied_cluster
from tests.seeds import seeds


def running(name: str, machine: str | None, elapsed_s: float = 0.0, **fields: object) -> FlowTask:
    at = None if machine is None else RunningOn(machine=machine, elapsed_s=elapsed_s)
    return FlowTask(name=name, running=at, **fields)


def cluster(*jobs: FlowJob, slots: tuple[int, ...] = (1,)) -> FlowInstance:
    return FlowInstance(
        name="c", machines=tuple(Machine(name=f"m{k}", slots=n) for k, n in enumerate(slots)), jobs=jobs
    )


def solved(instance: FlowInstance, goals: tuple, **options: object):
    solution = FlowScheduling(instance, goals=goals, **options).solve("network")
    assert solution.certificate.ok and solution.certificate.claim == "optimal"
    return solution


URGENT = FlowJob(name="urgent", tasks=(running("u", None),), priority=0)


def old(**fields: object) -> FlowJob:
    return FlowJob(name="old", tasks=(running("o", "m0"),), priority=5, **fields)


def test_a_job_that_is_never_preempted_keeps_its_slot_from_a_more_important_one() -> None:
    goals = (Priority(),)
    assert solved(cluster(old(), URGENT), goals).machine_of == {"u": "m0"}
    assert solved(cluster(old(preemptions_per_hour=0), URGENT), goals).machine_of == {"o": "m0"}
    assert solved(cluster(old(preemptions_per_hour=1), URGENT), goals).machine_of == {"u": "m0"}
    used = old(preemptions_per_hour=1, preempted_s=(3599.0,))
    assert solved(cluster(used, URGENT), goals).machine_of == {"o": "m0"}
    again = old(preemptions_per_hour=1, preempted_s=(3600.0,))  # an hour ago: it counts no more
    assert solved(cluster(again, URGENT), goals).machine_of == {"u": "m0"}


def test_a_price_is_paid_where_it_is_worth_it() -> None:
    """Waiting costs 4 for each task, so u replaces o only if its explicit cost saves more than the preemption costs."""
    for price, winner in ((2, "u"), (4, "o")):
        cheap = FlowJob(name="urgent", tasks=(running("u", None, costs={"m0": -3}),))
        keep = old(preempt_cost=price)
        assert solved(cluster(keep, cheap), (), wait_cost=4).machine_of == {winner: "m0"}
    solution = solved(cluster(old(preempt_cost=0.5), URGENT), (), wait_cost=4)
    assert solution.scale == 2 and solution.score.cost == 8 - 1


def test_bad_jobs_are_refused_with_what_to_do() -> None:
    with pytest.raises(ValueError, match="has preempted_s but no preemptions_per_hour; give it, or leave it out"):
        old(preempted_s=(3.0,))
    for wrong in ({"preempt_cost": -1}, {"preemptions_per_hour": -1}, {"preemptions_per_hour": 1.5}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            old(**wrong)


@settings(max_examples=12)
@given(seed=st.integers(0, 10**6))
@example(seed=3)
def test_static_schedules_are_the_best_of_all(seed: int) -> None:
    rng = np.random.default_rng(seed)
    slots = tuple(int(n) for n in rng.integers(0, 3, 2))
    room = {f"m{k}": n for k, n in enumerate(slots)}
    jobs = []
    for j in range(3):
        tasks = []
        for k in range(int(rng.integers(1, 3))):
            free = [m for m, n in room.items() if n]
            at = str(rng.choice(free)) if free and rng.random() < 0.6 else None
            if at is not None:
                room[at] -= 1
            costs = {f"m{k}": int(rng.integers(-4, 9)) for k in range(2) if rng.random() < 0.7}
            tasks.append(running(f"t{j}{k}", at, costs=costs))
        limit = int(rng.integers(0, 3)) if rng.random() < 0.6 else None
        past = () if limit is None else tuple(float(s) for s in rng.choice([10.0, 3600.0], int(rng.integers(0, 3))))
        limits = {"preempt_cost": int(rng.integers(0, 6)), "preemptions_per_hour": limit, "preempted_s": past}
        jobs.append(FlowJob(name=f"j{j}", tasks=tuple(tasks), priority=int(rng.integers(0, 4)), **limits))
    instance = cluster(*jobs, slots=slots)
    assert stated(solved(instance, GOALS)) == best(instance)


@pytest.mark.parametrize("seed", seeds(12, 300))
def test_limits_beside_rules_across_tasks_give_the_best_schedule(seed: int) -> None:
    """Running tasks may violate their rules already; then the limit does not protect them."""
    rng, instance = np.random.default_rng(seed), tied_cluster(seed, most_tasks=5)
    jobs = []
    for job in instance.jobs:
        limit = int(rng.integers(0, 3)) if rng.random() < 0.8 else None
        past = (5.0,) if limit and rng.random() < 0.3 else ()
        limits = {"different_machines": None, "preemptions_per_hour": limit, "preempted_s": past}
        jobs.append(job.model_copy(update=limits))
    instance = FlowInstance.model_validate(instance.model_copy(update={"jobs": tuple(jobs)}).model_dump())
    solution = FlowScheduling(instance, goals=GOALS).solve("highs")
    assert stated(solution) == best(instance)
    assert solution.certificate.ok and solution.certificate.claim == "optimal"


def test_schedules_that_preempt_too_much_are_refused() -> None:
    instance = cluster(old(preemptions_per_hour=1, preempted_s=(5.0,)), URGENT)
    document = solved(instance, (Priority(),)).to_dict()
    document["answer"]["placements"], document["answer"]["waiting"] = {"u": "m0"}, {"o": "it gave way"}
    wrong = [check.name for check in verify(document, instance).checks if not check.ok]
    assert "every row holds" in wrong
    moved = cluster(old(preemptions_per_hour=9), slots=(1, 1))
    document = solved(moved, (LoadSpread(),)).to_dict()
    document["answer"]["placements"] = {"o": "m1"}
    wrong = [check.name for check in verify(document, moved).checks if not check.ok]
    assert "every task may run on its machine" in wrong
