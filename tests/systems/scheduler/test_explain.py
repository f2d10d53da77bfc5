"""``flowlex explain`` on a saved state, and what it refuses."""

from flowlex.instances.flow import FlowInstance, FlowJob, FlowTask, Machine
from flowlex.models.flow.goals import PRESETS
from flowlex.systems.scheduler.live.scheduler import FlowScheduler
from flowlex.systems.scheduler.live.snapshot import save_scheduler


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
    assert run("explain", str(state), "b0", "--goals", "borg").output == done.output
    assert "no cost model is named 'x'" in refused(str(state), "b0", "--goals", "x")
    state.write_bytes(state.read_bytes()[:-300])
    assert "damaged state file" in refused(str(state), "b0")
    assert "cannot be read" in refused(str(tmp_path / "none.npz"), "b0")


def test_rules_are_in_the_log_the_state_and_the_reason(run, tmp_path):
    log, state = tmp_path / "log.jsonl", tmp_path / "state.npz"
    job = '{"name": "g", "tasks": [{"name": "g0"}, {"name": "g1"}]}'
    lines = [
        '{"event": "add_machine", "machine": {"name": "m0", "slots": 1}}',
        f'{{"event": "submit", "job": {job}, "gangs": [{{"name": "g", "jobs": ["g"]}}]}}',
        '{"event": "tie", "spreads": [{"name": "s", "jobs": ["x"], "most": 1}]}',
    ]
    log.write_text("\n".join(lines))
    done = run("replay", str(log), "--goals", "quincy", "--save", str(state), "--step-limit-s", "60")
    assert done.exit_code == 0 and "spread 's' names job 'x', which does not exist" in done.output, done.output
    said = " ".join(run("explain", str(state), "g0").output.split())
    assert "gang 'g' runs completely or not at all and needs 2 slots at once" in said and "cheapest machine" not in said
    log.write_text('{"event": "set_slots", "machine": "m0", "slots": 2}')
    again = run("replay", str(log), "--restore", str(state))
    assert again.exit_code == 0 and "running_at_end" in again.output, again.output
    for option in ("--step-limit-s", "--scale"):
        assert "from the state" in run("replay", str(log), "--restore", str(state), option, "1").output
    log.write_text('{"event": "tie"}')
    assert "tie gives no rules; state gangs, spreads or affinities" in run("replay", str(log)).output
