"""The model for each kind of instance, and the entry points `model_for` and `solve`.

Models of other packages are found through the entry-point group ``flowlex.models``: the name is the kind of
instance, the value ``module:Class``.
"""

from __future__ import annotations

import dataclasses
import os
import pkgutil
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from flowlex.formulations.solver_outcome import EngineName, SolveOptions
from flowlex.instances.extensions import added, added_names, owner
from flowlex.instances.files import read
from flowlex.instances.instance_base import Instance, InstanceError
from flowlex.instances.named_modules import MODELS_VARIABLE, load_named_modules
from flowlex.models.model_base import Model
from flowlex.models.model_options import check_option, option_types, require_known
from flowlex.models.models_by_kind import MODELS
from flowlex.models.solution import ModelError, Solution

if TYPE_CHECKING:
    import pandas as pd

    from flowlex.instances import (
        AllocationInstance,
        FlowInstance,
        GpuInstance,
        JitInstance,
        LoadPartitionInstance,
        NetworkInstance,
        PodInstance,
    )
    from flowlex.models.allocation.model import Allocation
    from flowlex.models.allocation.solution import AllocationSolution
    from flowlex.models.flow.model import FlowScheduling
    from flowlex.models.flow.solution import FlowSolution
    from flowlex.models.gpu.model import GpuAssignment
    from flowlex.models.gpu.solution import GpuSolution
    from flowlex.models.jit.model import JitBandwidth
    from flowlex.models.jit.solution import JitSolution
    from flowlex.models.load.model import LoadPartition
    from flowlex.models.load.solution import PartitionSolution
    from flowlex.models.min_cost_flow import MinCostFlow, NetworkFlow
    from flowlex.models.pods.model import PodPlacement
    from flowlex.models.pods.solution import PlacementSolution
    from flowlex.models.problem import Problem
    from flowlex.models.problem_solution import ProblemSolution

_GROUP = "flowlex.models"
#: Our own models, by kind of instance; imported when used.
_OWN = {
    "allocation": "flowlex.models.allocation.model:Allocation",
    "flow-scheduling": "flowlex.models.flow.model:FlowScheduling",
    "gpu-assignment": "flowlex.models.gpu.model:GpuAssignment",
    "jit-bandwidth": "flowlex.models.jit.model:JitBandwidth",
    "load-partition": "flowlex.models.load.model:LoadPartition",
    "min-cost-flow": "flowlex.models.min_cost_flow:MinCostFlow",
    "pod-placement": "flowlex.models.pods.model:PodPlacement",
    "problem": "flowlex.models.problem_model:ProblemModel",
}


def model_class(kind: str) -> type[Model[Any, Any, Any]]:
    """The model class for a kind of instance.

    Raises `ModelError`: no model solves that kind, or the package that offers one is broken; names it.
    """
    if kind not in _OWN and kind not in MODELS and os.environ.get(MODELS_VARIABLE):
        load_named_modules()
    if kind in MODELS:
        return typing.cast(type[Model[Any, Any, Any]], MODELS[kind])
    found = pkgutil.resolve_name(_OWN[kind]) if kind in _OWN else _added(kind)
    return typing.cast(type[Model[Any, Any, Any]], found)


def _added(kind: str) -> type:
    """The model that another package adds; if it is not a model, the error names the package."""
    try:
        found = added(_GROUP, kind)
    except InstanceError as error:
        raise ModelError(str(error)) from error
    if found is None:
        have = ", ".join(sorted({*_OWN, *added_names(_GROUP)}))
        raise ModelError(f"no model solves instances of kind {kind!r}; those that are solved: {have}")
    from flowlex.models.model import Model as StatedModel

    if not (isinstance(found, type) and issubclass(found, (Model, StatedModel))):
        raise ModelError(
            f"{owner(_GROUP, kind)} offers {found!r} for kind {kind!r}, which is no Model; mend or remove it"
        )
    return found


def model_options(kind: str) -> dict[str, Any]:
    """Options of a kind's model: name to type."""
    return dict(option_types(model_class(kind)))


def read_options(kind: str, options: typing.Mapping[str, Any]) -> dict[str, Any]:
    """Read options of a kind's model as their declared types.

    Raises `ModelError`: unknown kind, option or value.
    """
    cls = model_class(kind)
    require_known(cls, options)
    return {name: check_option(cls, name, value) for name, value in options.items()}


