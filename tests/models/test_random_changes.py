"""Statements of all families: the optimum of the quick methods; changed, that of independently changed arrays."""

import json

import numpy as np
import pytest

from flowlex import generate, model_for
from flowlex.models.allocation.model import Allocation
from flowlex.models.flow.model import FlowScheduling
from flowlex.models.gpu.model import GpuAssignment
from flowlex.models.jit.model import JitBandwidth
from flowlex.models.load.model import LoadPartition
from flowlex.models.pods.model import PodPlacement
from flowlex.models.solution import ModelError
from flowlex.testing.staged_optimum import optimise
from flowlex.validation.certificates import verify
from tests.models.allocation.cases import random_instance
from tests.models.flow.ties import GOALS, tied_cluster
from tests.models.gpu.cases import random_round
from tests.models.jit.test_changes import LOADS, tiny
from tests.models.load.test_changes import VARIANTS, random_cluster
from tests.models.pods.test_changes import random_instance as random_instance_of_pods
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


def pods(seed):
    measure = ("max_load", "mean_absolute")[seed % 2]
    return PodPlacement(random_instance_of_pods(np.random.default_rng(seed)), balance=measure)


def flow(seed):
    return FlowScheduling(tied_cluster(seed, most_tasks=5), goals=GOALS)


def flow_in_order(seed):
    options = [{"preset": "borg"}, {"preset": "quincy"}, {"order": "phases"}, {"lexicographic": True}]
    return model_for(generate("flow-random", seed=seed), **options[seed % 4])


def waiting_at_a_price(seed):
    return GpuAssignment(random_round(seed), policy=("FSP", "FS")[seed % 2], waiting="priced")


UNITS = {flow: 1.0, pods: 1.0, gpu: 1.0, load: 1.0, allocation: 1 / 16, jit: 1.0, network: 4.0}


@pytest.mark.parametrize("family", [*UNITS, flow_in_order, waiting_at_a_price], ids=lambda family: family.__name__)
@pytest.mark.parametrize("seed", seeds(8, 40))
def test_the_statement_has_the_optimum_of_the_quick_method(family, seed):
    """With a rule that never binds, the model is solved as it is stated."""
    try:
        model = family(seed)
        quick = model.solve()
        stated = model.with_constraint("idle", next(iter(model.variables.values())).sum() <= 10**7).solve()
    except ModelError:  # a window that is too short, or no variables
        return
    assert (stated.status, stated.certificate.claim) == (quick.status, quick.certificate.claim)
    if quick.status.has_answer:
        assert stated.objective == pytest.approx(quick.objective, rel=1e-6, abs=2e-6)
        assert stated.bound == pytest.approx(quick.bound, rel=1e-4, abs=2e-6)
        for name in quick.stages.keys() & stated.stages.keys():
            assert float(stated.stages[name]) == pytest.approx(float(quick.stages[name]), rel=1e-6, abs=2e-6), name


@pytest.mark.parametrize("family", UNITS, ids=lambda family: family.__name__)
@pytest.mark.parametrize("seed", seeds(12, 150))
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
