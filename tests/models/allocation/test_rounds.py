"""Rounds: cases by hand, comparison with all configurations, lags within the bound, and faults refused."""

import copy
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from flowlex import Allocation
from flowlex.formulations import Status
from flowlex.instances import AllocationInstance, generate
from flowlex.models import ModelError
from flowlex.models.allocation.allocation_linear_program import run_columns
from flowlex.models.allocation.baselines import baseline
from flowlex.models.allocation.methods.slot_configurations import slot_configurations
from flowlex.models.allocation.shares_to_rounds import RoundSchedule, schedule_rounds
from flowlex.validation.certificates import SolutionError
from flowlex.validation.restated.allocation_rounds import certify_rounds
from tests.models.allocation.cases import random_instance


def cluster(gpus: int, scales: dict[str, int], **more: Any) -> AllocationInstance:
    """Return jobs with these names and numbers of GPUs of a single type."""
    kinds = [{"name": f"k{s}", "gpus": s, "steps_per_s": {"g": 1.0}} for s in sorted(set(scales.values()))]
    jobs = [{"name": name, "job_type": f"k{scale}"} for name, scale in scales.items()]
    types = [{"name": "g", "count": gpus}]
    return AllocationInstance.model_validate({"gpu_types": types, "job_types": kinds, "jobs": jobs, **more})


def worst_lag(schedule: RoundSchedule) -> float:
    """Return the largest excess over the lag, in rounds, counted from the table alone."""
    source, frame = schedule.solution.source, schedule.to_frame()
    over = -np.inf
    for m, job in enumerate(source.jobs):
        for j, gpu in enumerate(source.gpu_types):
            mine = np.array([job.name in jobs.split("+") for jobs in frame["jobs"]])
            numbers = frame[mine & (frame["gpu_type"] == gpu.name)]["round"].to_numpy()
            count = np.bincount(numbers, minlength=len(schedule.picked)).cumsum()
            owed = schedule.owed[m, j] * np.arange(1, len(schedule.picked) + 1)
            over = max(over, float(np.abs(count - owed).max()) - schedule.lag[m, j] / schedule.seconds)
    return over


def test_three_jobs_take_turns_on_two_gpus() -> None:
    solution = Allocation(cluster(2, {"a": 1, "b": 1, "c": 1})).solve("highs")
    schedule = schedule_rounds(solution, 60.0, rounds=9)
    assert schedule.part == 1 and np.allclose(schedule.lag, 60.0)
    assert schedule.delivered.ravel().tolist() == [360.0] * 3  # two thirds of nine minutes
    frame = schedule.to_frame()
    assert frame.groupby("round")["gpus"].sum().tolist() == [2] * 9
    assert all(len(set(trio)) == 3 for trio in frame["jobs"].to_numpy().reshape(3, 6)[:, :6])
    longer = schedule_rounds(solution, 60.0, rounds=30)
    assert longer.picked[:9].tolist() == schedule.picked.tolist()


def test_jobs_that_cannot_run_together_are_refused_or_shrunk() -> None:
    solution = Allocation(cluster(3, {"a": 2, "b": 2})).solve("highs")
    assert np.allclose(solution.time, 0.75)
    with pytest.raises(ModelError, match=r"at most 66.67 % of each; pass shrink=True"):
        schedule_rounds(solution, 60.0)
    schedule = schedule_rounds(solution, 60.0, rounds=10, shrink=True)
    assert schedule.part == pytest.approx(2 / 3)
    assert schedule.delivered.ravel().tolist() == [300.0, 300.0]


