"""Column generation of pairs: the same optimum, and no pair with a positive reduced cost remains."""

import dataclasses

import numpy as np
import pytest

from flowlex import generate
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.solver_outcome import EngineError
from flowlex.instances.allocation import Limit
from flowlex.models.allocation.methods.pair_pricing import PairPrices
from flowlex.models.allocation.model import Allocation
from tests.models.allocation.cases import random_instance

POLICIES = ("max_min", "water_filling", "makespan", "finish_time", "max_throughput", "hierarchical")


@pytest.mark.parametrize("policy", POLICIES)
def test_priced_pairs_give_the_optimum_of_all_pairs(policy):
    for seed in range(8):
        instance = random_instance(seed, jobs=8)
        floor = Limit(entity="u0", least_gpus=0.3)  # a pair of one user counts once against it
        instance = instance.model_copy(update={"limits": (*instance.limits, floor) if seed % 2 else ()})
        whole = Allocation(instance, policy=policy, pricing=False).solve("highs")
        priced = Allocation(instance, policy=policy, pricing=True).solve("highs")
        assert priced.status == whole.status
        if whole.objective is None:
            continue
        assert priced.objective == pytest.approx(whole.objective, rel=1e-6)
        if policy in ("water_filling", "hierarchical"):
            assert priced.level == pytest.approx(whole.level, rel=1e-5)


def test_deadlines_that_jobs_alone_miss_are_kept_by_pairs():
    found = []
    for seed in range(8):
        instance = random_instance(seed, jobs=8, limits=False, tight=0.6)
        for policy in ("max_throughput", "min_cost"):
            if any(job.deadline_s for job in instance.jobs):
                whole, priced = (Allocation(instance, policy=policy, pricing=p).solve("highs") for p in (False, True))
                assert priced.status == whole.status
                if whole.objective is not None:
                    assert priced.objective == pytest.approx(whole.objective, rel=1e-6)
                found.append(whole.status)
    assert len(set(found)) == 2  # some deadlines can be met, some cannot


def test_pairs_never_all_exist(monkeypatch):
    """A solve with many pairs builds no program with all of them."""
    made = generate("gavel-like", jobs=160, gpus=16, sharing=True, seed=3)
    jobs = [job.model_copy(update={"weight": 1 + k / 1000}) for k, job in enumerate(made.jobs)]  # no two are identical
    instance = made.model_copy(update={"jobs": tuple(jobs)})
    pairs = PairPrices(instance).count
    assert pairs > 10_000
    largest = []
    arrays = LinearProgram.arrays
    monkeypatch.setattr(LinearProgram, "arrays", lambda self: largest.append(self.column_count) or arrays(self))
    priced = Allocation(instance).solve()
    assert max(largest) < pairs / 4
    assert priced.certificate.claim == "optimal"
    whole = Allocation(instance, pricing=False).solve("highs")
    assert priced.objective == pytest.approx(whole.objective, rel=1e-8)
    assert max(largest) > pairs


def test_with_pairs_forgotten_no_optimum_is_claimed(monkeypatch):
    """If pricing finds no pairs, the objective stays below the optimum, and no optimality is claimed."""
    instance = generate("gavel-like", jobs=30, sharing=True, seed=2)
    honest = Allocation(instance, pricing=True).solve("highs")
    look = PairPrices.look

    def careless(self, prices, goal):
        bound, found = look(self, prices, goal)
        kept = np.zeros(found.count, bool)
        return bound - 1.0, dataclasses.replace(
            found, first=found.first[kept], second=found.second[kept], gpu=found.gpu[kept], speed=found.speed[kept]
        )

    monkeypatch.setattr(PairPrices, "look", careless)
    short = Allocation(instance, pricing=True).solve("highs")
    assert (str(short.status), short.certificate.claim, honest.certificate.claim) == ("feasible", "bounded", "optimal")
    assert short.objective < 0.999 * honest.objective <= 1.001 * short.bound


def test_what_pricing_cannot_do_is_refused():
    with pytest.raises(EngineError, match="leave out solver, max_steps, algorithm"):
        Allocation(random_instance(1, limits=False), pricing=True).solve("highs", max_steps=5)


@pytest.mark.parametrize("sharing", [True, False])
def test_a_table_of_pairs_is_the_list_of_its_pairs(sharing):
    table = generate("gavel-like", jobs=14, gpus=2, own=True, sharing=True, seed=4)
    view = table.arrays
    kinds, types = ([part.name for part in parts] for parts in (table.job_types, table.gpu_types))
    listed = [
        {"job_types": [kinds[a], kinds[b]], "gpu_type": types[j], "steps_per_s": speeds}
        for (a, b), j, speeds in zip(
            view.pair_kind.tolist(), view.pair_gpu.tolist(), view.pair_speed.tolist(), strict=True
        )
    ]
    document = table.model_dump(mode="json")
    document["pair_tables"], document["pairs"] = [], listed
    same = type(table).model_validate(document)
    for policy in POLICIES:
        for pricing in (True, False):
            options = {"policy": policy, "pricing": pricing and sharing, "sharing": sharing}
            one, other = (Allocation(instance, **options).solve("highs") for instance in (table, same))
            assert one.objective == pytest.approx(other.objective, rel=1e-6)
            assert one.certificate.claim == other.certificate.claim == "optimal"
    first = table.pair_tables[0]

    def changed(**update):
        return {"pair_tables": [first.model_dump() | update]}

    parts = {
        "is listed and in a table": {"pairs": listed[:1]},
        "needs 14 rows of 14 numbers": changed(steps_per_s=first.steps_per_s[1:]),
        "two pair tables": {"pair_tables": [first, first]},
        "unequal numbers of GPUs": changed(steps_per_s=((1.0,) * 14,) * 14),
    }
    for message, change in parts.items():
        with pytest.raises(ValueError, match=message):
            type(table).model_validate(table.model_dump(mode="python") | change)
