"""Simulators and policies by name; those of other packages are found through entry points.

A simulator is a module of this package with a `Simulator`. A policy is any class that the simulator accepts; another
package declares its own under ``[project.entry-points."flowlex.policies.cluster"]`` (or ``.network``).
"""

from __future__ import annotations

import difflib
import inspect
import runpy
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from flowlex.instances.extensions import added, added_names
from flowlex.instances.input_errors import first_fault
from flowlex.instances.instance_base import Instance, InstanceError
from flowlex.systems.simulation.event_log import RunLog
from flowlex.systems.simulation.scenario import Decision, PolicyChoice

Factory = TypeVar("Factory", bound=Callable[..., Any])
#: Module of each simulator; it has a `SIMULATOR`, and importing it registers its policies.
_SIMULATORS = {"cluster": "flowlex.systems.simulation.cluster", "network": "flowlex.systems.simulation.network"}
_POLICIES: dict[str, dict[str, Callable[..., Any]]] = {name: {} for name in _SIMULATORS}


@dataclass(frozen=True)
class Run:
    """Parameters of one run, besides instance and policy."""

    seed: int = 0  # of all random streams
    horizon_s: float | None = None  # when simulated time ends; None: when everything is done
    decision: Decision = field(default_factory=Decision)  # how long the policy thinks
    parameters: Mapping[str, Any] = field(default_factory=dict)  # of the simulator, as in the scenario; it checks them

    def __post_init__(self) -> None:
        if self.horizon_s is not None and not self.horizon_s > 0:
            raise InstanceError(f"must be above 0 s, or None for no end, got {self.horizon_s!r}", place="horizon_s")
        if self.seed < 0:
            raise InstanceError(f"must not be negative, got {self.seed}", place="seed")


class Simulator(Protocol):
    """Interface of a simulator for scenarios.

    It may also have ``events(instance, log)``: the events of a run for ``flowlex replay``.
    """

    #: Kinds of instance that it takes.
    kinds: tuple[str, ...]

    def check(self, parameters: Mapping[str, Any]) -> None:
        """Raise `InstanceError` for invalid parameters of `simulate`."""
        ...

    def simulate(self, instance: Instance, policy: Any, run: Run) -> RunLog:
        """Run once; equal arguments give equal logs (except for measured decision times)."""
        ...

    def figures(self, log: RunLog) -> dict[str, float]:
        """Return the metrics of a run, computed from its log alone."""
        ...

    def plots(self) -> Mapping[str, Callable[..., Any]]:
        """Pictures by name: functions of (log, axes)."""
        ...


def simulator(name: str) -> Simulator:
    """Find a simulator.

    Raises `InstanceError`: no such simulator.
    """
    if name not in _SIMULATORS:
        raise InstanceError(f"no simulator is named {name!r}; one of: {', '.join(_SIMULATORS)}", place="simulator")
    found: Simulator = import_module(_SIMULATORS[name]).SIMULATOR
    return found


def policy(of: str, name: str) -> Callable[[Factory], Factory]:
    """Register a class of policies (or a function that makes one) under a name."""

    def register(factory: Factory) -> Factory:
        _POLICIES[of][name] = factory
        return factory

    return register


def policies(of: str) -> tuple[str, ...]:
    """Names of the policies of a simulator, sorted."""
    simulator(of)
    return tuple(sorted({*_POLICIES[of], *added_names(f"flowlex.policies.{of}")}))


def make_policy(of: str, choice: PolicyChoice) -> Any:
    """Make a policy from its name and parameters; ``my_policy.py:Mine`` names a class (or function) of a file.

    Raises `InstanceError`: unknown name, file or parameter, or values that the policy does not take.
    """
    simulator(of)
    name = choice.name
    factory = _of_file(name) or _POLICIES[of].get(name) or added(f"flowlex.policies.{of}", name)
    if factory is None:
        known = policies(of)
        near = difflib.get_close_matches(name, known, 1, 0.5)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        reason = f"the {of} simulator has no policy {name!r}{hint} It has: {', '.join(known)}"
        raise InstanceError(reason, place="policies")
    values = checked(factory, choice.parameters, f"policy {name!r}")
    try:
        return factory(**values)
    except ValueError as error:  # raised by the policy itself, as for two contradictory values
        raise InstanceError(str(error), place=f"policy {name!r}") from error


def _of_file(name: str) -> Callable[..., Any] | None:
    """Load ``FILE.py:CLASS``; None for a name of another form."""
    file, colon, inside = name.rpartition(":")
    if not (colon and file.endswith(".py")):
        return None
    try:
        found = runpy.run_path(file).get(inside)
    except OSError as error:
        raise InstanceError(f"{file} cannot be read: {error.strerror}", place="policies") from error
    except Exception as error:  # running the file can raise anything
        raise InstanceError(f"{file} fails: {type(error).__name__}: {error}", place="policies") from error
    if not callable(found):
        raise InstanceError(f"{file} has no class or function {inside!r}", place="policies")
    return cast(Callable[..., Any], found)


def checked(factory: Callable[..., Any], given: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Return the values of a function's or class's parameters, converted to their declared types.

    Raises `InstanceError`: unknown parameter, one that is missing, or a value that is not of its type.
    """
    parameters = inspect.signature(factory).parameters
    types = typing.get_type_hints(factory.__init__ if inspect.isclass(factory) else factory, include_extras=True)
    values = {}
    for key, value in given.items():
        if key not in parameters:
            raise InstanceError(f"no parameter {key!r}; it has: {', '.join(parameters) or 'none'}", place=place)
        try:
            values[key] = TypeAdapter(types.get(key, Any)).validate_python(value)
        except ValidationError as error:
            raise InstanceError(f"{key}={value!r}: {first_fault(error, value=False)[1]}", place=place) from error
    missing = [n for n, p in parameters.items() if p.default is p.empty and n not in values]
    if missing:
        raise InstanceError(f"needs the parameter {missing[0]!r}", place=place)
    return values