def test_pairs_run_together_and_odd_circles_of_pairs_do_not() -> None:
    pair = {"job_types": ("k1", "k1"), "gpu_type": "g", "steps_per_s": (0.9, 0.9)}
    two = Allocation(cluster(1, {"a": 1, "b": 1}, pairs=[pair])).solve("highs")
    schedule = schedule_rounds(two, 1.0, rounds=4)
    assert set(schedule.to_frame()["jobs"]) == {"a+b"} and (schedule.delivered == 4).all()
    assert (schedule.lag == 0).all()  # the only configuration runs all the time
    source = cluster(3, {"a": 1, "b": 1, "c": 1}, pairs=[pair])
    model = Allocation(source)
    solution = model.solve("highs")
    object.__setattr__(solution, "columns", run_columns(source.arrays))
    share = np.where(solution.columns.paired, 0.5, 0.0)  # a+b, a+c, b+c half of the time each: only one at a time
    object.__setattr__(solution, "share", share)
    assert schedule_rounds(solution, 1.0, shrink=True).part == pytest.approx(2 / 3)


def test_the_search_ends_at_its_bound_and_the_lag_holds_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    solution = Allocation(generate("gavel-like", jobs=16, sharing=True, seed=1)).solve("highs")
    monkeypatch.setattr("flowlex.models.allocation.methods.mixture_of_rounds._MOST_CELLS", 0)
    schedule = schedule_rounds(solution, 1.0, rounds=60, shrink=True)
    assert 0 < schedule.part < 1 and worst_lag(schedule) <= 60 * schedule.drift + 1e-9
    with pytest.raises(ModelError, match="as far as was searched"):
        schedule_rounds(solution, 1.0)


def most_by_all_configurations(solution: Any) -> float:
    """Return theta over all configurations, by scipy."""
    c, view = solution.columns, solution.source.arrays
    kept = np.flatnonzero(solution.share > 1e-9)
    sets = []
    for chosen in itertools.product([0, 1], repeat=len(kept)):
        runs = kept[np.array(chosen, bool)]
        jobs = [m for k in runs for m in (c.first[k], c.second[k]) if m >= 0]
        held = np.bincount(c.gpu[runs], weights=view.scale[c.first[runs]], minlength=len(view.count))
        if len(set(jobs)) == len(jobs) and (held <= view.count).all():
            sets.append(chosen)
    rows = np.column_stack([np.array(sets).T, -solution.share[kept]])
    whole = np.array([[1.0] * len(sets) + [0.0]])
    goal = np.array([0.0] * len(sets) + [-1.0])
    bounds = [(0, None)] * len(sets) + [(0, 1)]
    found = linprog(goal, A_eq=np.vstack([rows, whole]), b_eq=[0.0] * len(kept) + [1.0], bounds=bounds)
    return float(-found.fun)


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["max_min", "water_filling", "makespan", "max_throughput"]))
def test_rounds_deliver_within_the_lag_as_much_as_any_rounds_can(seed: int, policy: str) -> None:
    solution = Allocation(random_instance(seed, limits=seed % 2 == 0), policy=policy).solve("highs")
    if solution.status is not Status.OPTIMAL:
        return
    schedule = schedule_rounds(solution, 1.0, rounds=60, shrink=True)
    assert worst_lag(schedule) <= 60 * schedule.drift + 1e-9
    assert schedule.drift < 2e-7
    if len(schedule.columns) <= 10:
        assert schedule.part == pytest.approx(most_by_all_configurations(solution), abs=2e-7)


def test_jobs_of_one_scale_alone_are_always_kept_whole() -> None:
    for seed in range(3):
        instance = generate("gavel-like", jobs=14, seed=seed)
        single = [kind.model_copy(update={"gpus": 1}) for kind in instance.job_types]
        solution = Allocation(instance.model_copy(update={"job_types": tuple(single)})).solve("highs")
        schedule = schedule_rounds(solution, 360.0, rounds=50)
        assert schedule.part == 1 and worst_lag(schedule) <= 1e-4
        assert schedule.picked.tolist() == schedule_rounds(solution, 360.0, rounds=50).picked.tolist()


