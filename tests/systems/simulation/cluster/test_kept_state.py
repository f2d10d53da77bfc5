"""State of the simulator and its queues between decisions, compared with a full recount."""

from collections import Counter

import pytest

from flowlex import generate
from flowlex.systems.simulation.cluster import simulate_cluster
from flowlex.systems.simulation.cluster.policies import queues
from flowlex.systems.simulation.policy_registry import make_policy
from flowlex.systems.simulation.scenario import PolicyChoice


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("FIFO", {"where": "spread"}),
        ("FIFO", {"where": "most-free"}),
        ("priority", {"where": "first", "preempts": True}),
    ],
)
def test_what_is_kept_between_decisions_is_what_counting_anew_finds(name, parameters, seed, monkeypatch):
    """Return open places, waiting jobs and counts, and the least busy place of every choice."""
    decide, choose, seen = queues.Queue.decide, queues._LeastBusy.__call__, Counter[str]()

    def checked_decide(self, state):
        jobs = [job for job in state.jobs.values() if job.waiting]
        assert state.waiting_jobs() == jobs
        assert state.waiting_count == sum(len(job.waiting) for job in jobs)
        assert state.running_count == sum(len(job.running) for job in state.jobs.values())
        assert state.open_places() == [place for place in state.places if any(place.free.values()) and place.node.up]
        seen["decisions"] += 1
        yield from decide(self, state)

    def checked_choice(self, task):
        def rank(node):
            free = sum(sum(place.free.values()) for place in node.places if place.open and place.fits(self.like))
            return (sum(len(place.tasks) for place in node.places) if self.count_tasks else 0) - free

        fitting = [place for place in self.state.places if place.node.up and place.fits(task)]
        least = min(fitting, key=lambda place: (rank(place.node), place.number), default=None)
        found = choose(self, task)
        assert found is least
        seen["choices"] += 1
        return found

    monkeypatch.setattr(queues.Queue, "decide", checked_decide)
    monkeypatch.setattr(queues._LeastBusy, "__call__", checked_choice)
    work = generate("cluster-random", seed=seed, outages=0.5, resource="slot")
    policy = PolicyChoice(name=name, parameters=parameters)
    simulate_cluster(work, make_policy("cluster", policy), seed=seed, fail=0.3, most_attempts=3)
    assert seen["decisions"] and (seen["choices"] or name == "priority")
