"""Decisions after a recovery equal those of an uninterrupted run, whatever the hash seed of the process."""

import os
import pickle
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from flowlex.instances.group_rules import Gang, TaskSpread
from flowlex.models.flow.goals import PRESETS, FairShares, LoadSpread, Placement, Priority
from flowlex.systems.scheduler.documents import RefusedEvent
from flowlex.systems.scheduler.flow_core import ClusterCore
from flowlex.systems.scheduler.live.snapshot import restored_scheduler
from flowlex.systems.scheduler.live.task_records import EventError

SETS = ((Priority(), Placement()), PRESETS["quincy"], PRESETS["borg"], (FairShares(), Placement(), LoadSpread()))
OPTIONS = ({}, {}, {}, {"lexicographic": True, "method": "phases"})


class Noted:
    """A scheduler that writes down its events."""

    def __init__(self, scheduler, calls):
        self.scheduler, self.calls = scheduler, calls

    def __getattr__(self, name):
        found = getattr(self.scheduler, name)
        if name not in EVENTS:
            return found

        def call(*args, **kwargs):
            self.calls.append((name, args, kwargs))
            return found(*args, **kwargs)

        return call


EVENTS = ("submit", "finish", "cancel", "add_machine", "remove_machine", "set_slots", "set_priority", "set_cost")
EVENTS += ("update_shares", "set_preemption", "tie")


def life(seed, flow_life, path):
    """Live, with a snapshot at a random place; return the calls and the decisions after it."""
    rng = np.random.default_rng(seed)
    which = seed % len(SETS)
    made = flow_life(seed, SETS[which], apart=0.2, limited=0.2 if seed % 3 else 0.0, **OPTIONS[which])
    core, calls, cut = ClusterCore(made.scheduler), [], int(rng.integers(1, 13))
    made.scheduler = Noted(core.scheduler, calls)
    for turn in range(12):
        for count in range(int(rng.integers(1, 6))):
            made.event()
            if seed % 4 == 1 and rng.random() < 0.1 and (jobs := list(core.scheduler.state.jobs)):
                rule = (
                    Gang(within="rack", **_about(turn, count, rng, jobs)),
                    TaskSpread(over="rack", most=2, **_about(turn, count, rng, jobs)),
                )
                with suppress(EventError):
                    made.scheduler.tie(rule[int(rng.integers(2))])
            cut -= 1
            if not cut:
                path.write_bytes(core.save())
                calls.clear()
            if rng.random() < 0.2 and (waiting := list(core.scheduler.waiting())):
                with suppress(RefusedEvent):  # it may be placed by the next step
                    core.explain(str(rng.choice(waiting)))
        made.now += int(rng.integers(0, 200))
        calls.append((made.now, core.decide(made.now)))
    return calls


def _about(turn, count, rng, jobs):
    return {"name": f"r{turn}-{count}", "jobs": (str(rng.choice(jobs)),)}


def go_on(path, calls, replayed):
    """Return the decisions of a scheduler that is loaded, repeats ``replayed`` decisions, and then makes its own."""
    core, found = ClusterCore(restored_scheduler(path.read_bytes())), []
    for name, *call in calls:
        if isinstance(name, str):
            with suppress(EventError):
                getattr(core.scheduler, name)(*call[0], **call[1])
        elif replayed:
            core.redo(call[0], name)
            replayed -= 1
        else:
            found.append(core.decide(name))
    return found


if __name__ == "__main__":
    lives = pickle.loads(sys.stdin.buffer.read())
    sys.stdout.buffer.write(pickle.dumps([go_on(*each) for each in lives]))


@pytest.mark.parametrize("block", [range(4), pytest.param(range(4, 250), marks=pytest.mark.slow)], ids=str)
def test_decisions_after_a_recovery_are_those_of_an_uninterrupted_run(block, flow_life, tmp_path):
    lives, expected = [], []
    for seed in block:
        path = tmp_path / f"{seed}"
        calls = life(seed, flow_life, path)
        made = [call[1] for call in calls if not isinstance(call[0], str)]
        replayed = seed % (len(made) + 1)
        lives.append((path, calls, replayed))
        expected.append(made[replayed:])
    root = Path(__file__).parents[4]
    found = subprocess.run(
        [sys.executable, "-m", "tests.systems.scheduler.live.test_recovery"],
        input=pickle.dumps(lives),
        env={**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join([str(root), *sys.path])},
        cwd=root,
        check=True,
        stdout=subprocess.PIPE,
    )
    different = [seed for seed, one, two in zip(block, expected, pickle.loads(found.stdout), strict=True) if one != two]
    assert not different
