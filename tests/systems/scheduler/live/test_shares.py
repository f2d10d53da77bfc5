"""Share demands after events: always the shares of the present jobs, and only changes are reported."""

import numpy as np
import pytest

from flowlex.instances.flow import FlowInstance, FlowJob, FlowTask, Machine
from flowlex.models.flow.fair_share_demands import Rule
from flowlex.models.flow.goals import FairShares
from flowlex.models.flow.queue_shares import Claims, Places
from flowlex.systems.scheduler.live.job_claims import JobClaims
from flowlex.systems.scheduler.live.scheduler import FlowScheduler


@pytest.mark.parametrize("kind", ["max_min", "weighted", "caps"])
def test_random_events_give_the_shares_of_the_jobs_that_are_here(kind):
    rng, shares, claims = np.random.default_rng(1), FairShares(kind), JobClaims()
    jobs: dict[str, FlowJob] = {}
    counts: dict[str, int] = {}
    told: dict[str, tuple[int, int, int]] = {}
    for step in range(300):
        for _ in range(int(rng.integers(0, 4))):
            draw = rng.random()
            if draw < 0.5 or not jobs:
                name, count = f"j{step}-{len(jobs)}", int(rng.integers(1, 6))
                tasks = tuple(FlowTask(name=f"{name}-{k}") for k in range(count))
                least = int(rng.integers(0, 3))
                most = None if rng.random() < 0.5 else least + int(rng.integers(0, 3))
                job = FlowJob(name=name, tasks=tasks, min_tasks=least, max_tasks=most, weight=int(rng.integers(1, 5)))
                jobs[name], counts[name] = job, count
                claims.put(job, [Rule()] * count)
                continue
            name = str(rng.choice(list(jobs)))
            if draw < 0.7:
                jobs[name] = jobs[name].model_copy(update={"weight": int(rng.integers(1, 5))})
                claims.claim(jobs[name])
            else:
                counts[name] -= 1
                claims.lose(name, Rule())
                if not counts[name]:
                    claims.take(name)
                    del jobs[name], counts[name]
                    told.pop(name, None)
        slots = 20 + step % 3
        places = Places({frozenset([Rule()]): slots}, frozenset([Rule()]))
        claims.changed_machines()
        for name, low, high in claims.changed(shares, lambda _, places=places: places):
            new = (counts[name], low, high)
            assert told.get(name) != new, "handed on without a change"
            told[name] = new
        assert claims.changed(shares, lambda _: pytest.fail("asked again")) == []
        all_jobs = list(jobs.values())
        arrays = (
            [counts[j.name] for j in all_jobs],
            [j.min_tasks for j in all_jobs],
            [99 if j.max_tasks is None else j.max_tasks for j in all_jobs],
            [j.weight for j in all_jobs],
        )
        columns = (np.array(a, np.int64) for a in arrays)
        tables = [{Rule(): counts[j.name]} for j in all_jobs]
        low, high = shares.bounds(Claims(*columns, np.full(len(all_jobs), -1), tables), (), places)
        assert [told[j.name][1:] for j in all_jobs] == list(zip(low.tolist(), high.tolist(), strict=True))
    assert len(claims._names) < 4 * len(jobs) + 64  # freed entries are reused


def test_a_step_without_news_recomputes_nothing(monkeypatch):
    scheduler = FlowScheduler(FlowInstance(machines=(Machine(name="a", slots=2),)), (FairShares(),))
    scheduler.submit(FlowJob(name="j", tasks=(FlowTask(name="t"), FlowTask(name="u"))))
    scheduler.step()
    calls = []
    monkeypatch.setattr(FairShares, "bounds", lambda *_: calls.append(1))
    scheduler.set_priority("j", 3)
    scheduler.step()
    assert not calls
