"""Small runs of every experiment: all figures of statements, tables and curves are measured, and invariants hold."""

import math
from collections.abc import Mapping
from contextlib import ExitStack

import pytest

from flowlex.systems.simulation.commands.experiment_needs import NEEDS
from flowlex.systems.simulation.experiments import experiments
from flowlex.systems.simulation.experiments.cluster_runs import alone_seconds, made, run, workload
from flowlex.systems.simulation.experiments.statements_and_verdicts import Experiment

Numbers = Mapping[str, float]


def gpu_alone(n: Numbers) -> bool:
    alike = n["dt_FS"] == n["dt_FSP"] and n["dt_FSP_J37"] > 0  # nothing to preempt for
    return alike and 0 <= n["rack_share_GS"] + n["between_share_GS"] < 1


def gpu_shared(n: Numbers) -> bool:
    who = ("GS", "GSP", "GSD", "FS", "FSP", "FSU")
    stays = all(n[f"stops_{name}_limited"] == 0 for name in ("GS", "GSD", "FS", "FSU"))
    return stays and all(n[f"S_{name}_limited"] > 0 and n[f"sigma_{name}_limited"] >= 0 for name in who)


def gpu_published(n: Numbers) -> bool:
    return n["stops_GS"] == 0 and all(n[f"total_s_{name}"] > 0 for name in ("ours", "0.05", "0.2", "0.5", "1"))


def gpu_users(n: Numbers) -> bool:
    return math.isclose(n["dt_FSP"] / n["dt_YARN-fair"], 1 - n["less_than_YARN-fair"] / 100)


def gpu_rounds(n: Numbers) -> bool:
    return all(0 < n[f"mean_s_{name}"] <= n[f"worst_s_{name}"] for name in ("gpu-testbed", "gpu-scale"))


def flow_fairness(n: Numbers) -> bool:
    who = ("Sirius", "Quincy", "random", "spread")
    return all(0 < n[f"snp_{name}"] <= 1 for name in who) and n["run_s_Sirius"] <= n["run_s_random"]


def flow_images(n: Numbers) -> bool:
    least = min(n[f"run_s_{name}_T10"] for name in ("Sirius", "Alsched"))
    return least < n["run_s_random_T10"] and n["moves_Sirius_T20"] > 0


def flow_priority(n: Numbers) -> bool:
    waits = n["delay_s_queue_first"] > n["delay_s_stops_first"] and n["stops_queue_first"] == 0
    return waits and n["delay_s_Sirius_first"] < n["delay_s_Sirius_equal"] and n["stops_Sirius_first"] > 0


def flow_latency(n: Numbers) -> bool:
    return math.isclose(n["saved_small"], 100 * (1 - n["warm_s_small_many"] / n["scratch_s_small_many"]))


def flow_cost(n: Numbers) -> bool:
    return n["peak_mb_live"] > n["peak_mb_queue"] >= 0.9 * n["peak_mb_nobody"] and n["steps_s_nobody"] == 0


def google_day(n: Numbers) -> bool:
    who = ("live", "priority", "FIFO")
    return all(0 < n[f"utilisation_{name}"] <= 1 and n[f"wait_s_{name}_0"] >= 0 for name in who)


def training_shares(n: Numbers) -> bool:
    return n["stops_FIFO"] == 0 and 0 < n["run_s_max_min"] <= n["total_s_max_min"]


def load_evaluations(n: Numbers) -> bool:
    falls = [n[f"at_work_history@{x}"] for x in ("0", "0.5", "1", "1.5", "2")]
    return falls == sorted(falls, reverse=True) and falls[0] == 4 and n["uneven_history"] < n["uneven_configuration"]


def load_changes(n: Numbers) -> bool:
    return n["uneven_wild"] > n["uneven_calm"]  # history fails when the environment changes


def load_reading(n: Numbers) -> bool:
    return 0 < n["age_s"] < 10 and n["error"] > 0 and n["synchronous_s"] > 0


