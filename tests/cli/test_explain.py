"""``flowlex explain`` on a saved state, and what it refuses."""

from __future__ import annotations

from flowlex.instances.flow import FlowInstance, FlowJob, FlowTask, Machine
from flowlex.models.flow.goals import PRESETS
from flowlex.models.flow.live.scheduler import FlowScheduler
from flowlex.models.flow.live.snapshot import save_scheduler


def test_a_saved_state_says_why_a_task_waits(run, tmp_path):
    jobs = [FlowJob(name=name, tasks=(FlowTask(name=f"{name}0"),), priority=p) for p, name in enumerate("ab")]
    cluster = FlowInstance(name="c", machines=(Machine(name="m0", slots=1),), jobs=tuple(jobs))
    scheduler = FlowScheduler(cluster, PRESETS["borg"])
    scheduler.step()
    state = tmp_path / "state.npz"
    save_scheduler(scheduler, state)

    done = run("explain", str(state), "b0")
    assert done.exit_code == 0, done.output
    for said in ("priority", "more important", "no cost within the limit", "m0", "a0"):
        assert said in done.output

    def refused(*words):
        done = run("explain", *words)
        assert done.exit_code == 2
        return " ".join(done.output.split())

    assert "no task is named 'zz'" in refused(str(state), "zz")
    assert "task 'a0' runs on 'm0'; only what waits is explained" in refused(str(state), "a0")
    assert "it was saved with the goals" in refused(str(state), "b0", "--goals", "quincy")
    assert "no cost model is named 'x'" in refused(str(state), "b0", "--goals", "x")
    state.write_bytes(state.read_bytes()[:-300])
    assert "damaged state file" in refused(str(state), "b0")
    assert "cannot be read" in refused(str(tmp_path / "none.npz"), "b0")
