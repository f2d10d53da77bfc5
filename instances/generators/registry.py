"""The generators by name, with typed parameters that the command line can set."""

from __future__ import annotations

import importlib
import inspect
import os
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Annotated, Any, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from flowlex.instances.extensions import added, load_added, owner
from flowlex.instances.input_errors import InstanceError, did_you_mean, first_fault
from flowlex.instances.instance_base import Instance
from flowlex.instances.named_modules import MODELS_VARIABLE, load_named_modules
from flowlex.instances.registered_systems import registered

#: Types of parameters; text from a command line is converted to these types.
Count = Annotated[int, Field(ge=0)]
Size = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]

Function = TypeVar("Function", bound=Callable[..., Instance])


@dataclass(frozen=True)
class GeneratorSpec:
    """One generator: its name, its function, and its keyword parameters (without ``seed``)."""

    name: str
    function: Callable[..., Instance]
    parameters: Mapping[str, inspect.Parameter]
    types: Mapping[str, Any]

    @property
    def title(self) -> str:
        """The first line of the docstring."""
        return (self.function.__doc__ or "").strip().partition("\n")[0]


#: Generators imported so far.
GENERATORS: dict[str, GeneratorSpec] = {}
#: Modules of our own generators.
_OWN = {
    name: module
    for module, names in {
        "allocation": "gavel-like",
        "flow": "flow-testbed flow-scale flow-cell flow-random",
        "gpu": "gpu-figure1 gpu-figure4 gpu-testbed gpu-scale gpu-random",
        "jit": "jit-figure4 jit-cluster jit-random",
        "load": "inference-cluster",
        "min_cost_flow": "network-random network-assignment network-netgen",
        "pods": "kubeflow-testbed pods-scale",
    }.items()
    for name in names.split()
}


def all_generators() -> dict[str, GeneratorSpec]:
    """Import all generators, including those of other packages; return them by name, sorted."""
    for name in (*_OWN, *registered("GENERATORS")):
        find(name)
    load_added("flowlex.generators", lambda _, name: find(name))
    return dict(sorted(GENERATORS.items()))


def find(name: str) -> GeneratorSpec | None:
    """Import and return the generator with a name; return None if there is none."""
    if name in _OWN:
        importlib.import_module(f"flowlex.instances.generators.{_OWN[name]}")
    elif name not in GENERATORS and name in (systems := registered("GENERATORS")):
        importlib.import_module(systems[name])
    elif name not in GENERATORS and os.environ.get(MODELS_VARIABLE):
        load_named_modules()
    if (
        name not in _OWN
        and name not in GENERATORS
        and (made := added("flowlex.generators", name)) is not None
        and name not in GENERATORS
    ):
        reason = f"{owner('flowlex.generators', name)} offers generator {name!r} but {made!r} is not made by"
        raise InstanceError(f"{reason} `@generator({name!r})`; mend or remove it")
    return GENERATORS.get(name)


def generator(name: str) -> Callable[[Function], Function]:
    """Register a function ``f(*, seed=0, **typed parameters) -> Instance`` under ``name``.

    Parameters
    ----------
    name
        Its name.
    """

    def register(function: Function) -> Function:
        parameters = dict(inspect.signature(function).parameters)
        if parameters.pop("seed", None) is None:
            raise TypeError(f"generator {name!r} takes no seed")
        GENERATORS[name] = GeneratorSpec(
            name, function, parameters, typing.get_type_hints(function, include_extras=True)
        )
        return function

    return register


def generate(name: str, *, seed: int = 0, **parameters: Any) -> Instance:
    """Make an instance; the same name, seed and parameters give the same instance.

    Parameters
    ----------
    name
        One of `all_generators`.
    seed
        Non-negative integer.
    parameters
        Keyword parameters of the generator. Strings (from a command line) are read as the declared type.

    Raises
    ------
    InstanceError
        Unknown name, unknown parameter, or a value that is not of the parameter's type or range.
    """
    spec = find(name)
    if spec is None:
        known = all_generators()
        raise InstanceError(f"no generator is named {name!r}; one of: {', '.join(known)}{did_you_mean(name, known)}")
    if not isinstance(seed, Integral):
        raise InstanceError(f"the seed must be an integer, got {seed!r}", place=name)
    if seed < 0:
        raise InstanceError(f"the seed must not be negative (got {seed})", place=name)
    values: dict[str, Any] = {}
    for key, value in parameters.items():
        if key not in spec.parameters:
            raise InstanceError(f"no parameter {key!r}; it has: {', '.join(spec.parameters) or 'none'}", place=name)
        try:
            values[key] = TypeAdapter(spec.types[key]).validate_python(value)
        except ValidationError as error:
            raise InstanceError(f"{key}={value!r}: {first_fault(error, value=False)[1]}", place=name) from error
    missing = [key for key, p in spec.parameters.items() if p.default is p.empty and key not in values]
    if missing:
        raise InstanceError(f"it needs {', '.join(missing)}; on the command line, after the name", place=name)
    try:
        return spec.function(seed=seed, **values)
    except ValidationError as error:
        reason = f"these parameters make no valid instance: {first_fault(error)[1]}"
        raise InstanceError(reason, place=name) from error


def require(holds: bool, reason: str) -> None:
    """Raise `InstanceError` with the reason unless a condition on the parameters holds."""
    if not holds:
        raise InstanceError(reason)


Choice = TypeVar("Choice")


def chosen(parameter: str, text: str, table: Mapping[str, Choice], what: str) -> list[Choice]:
    """Look up comma-separated names in a table; ``what`` is their kind, for the error message."""
    wanted = [name.strip() for name in text.split(",")]
    for name in wanted:
        require(name in table, f"{parameter}={text!r}: no {what} is named {name!r}; one of: {', '.join(table)}")
    return [table[name] for name in wanted]
