"""Changes of goals and labels, live: afterwards the schedule equals a fresh static solve."""

import numpy as np
import pytest

from flowlex.instances.flow import Constraint, FlowInstance, FlowJob, FlowTask, Machine
from flowlex.models import ModelError
from flowlex.models.flow.goals import Continuity, DataLocality, FairShares, LoadSpread, Placement, Priority, RandomCosts
from flowlex.systems.scheduler.live.scheduler import EventError, FlowScheduler
from flowlex.systems.scheduler.live.snapshot import load_scheduler, save_scheduler
from tests.seeds import seeds

SETS = (
    (),
    (Priority(), Placement(), Continuity(base=3, rate=2)),
    (FairShares(), Placement()),
    (FairShares("caps"), Priority(), DataLocality(), Placement()),
    (LoadSpread(), Continuity(), Placement(), FairShares("weighted")),
    (LoadSpread(step=2), Continuity(base=7, weight=2), DataLocality()),
    (Priority(mode="weighted", lowest=4), DataLocality()),
    (RandomCosts(), Placement()),
)


@pytest.mark.parametrize("options", [{}, {"lexicographic": True}, {"lexicographic": True, "method": "phases"}])
@pytest.mark.parametrize("seed", seeds(1, 3))
def test_switched_goals_and_labels_equal_a_solve_from_scratch(seed, options, flow_life, tmp_path):
    rng = np.random.default_rng(seed)
    life = flow_life(seed, SETS[seed], **options)
    for turn in range(10):
        if rng.random() < 0.6:
            life.goals = SETS[int(rng.integers(len(SETS)))]
            life.scheduler.set_goals(life.goals)
        names = list(life.scheduler.state.cluster.machines)
        if rng.random() < 0.5 and names:
            labels = [label for label in ("gpu", "ssd") if rng.random() < 0.5]
            rack = f"r{rng.integers(3)}" if rng.random() < 0.5 else None
            life.scheduler.relabel(str(rng.choice(names)), labels=labels, rack=rack)
        if turn % 4 == 3:
            save_scheduler(life.scheduler, tmp_path / "state.npz")
            life.scheduler = load_scheduler(tmp_path / "state.npz", life.goals)
        life.check_step()


def small(*goals, **options):
    machines = (Machine(name="a", slots=2), Machine(name="b", slots=2, labels=("gpu",)))
    return FlowScheduler(FlowInstance(name="small", machines=machines), goals, **options)


def needs(name, label):
    wants = (Constraint(kind="required", resources=(label,)),)
    return FlowJob(name=name, tasks=(FlowTask(name=name, constraints=wants),))


def test_a_switch_keeps_places():
    live = small(Placement(), LoadSpread())
    for k in range(4):
        live.submit(needs(f"t{k}", "gpu" if k < 2 else "machine:a"))
    live.step()
    live.set_goals((Placement(), LoadSpread(step=5)))
    delta = live.step()
    assert (delta.placed, delta.moved, delta.stopped) == ((), (), ())
    assert live.score().cost == 2 * 5  # the second slot of both


def test_what_a_relabelled_machine_may_not_run_moves():
    live = small(Placement())
    live.submit(needs("t", "gpu"))
    assert live.step().placed == (("t", "b"),)
    live.relabel("a", labels=("gpu", "ssd"))
    live.relabel("b", labels=())
    assert live.step().moved == (("t", "b", "a", "machine 'b' was relabelled"),)
    live.relabel("a", rack="r9")
    live.step()
    assert live.machine_of("t") == "a"
    assert {m.name: (m.rack, m.labels) for m in live.instance().machines}["a"] == ("r9", ("gpu", "ssd"))


def test_what_is_refused_changes_nothing():
    live = small(Placement(), Continuity())
    live.submit(needs("t", "gpu"))
    live.step()
    live.step()  # with the credit for where it runs
    goals, score = live.state.goals, live.score()
    for bad, says in (
        ((Continuity(), Continuity()), "two goals are of kind Continuity"),
        ((Priority(mode="weighted"),), "pass lowest="),
        ((LoadSpread(step=0.5),), "pass scale=2"),
        ((Placement(), LoadSpread(step=10**6 + 1)), "exceeds the limit"),
    ):
        with pytest.raises(ModelError, match=says):
            live.set_goals(bad)
        assert live.state.goals is goals
        assert live.step().certificate.ok and live.score() == score
    with pytest.raises(EventError, match="no machine is named 'zz'"):
        live.relabel("zz", labels=())
    with pytest.raises(EventError, match="machine 'a'"):
        live.relabel("a", labels=("machine:b:",) * 2, rack="")
    assert live.step().moved == ()


def test_the_credit_of_a_task_goes_on_growing_under_new_goals():
    live = small(Placement())
    live.submit(needs("t", "gpu"))
    live.step(0.0)
    live.set_goals((Placement(), Continuity(base=1, rate=2, unit_s=60)))
    live.step(200.0)
    assert live.score().cost == -5  # 1 + 2 * floor(log2(1 + 200 / 60))
