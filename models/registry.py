"""Which model solves which kind of instance, and how options from outside are read."""

from __future__ import annotations

import dataclasses
import importlib
import typing
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from flowlex.instances.base import Instance
from flowlex.models.base import Model, ModelError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["compare", "model_class", "model_for", "model_options", "read_options"]

#: Kind of instance: module and class of its model (imported when used).
_MODELS = {
    "flow-scheduling": ("flowlex.models.flow.model", "FlowScheduling"),
    "gpu-assignment": ("flowlex.models.gpu.model", "GpuAssignment"),
    "jit-bandwidth": ("flowlex.models.jit.model", "JitBandwidth"),
    "load-partition": ("flowlex.models.load.model", "LoadPartition"),
    "min-cost-flow": ("flowlex.models.min_cost_flow", "MinCostFlow"),
    "pod-placement": ("flowlex.models.pods.model", "PodPlacement"),
}
#: Kind of instance: module and function that tabulates its policies and baselines.
_COMPARISONS = {
    "gpu-assignment": ("flowlex.models.gpu.baselines", "compare"),
    "load-partition": ("flowlex.models.load.baselines", "compare"),
    "pod-placement": ("flowlex.models.pods.baselines", "compare"),
}


def model_class(kind: str) -> type[Model[Any, Any]]:
    """The model class for a kind of instance."""
    if kind not in _MODELS:
        raise ModelError(
            f"no model solves instances of kind {kind!r}; those that are solved: {', '.join(sorted(_MODELS))}"
        )
    module, name = _MODELS[kind]
    return typing.cast(type[Model[Any, Any]], getattr(importlib.import_module(module), name))


def model_options(kind: str) -> dict[str, Any]:
    """Options of a kind's model: name to type."""
    cls = model_class(kind)
    hints = typing.get_type_hints(cls)
    return {f.name: hints[f.name] for f in dataclasses.fields(cls) if f.name != "instance" and f.init}


def model_for(instance: Instance, **options: Any) -> Model[Any, Any]:
    """Make the model of an instance; options given as text are read as the option's declared type.

    Raises
    ------
    ModelError
        Unknown option or value, or an instance that breaks one of the model's assumptions.
    """
    return model_class(instance.kind)(instance, **read_options(instance.kind, options))


def read_options(kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Read options of a kind's model as their declared types.

    Raises
    ------
    ModelError
        Unknown kind, option or value.
    """
    known = model_options(kind)
    values: dict[str, Any] = {}
    for key, value in options.items():
        if key not in known:
            have = ", ".join(known) or "none"
            raise ModelError(f"the model of {kind!r} has no option {key!r}; it has: {have}")
        if isinstance(value, Mapping) and dataclasses.is_dataclass(known[key]):
            fields = [field.name for field in dataclasses.fields(known[key])]
            if odd := [name for name in value if name not in fields]:
                raise ModelError(f"{key} has no field {odd[0]!r}; it has: {', '.join(fields)}")
        try:
            values[key] = TypeAdapter(known[key]).validate_python(value)
        except ValidationError as error:
            raise ModelError(f"{key}={value!r}: {error.errors()[0]['msg']}") from error
    return values


def compare(instance: Instance, **options: Any) -> pd.DataFrame:
    """One table of a problem's policies and baselines on one instance."""
    if instance.kind not in _COMPARISONS:
        raise ModelError(f"nothing to compare for kind {instance.kind!r}; it has: {', '.join(sorted(_COMPARISONS))}")
    module, name = _COMPARISONS[instance.kind]
    function: Callable[..., pd.DataFrame] = getattr(importlib.import_module(module), name)
    return function(instance, **options)