def test_baselines_have_rounds_too() -> None:
    answer = baseline(generate("gavel-like", jobs=10, seed=4), "fifo")
    assert (schedule_rounds(answer, 60.0, rounds=3).delivered.sum(axis=1) == 180 * (answer.time > 0.5)).all()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"seconds": 0.0}, "seconds must be a positive number"),
        ({"seconds": float("nan")}, "seconds must be a positive number"),
        ({"seconds": 1.0, "rounds": 0}, "rounds must be an integer from 1 to 100000"),
        ({"seconds": 1.0, "rounds": 2.5}, "rounds must be an integer from 1 to 100000"),
    ],
)
def test_bad_rounds_are_refused(options: dict[str, Any], says: str) -> None:
    solution = Allocation(cluster(2, {"a": 1})).solve("highs")
    with pytest.raises(ModelError, match=says):
        schedule_rounds(solution, **options)


def _drop_last_run(document: dict[str, Any]) -> None:
    max(document["configurations"], key=len).pop()


FAULTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "one configuration all the time": lambda d: d.update(rounds=[0] * 40),
    "the order of rounds sorted": lambda d: d["rounds"].sort(),
    "a run left out": _drop_last_run,
    "a job twice in a round": lambda d: d["configurations"][0].append(dict(d["configurations"][0][0])),
    "an unknown job": lambda d: d["configurations"][0].append({"jobs": ["nobody"], "gpu_type": "g"}),
    "an unknown type": lambda d: d["configurations"][0].append({"jobs": ["a"], "gpu_type": "tpu"}),
    "a pair that may not share": lambda d: d["configurations"].append([{"jobs": ["a", "b"], "gpu_type": "g"}]),
    "more GPUs than there are": lambda d: d["configurations"].append(
        [{"jobs": [name], "gpu_type": "g"} for name in "abc"]
    ),
    "a configuration that does not exist": lambda d: d["rounds"].append(99),
    "a negative configuration": lambda d: d["rounds"].append(-1),
    "a share of an unknown job": lambda d: d["shares"][0].update(jobs=["nobody"]),
    "a larger share": lambda d: d["shares"][0].update(fraction=0.95),
    "a smaller part": lambda d: d.update(part=0.8),
    "no lag at all": lambda d: d.update(lag_s={}),
    "a drift that explains everything": lambda d: d.update(drift_s=1.0),
}


def test_wrong_rounds_are_refused() -> None:
    instance = cluster(2, {"a": 1, "b": 1, "c": 1})
    document = schedule_rounds(Allocation(instance).solve("highs"), 1.0, rounds=40).to_dict()
    assert certify_rounds(document, instance).ok
    for name, touch in FAULTS.items():
        wrong = copy.deepcopy(document)
        touch(wrong)
        assert not certify_rounds(wrong, instance).ok, name


def test_what_is_no_schedule_says_so() -> None:
    with pytest.raises(SolutionError, match="not a schedule of rounds"):
        certify_rounds({"seconds": 1.0}, cluster(2, {"a": 1}))


@pytest.mark.parametrize(
    ("jobs", "gpus", "sharing", "part"), [(64, 13, False, 1.0), (256, 50, False, 1.0), (48, 12, True, 2 / 3)]
)
def test_many_jobs_of_mixed_scales(jobs: int, gpus: int, sharing: bool, part: float) -> None:
    """Few configurations, with the lag proven by the certificate, also if only two thirds of the fractions fit."""
    seed = 5 if sharing else 0
    solution = Allocation(generate("gavel-like", jobs=jobs, gpus=gpus, sharing=sharing, seed=seed)).solve("highs")
    schedule = schedule_rounds(solution, 360.0, rounds=30, shrink=sharing)
    assert schedule.part == pytest.approx(part) and schedule.certificate.ok
    assert len(schedule.units) <= len(schedule.columns) + 10


def test_slots_deliver_a_part_where_no_rounds_keep_all() -> None:
    """3 GPUs, two jobs of 2 GPUs, each 3/4 of the time: one at a time."""
    one, pair = np.zeros(2, np.int64), np.arange(2)
    found = slot_configurations(pair, one, np.array([2, 2]), np.array([3]), np.array([0.75, 0.75]))
    assert found is not None
    assert (found[1] @ found[0]).tolist() == pytest.approx([0.5, 0.5]) and (found[0].sum(axis=1) <= 1).all()