@overload
def model_for(instance: AllocationInstance, **options: Any) -> Allocation: ...
@overload
def model_for(instance: GpuInstance, **options: Any) -> GpuAssignment: ...
@overload
def model_for(instance: JitInstance, **options: Any) -> JitBandwidth: ...
@overload
def model_for(instance: FlowInstance, **options: Any) -> FlowScheduling: ...
@overload
def model_for(instance: LoadPartitionInstance, **options: Any) -> LoadPartition: ...
@overload
def model_for(instance: PodInstance, **options: Any) -> PodPlacement: ...
@overload
def model_for(instance: NetworkInstance, **options: Any) -> MinCostFlow: ...
@overload
def model_for(instance: Instance, **options: Any) -> Model[Any, Any, Any]: ...
def model_for(instance: Instance, **options: Any) -> Model[Any, Any, Any]:
    """Make the model of an instance; options given as text are read as the option's declared type.

    Parameters
    ----------
    instance
        An instance of a kind that a model solves; files are read with `flowlex.read_instance` first.
    options
        Fields of the model by name, such as ``policy`` or ``changes``; not options of the solver.

    Raises
    ------
    ModelError
        Not an instance, an unknown option or value, or an instance that breaks one of the model's assumptions.
    """
    if not isinstance(instance, Instance):
        raise ModelError(f"model_for takes an instance, got {instance!r:.80}; read a file with `read_instance(path)`")
    return model_class(instance.kind)(instance, **read_options(instance.kind, options))


@overload
def solve(instance: AllocationInstance, engine: EngineName = ..., **options: Any) -> AllocationSolution: ...
@overload
def solve(instance: GpuInstance, engine: EngineName = ..., **options: Any) -> GpuSolution: ...
@overload
def solve(instance: JitInstance, engine: EngineName = ..., **options: Any) -> JitSolution: ...
@overload
def solve(instance: FlowInstance, engine: EngineName = ..., **options: Any) -> FlowSolution: ...
@overload
def solve(instance: LoadPartitionInstance, engine: EngineName = ..., **options: Any) -> PartitionSolution: ...
@overload
def solve(instance: PodInstance, engine: EngineName = ..., **options: Any) -> PlacementSolution: ...
@overload
def solve(instance: NetworkInstance, engine: EngineName = ..., **options: Any) -> NetworkFlow: ...
@overload
def solve(instance: Problem, engine: EngineName = ..., **options: Any) -> ProblemSolution: ...
@overload
def solve(
    instance: Instance | str | Path | typing.Mapping[str, Any], engine: EngineName = ..., **options: Any
) -> Solution: ...
def solve(
    instance: Instance | Problem | str | Path | typing.Mapping[str, Any],
    engine: EngineName = "auto",
    *,
    certify: bool = True,
    **options: Any,
) -> Solution:
    """Solve an instance, problem, file or set of tables to a certified answer.

    Parameters
    ----------
    instance
        What to solve: an instance, a problem, or whatever `flowlex.read` takes (a path, tables as frames, a document).
    engine
        ``pulp``, ``highs`` or (networks) ``network``.
    certify
        False: recompute nothing; the solution says that it is not certified. See `Model.solve`.
    options
        Options of the model and of the solver (`SolveOptions`), by name.

    Raises
    ------
    InstanceError
        The file holds no instance.
    ModelError
        An unknown option or value, or an instance that breaks one of the model's assumptions.

    Examples
    --------
    >>> from flowlex import generate, solve
    >>> solve(generate("gpu-figure1"), policy="FSP").status
    <Status.OPTIMAL: 'optimal'>
    """
    names = {field.name for field in dataclasses.fields(SolveOptions)} | {"report", "start"}
    solver = {name: options.pop(name) for name in names & options.keys()}
    if not isinstance(instance, (Instance, str, Path, typing.Mapping)):
        from flowlex.formulations.language.statement import Statement
        from flowlex.models.problem import Problem

        if isinstance(instance, Statement):
            if options or not isinstance(instance, Problem):
                odd = next(iter(options), None)
                raise ModelError(f"a problem has no option {odd!r}" if odd else f"{instance!r} is no Problem")
            return instance.solve(engine, certify=certify, **solver)
    model: Any = model_for(read(instance), **options)
    solution: Solution = model.solve(engine, certify=certify, **solver)
    return solution


def compare(instance: Instance, **options: Any) -> pd.DataFrame:
    """Tabulate a problem's policies and baselines on one instance.

    Parameters
    ----------
    instance
        The instance on which all of them are solved.
    options
        Keywords of the problem's own table, such as ``engine``.

    Raises
    ------
    ModelError
        The problem's model has no table of comparison.
    """
    return model_class(instance.kind).compare(instance, **options)
