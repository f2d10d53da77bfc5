"""Random changes of the models of all families: the optimum of independently changed arrays, and proven."""

from __future__ import annotations

import json

import numpy as np
import pytest

from flowlex import generate, model_for
from flowlex.models.allocation.model import Allocation
from flowlex.models.flow.model import FlowScheduling
from flowlex.models.gpu.model import GpuAssignment
from flowlex.models.jit.model import JitBandwidth
from flowlex.models.load.model import LoadPartition
from flowlex.models.solution import ModelError
from flowlex.testing.staged_optimum import optimise
from flowlex.validation.certificates import verify
from tests.models.allocation.cases import random_instance
from tests.models.flow.ties import GOALS, tied_cluster
from tests.models.gpu.cases import random_round
from tests.models.jit.test_changes import LOADS, tiny
from tests.models.load.test_changes import VARIANTS, random_cluster
from tests.models.random_changes import Changed
from tests.seeds import seeds


def gpu(seed):
    policy = ("FSP", "FS", "FSU")[seed % 3]
    return GpuAssignment(random_round(seed), policy=policy, stop_price=float(seed % 2) if policy == "FSP" else 0.0)


def load(seed):
    objective, level = VARIANTS[seed % 4]
    return LoadPartition(random_cluster(np.random.default_rng(seed)), objective=objective, level=level)


def allocation(seed):
    policy = ("max_min", "makespan", "max_throughput", "min_cost")[seed % 4]
    return Allocation(random_instance(seed, tight=0.05, limits=seed % 3 > 0), policy=policy)


def jit(seed):
    windows = ("elastic", "strict")[seed % 2]
    return JitBandwidth(tiny(seed), share=1.0, load=LOADS[seed // 2 % 4], windows=windows)


def network(seed):
    return model_for(generate("network-random", seed=seed, nodes=6, arcs=14, unbounded=0.0))


def flow(seed):
    return FlowScheduling(tied_cluster(seed, most_tasks=5), goals=GOALS)


UNITS = {flow: 1.0, gpu: 1.0, load: 1.0, allocation: 1 / 16, jit: 1.0, network: 4.0}


@pytest.mark.parametrize("family", UNITS, ids=lambda family: family.__name__)
@pytest.mark.parametrize("seed", seeds(15, 150))
def test_random_changes_equal_the_changed_arrays(family, seed):
    try:
        changed = Changed(family(seed), seed, UNITS[family]).draw()
    except ModelError:  # an instance that the model refuses
        return
    wanted, solution = optimise(changed.program), changed.model.solve("highs")
    if not wanted.values:
        assert str(solution.status) == "infeasible" and solution.certificate.claim == "infeasible"
        return
    if changed.model.changes:
        stated = {stage.name: value for stage, value in zip(changed.program.stages, wanted.values, strict=True)}
        assert {name: float(value) for name, value in solution.stages.items()} == pytest.approx(stated, abs=1e-4)
    certificate = verify(json.loads(json.dumps(solution.to_dict())), solution.source)
    assert certificate.ok and certificate.claim == solution.status == "optimal"
