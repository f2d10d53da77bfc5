"""A user's script: pyright must find every public name and know every type (`make lint`, tests/typing)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, assert_type

import flowlex
from flowlex import (
    FlowScheduler,
    FlowScheduling,
    GpuAssignment,
    JitBandwidth,
    LoadPartition,
    MinCostFlow,
    PodPlacement,
    generate,
    model_for,
    read_instance,
    solve,
)
from flowlex.formulations.program_arrays import Integers
from flowlex.instances import (
    FlowInstance,
    GpuInstance,
    Instance,
    JitInstance,
    LoadPartitionInstance,
    NetworkInstance,
    PodInstance,
)
from flowlex.models import Solution
from flowlex.models.gpu.model import Policy
from flowlex.models.gpu.solution import GpuSolution

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


def instances(path: Path) -> None:
    assert_type(flowlex.__version__, str)
    assert_type(read_instance(path), Instance)
    assert_type(generate("gpu-testbed", seed=1), Instance)


def models(
    gpu: GpuInstance,
    jit: JitInstance,
    flow: FlowInstance,
    load: LoadPartitionInstance,
    pods: PodInstance,
    network: NetworkInstance,
) -> None:
    assert_type(GpuAssignment(gpu, policy=Policy.FSP).instance, GpuInstance)
    assert_type(JitBandwidth(jit).instance, JitInstance)
    assert_type(FlowScheduling(flow).instance, FlowInstance)
    assert_type(LoadPartition(load).instance, LoadPartitionInstance)
    assert_type(PodPlacement(pods).instance, PodInstance)
    assert_type(MinCostFlow(network).instance, NetworkInstance)
    _ = FlowScheduler
    assert_type(model_for(gpu, policy="FSP"), GpuAssignment)
    assert_type(model_for(jit), JitBandwidth)
    assert_type(model_for(flow), FlowScheduling)
    assert_type(model_for(load), LoadPartition)
    assert_type(model_for(pods), PodPlacement)
    assert_type(model_for(network), MinCostFlow)
    assert_type(solve(gpu), GpuSolution)
    assert_type(solve(network, engine="network", time_limit_s=9.0).flow, Integers | None)
    assert_type(solve("any.json"), Solution)


def answers(gpu: GpuInstance) -> tuple[pd.DataFrame, Axes]:
    solution = GpuAssignment(gpu).solve(engine="network")
    assert_type(solution.to_frame(), "pd.DataFrame")
    solution.require_answer()
    return solution.to_frame(), solution.plot()