def load_service(n: Numbers) -> bool:
    return all(n[f"finish_{name}@1"] > 0 for name in ("configuration", "cpu_load", "history"))


def pods_balance(n: Numbers) -> bool:
    return n["bound"] <= n["sigma_optimum"] + 1e-9 and all(0 < n[f"used_{r}"] <= 1 for r in ("gpu", "cpu", "memory"))


def pods_convergence(n: Numbers) -> bool:
    falls = [n[f"gap_10@{k}"] for k in range(1, 59, 3)]
    return falls == sorted(falls, reverse=True) and n["below_bound"] <= 1e-6


def pods_queue(n: Numbers) -> bool:
    return n["wait_s_priority_0"] < min(n["wait_s_priority_2"], n["wait_s_submission_0"])


def pods_native(n: Numbers) -> bool:
    return n["per_card_native"] <= 1 < n["per_card_pipeline"] and n["sigma_pipeline"] <= n["sigma_native"] + 1e-9


HOLDS = (
    gpu_alone, gpu_shared, gpu_published, gpu_users, gpu_rounds,
    flow_fairness, flow_images, flow_priority, flow_latency, flow_cost,
    google_day, training_shares, load_evaluations, load_changes, load_reading, load_service, pods_balance,
    pods_convergence, pods_native, pods_queue,
)  # fmt: skip


@pytest.mark.rare
@pytest.mark.parametrize("holds", HOLDS, ids=lambda holds: holds.__name__)
def test_an_experiment_measures_what_it_names(holds):
    (experiment,) = experiments(holds.__name__.replace("_", "-"))
    if "service" in experiment.needs:
        pytest.importorskip("uvicorn")
    with ExitStack() as stack:
        handed = {need: stack.enter_context(NEEDS[need].give()) for need in experiment.needs}
        found = experiment.measure(0, True, **handed)
    require_all_named(experiment, found)
    assert all(map(math.isfinite, found.values()))
    assert holds(found), dict(found)


def require_all_named(experiment: Experiment, found: Numbers) -> None:
    """Statements, tables and pictures use only measured figures."""
    named = {name for each in experiment.statements for name in (*each.figures, each.over, each.minus) if name}
    named |= {column.format(row) for table in experiment.tables for row in table.rows for column in table.columns}
    for picture in experiment.pictures:
        if picture.kind == "bars":
            named |= {line.format(group) for line in picture.lines for group in picture.groups}
        else:
            assert all(picture.points(line, found) for line in picture.lines), picture.name
    assert named <= set(found), named - set(found)


def test_no_experiment_on_clusters_is_left_out():
    papers = ("beyond", "flow_scheduling", "gpu_assignment", "load_partition", "pod_placement")
    tried = {holds.__name__.replace("_", "-") for holds in HOLDS}
    assert {each.name for each in experiments(*papers)} == tried | {"openb-protocol"}


@pytest.mark.parametrize("name", ["gpu-users", "load-reading"])
def test_the_same_seed_gives_the_same_numbers_and_another_others(name):
    (experiment,) = experiments(name)
    first, again, other = (experiment.measure(seed, True) for seed in (1, 1, 2))
    assert first == again != other


def test_a_job_alone_takes_longer_on_one_gpu_than_on_all():
    work = workload("cluster-testbed", seed=0, count=2)
    every, one = alone_seconds(work, 1), alone_seconds(work, 30)
    assert set(one) == {job.name for job in work.jobs} and all(every[job] < one[job] for job in one)


def test_policies_that_claim_optima_have_some_of_them_certified():
    found = run(workload("cluster-random", seed=1, resource="gpu"), made("FS", certify=1))
    assert found["rounds"] > 0 == found["uncertified_rounds"]
    assert run(workload("cluster-random", seed=1, resource="gpu"), "FS")["uncertified_rounds"] > 0
