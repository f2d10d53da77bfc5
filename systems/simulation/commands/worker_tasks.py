"""Worker tasks of ``flowlex simulate`` and ``flowlex reproduce``: one run gives one line of results."""

from __future__ import annotations

import json
import resource
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flowlex.cli.result_record import Channel
from flowlex.instances.file_storage import json_value


def simulate_task(task: dict[str, Any], channel: Channel, reply: dict[str, Any]) -> None:
    """Run one policy with one seed: ``task`` has ``scenario`` (path), ``policy``, ``seed``, ``settings``, ``solution``.

    The last is the path of the log.
    """
    from flowlex.instances.file_storage import location
    from flowlex.instances.files import read_instance
    from flowlex.systems.scheduler.event_log import write_event_log
    from flowlex.systems.simulation.policy_registry import simulator
    from flowlex.systems.simulation.scenario import Scenario
    from flowlex.systems.simulation.scenario_runs import run_scenario, with_settings

    record = reply["record"]
    channel.send("stage", stage="running", record=record)
    path = location(task["scenario"])
    scenario = read_instance(path)
    assert isinstance(scenario, Scenario)  # read by the command before
    scenario = with_settings(scenario, task["settings"])
    record |= {"name": scenario.name, "kind": "scenario", "model": task["policy"]}
    started = time.perf_counter()
    instance, log = run_scenario(scenario, task["policy"], task["seed"], path.parent)
    record["seconds"]["solve"] = time.perf_counter() - started
    runs = simulator(scenario.simulator)
    record |= {"status": "simulated", "seed": task["seed"], "metrics": json_value(runs.figures(log))}
    if task["solution"] is not None:
        target = Path(task["solution"])
        log.write(target)
        record["solution"] = target.name
        events = list(runs.events(instance, log)) if hasattr(runs, "events") else []
        if events:
            write_event_log(events, target.with_name(target.name.replace(".run.jsonl", ".events.jsonl")))


def measure_task(task: dict[str, Any], channel: Channel, reply: dict[str, Any]) -> None:
    """Measure one experiment with one seed; ``task`` has ``experiment``, ``seed``, ``quick`` and ``given``."""
    from flowlex.systems.simulation.commands.experiment_needs import NEEDS
    from flowlex.systems.simulation.experiments import experiments

    record = reply["record"]
    channel.send("stage", stage="running", record=record)
    (experiment,) = (each for each in experiments(task["paper"]) if each.name == task["experiment"])
    record |= {"name": experiment.name, "kind": "experiment", "model": experiment.paper}
    started, busy = time.perf_counter(), _processor_s()
    given = json.loads(task["given"])
    with ExitStack() as stack:
        handed = {need: stack.enter_context(NEEDS[need].give()) for need in experiment.needs}
        numbers = dict(experiment.measure(task["seed"], task["quick"], **given, **handed))
    record["seconds"]["solve"] = time.perf_counter() - started
    record |= {"status": "measured", "seed": task["seed"], "given": given, "metrics": json_value(numbers)}
    record["processor_s"] = _processor_s() - busy
    record["measured_on"] = datetime.now(UTC).date().isoformat()


def _processor_s() -> float:
    """Return the processor seconds of this process and of its ended child processes."""
    used = (resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)
