"""Scenarios run: a workload from a file or a generator, every policy with every seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flowlex.instances.base import Instance, InstanceError
from flowlex.instances.files import read_instance
from flowlex.instances.generators import generate
from flowlex.instances.locations import location
from flowlex.instances.scenario import PolicyChoice, Scenario
from flowlex.simulation.log import RunLog
from flowlex.simulation.registry import Run, make_policy, simulator

__all__ = ["choice_of", "run_scenario", "workload_of"]


def workload_of(scenario: Scenario, seed: int, folder: str | Path = ".") -> Instance:
    """What is to be done under a seed.

    Parameters
    ----------
    scenario
        With a file, all seeds share it; with a generator, every seed makes its own, unless ``parameters`` has one.
    seed
        Of the run.
    folder
        Where a file is looked for.

    Raises
    ------
    InstanceError
        The file or the parameters are no good, or the kind is not one that the simulator takes.
    """
    work = scenario.workload
    if work.file is not None:
        instance = read_instance(location(folder) / work.file)
    else:
        parameters: dict[str, Any] = {"seed": seed, **work.parameters}
        instance = generate(str(work.generator), **parameters)
    kinds = simulator(scenario.simulator).kinds
    if instance.kind not in kinds:
        known = " or ".join(kinds)
        reason = f"the {scenario.simulator} simulator takes {known}, but this is {instance.kind!r}"
        raise InstanceError(reason, place="workload")
    return instance


def choice_of(scenario: Scenario, title: str) -> PolicyChoice:
    """Find a policy of a scenario by its label or name."""
    for choice in scenario.policies:
        if choice.title == title:
            return choice
    known = ", ".join(choice.title for choice in scenario.policies)
    raise InstanceError(f"scenario {scenario.name!r} has no policy {title!r}; it has: {known}", place="policies")


def run_scenario(scenario: Scenario, title: str, seed: int, folder: str | Path = ".") -> tuple[Instance, RunLog]:
    """Run one policy with one seed; return what was simulated and what happened.

    Raises
    ------
    InstanceError
        The scenario cannot be run: unknown policy or parameter, unusable workload.
    SimulationError
        The policy answers nonsense, or nothing more can happen.

    Examples
    --------
    >>> from flowlex.instances import Scenario
    >>> scenario = Scenario.model_validate({
    ...     "simulator": "cluster", "policies": ["FIFO"], "workload": {"generator": "cluster-random"}})
    >>> _, log = run_scenario(scenario, "FIFO", seed=1)
    >>> log.records[-1]["event"], log.records[-1]["jobs_left"]
    ('over', 0)
    """
    runs = simulator(scenario.simulator)
    policy = make_policy(scenario.simulator, choice_of(scenario, title))
    instance = workload_of(scenario, seed, folder)
    log = runs.simulate(instance, policy, Run(seed, scenario.horizon_s, scenario.decision, scenario.parameters))
    log.header |= {"scenario": scenario.name, "policy": title, "decision": scenario.decision.mode}
    return instance, log
