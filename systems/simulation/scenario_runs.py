"""Runs of scenarios: a workload from a file or a generator, every policy with every seed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from flowlex.instances.file_storage import location
from flowlex.instances.files import read_instance
from flowlex.instances.generators import generate
from flowlex.instances.input_errors import first_fault
from flowlex.instances.instance_base import Instance, InstanceError
from flowlex.systems.simulation.event_log import RunLog
from flowlex.systems.simulation.policy_registry import Run, make_policy, simulator
from flowlex.systems.simulation.scenario import PolicyChoice, Scenario


def workload_of(scenario: Scenario, seed: int, folder: str | Path = ".") -> Instance:
    """Return the workload of a scenario for a seed.

    With a file, all seeds share it; with a generator, every seed of a run makes its own, unless ``parameters`` has one.
    ``folder`` is that of relative file names. Raises `InstanceError`: the file or the parameters are invalid, or the
    simulator does not accept the kind.
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


def with_settings(scenario: Scenario, settings: Mapping[str, Any]) -> Scenario:
    """Return the scenario with some values replaced, by dotted names such as ``parameters.round_s``.

    Texts that are valid JSON, such as ``3``, ``true`` and ``null``, are parsed as JSON.

    Raises `InstanceError`: no such field, or a value that it does not take.

    Examples
    --------
    >>> from flowlex.systems.simulation.scenario import Scenario
    >>> plain = Scenario.model_validate({
    ...     "simulator": "cluster", "policies": ["FIFO"], "workload": {"generator": "cluster-random"}})
    >>> with_settings(plain, {"workload.parameters.jobs": "9", "horizon_s": "60"}).workload.parameters
    {'jobs': 9}
    """
    document = scenario.model_dump(mode="json")
    for name, text in settings.items():
        *way, last = name.split(".")
        inner: Any = document
        for step in way:
            inner = inner.get(step) if isinstance(inner, dict) else None
        if not isinstance(inner, dict) or (inner is document and last not in document):
            known = ", ".join(field for field in document if field not in ("kind", "version"))
            raise InstanceError(f"a scenario has no {name!r}; its fields are {known}", place="--set")
        inner[last] = _read(text)
    try:
        return Scenario.model_validate(document)
    except ValidationError as error:
        raise InstanceError(": ".join(filter(None, first_fault(error))), place="--set") from error


def _read(text: Any) -> Any:
    try:
        return json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return text


def choice_of(scenario: Scenario, title: str) -> PolicyChoice:
    """Find a policy of a scenario by its label or name."""
    for choice in scenario.policies:
        if choice.title == title:
            return choice
    known = ", ".join(choice.title for choice in scenario.policies)
    raise InstanceError(f"scenario {scenario.name!r} has no policy {title!r}; it has: {known}", place="policies")


def run_scenario(scenario: Scenario, title: str, seed: int, folder: str | Path = ".") -> tuple[Instance, RunLog]:
    """Run one policy with one seed; return the instance and the log.

    Raises `InstanceError`: the scenario cannot be run: unknown policy or parameter, unusable workload. Raises
    `SimulationError`: the policy answers nonsense, or nothing more can happen.

    Examples
    --------
    >>> from flowlex.systems.simulation.scenario import Scenario
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
