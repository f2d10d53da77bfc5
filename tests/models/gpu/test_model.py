"""GPU assignment: the paper's figures, hand-solved cases, both networks, all engines, brute force."""

import itertools
import json
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowlex.instances.generators import generate
from flowlex.instances.gpu import GpuInstance
from flowlex.models.gpu.model import GpuAssignment, Penalties, Policy
from flowlex.models.gpu.transfer_costs import TransferCosts
from flowlex.validation.certificates import verify
from tests.models.gpu.cases import cluster, job, task

ALL = list(itertools.product(Policy, ("compact", "paper")))


def test_figure_1_is_fair_and_moves_nothing() -> None:
    solution = GpuAssignment(generate("gpu-figure1")).solve()
    assert solution.placement.metrics()["rack_gb"] == solution.placement.metrics()["between_gb"] == 0
    frame = solution.to_frame()
    assert frame["gpu"].to_dict() == {"task11": "GPU1", "task12": "", "task21": "GPU2"}
    assert frame.loc["task12", "reason"] == "job job1 runs 1, its fair share"


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 4), st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_paper_counts_for_any_cluster_where_every_task_fits(gpus: int, sizes: list[int]) -> None:
    nodes = [(f"n{i}", "r", [10.0]) for i in range(gpus)]
    jobs = [job(f"j{j}", *(task(f"t{j}.{t}", (100.0, "n0")) for t in range(k))) for j, k in enumerate(sizes)]
    network = GpuAssignment(cluster(jobs, nodes), network="paper").formulation
    assert network.node_count == 2 + len(sizes) + sum(k + 1 for k in sizes) + gpus
    assert network.arc_count == 3 * len(sizes) + gpus + (gpus + 1) * sum(sizes)


def test_transfer_cost_of_the_papers_two_shard_example() -> None:
    """Shard A on node A (rack 1), C on node C (rack 2): on A it reads C across, on D both, C within the rack."""
    nodes = [("A", "r1", [10.0]), ("C", "r2", [10.0]), ("D", "r2", [10.0])]
    instance = cluster([job("j", task("t", (300.0, "A"), (700.0, "C")))], nodes)
    costs = TransferCosts.of(instance, Penalties())
    seconds = [float(c * costs.unit_s) for c in costs.dense()[0]]
    assert seconds == [300 / 200 + 700 / 50, 300 / 50 + 700 / 200, 700 / 100 + 300 / 50]


def test_penalties_weigh_traffic() -> None:
    nodes = [("A", "r1", [10.0]), ("B", "r1", [10.0]), ("C", "r2", [10.0])]
    instance = cluster([job("j", task("t", (100.0, "A")))], nodes)
    costs = TransferCosts.of(instance, Penalties(rack=3.0, between_racks=7.0))
    assert [float(c * costs.unit_s) for c in costs.dense()[0]] == [0.5, 3.0, 14.0]


def proven(instance: GpuInstance, **options: Any) -> Any:
    """The solution, proven from its own file."""
    solution = GpuAssignment(instance, **options).solve("network")
    assert solution.certificate is not None and solution.certificate.claim == "optimal" and solution.certificate.exact
    assert verify(json.loads(json.dumps(solution.to_dict())), instance).ok
    return solution


MEASURED = {"disk_mb_per_s": 203.123457, "rack_mb_per_s": 118.7654321, "between_racks_mb_per_s": 51.98765431}


@pytest.mark.parametrize("network", ["compact", "paper"])
@pytest.mark.parametrize("engine", ["network", "highs"])
def test_measured_speeds_stay_exact(network: Any, engine: Any) -> None:
    nodes = [("A", "r1", [10.0]), ("B", "r2", [10.0])]
    jobs = [job("j", task("t", (1234.567891, "A")), task("u", (987.654321, "A")))]
    instance = cluster(jobs, nodes, **MEASURED)
    solution = GpuAssignment(instance, network=network).solve(engine)
    sizes, near, far = (
        (Fraction("1234.567891"), Fraction("987.654321")),
        Fraction("203.123457"),
        Fraction("51.98765431"),
    )
    assert solution.placement.exact_transfer_s == max(sizes) / near + min(sizes) / far
    assert solution.certificate is not None and solution.certificate.claim == "optimal"


@pytest.mark.parametrize("huge", [1e18, 1e300])
def test_sizes_of_any_magnitude_stay_exact(huge: float) -> None:
    nodes = [("A", "r", [10.0]), ("B", "s", [10.0])]
    jobs = [job("j", task("small", (0.001, "A")), task("huge", (huge, "A"))), job("k", task("other", (0.3, "B")))]
    solution = proven(cluster(jobs, nodes))
    assert solution.placement.exact_transfer_s == min(Fraction("0.001") / 200 + Fraction("0.3") / 200, Fraction(huge))


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from(list(Policy)), st.sampled_from(["compact", "paper"]))
def test_a_common_factor_of_all_speeds_changes_no_placement_costs(seed: int, policy: Policy, network: str) -> None:
    """Speeds whose common denominator has about 25 digits: costs overflow 64 bits, and the optimum scales exactly."""
    instance = generate("gpu-random", seed=seed)
    speeds = [instance.disk_mb_per_s, instance.rack_mb_per_s, instance.between_racks_mb_per_s]  # type: ignore[attr-defined]
    names, factor = list(MEASURED), Fraction("1.000000000037")
    slow = instance.model_copy(update={n: float(Fraction(str(s)) * factor) for n, s in zip(names, speeds, strict=True)})
    plain, wide = (proven(i, policy=policy, network=network) for i in (instance, slow))
    transfer = plain.placement.exact_transfer_s
    assert wide.placement.exact_transfer_s == pytest.approx(float(transfer / factor), rel=1e-12)


@pytest.mark.parametrize(("weight", "objective"), [(0.4, 140), (0.5, 150), (0.6, 160), (1.4, 240)])
@pytest.mark.parametrize("network", ["compact", "paper"])
def test_the_price_of_waiting_is_exact(weight: float, objective: int, network: Any) -> None:
    """Two tasks of 100 MB at 1 MB/s on one GPU: one runs at 100 s, the other waits at a fraction of that."""
    speeds = dict.fromkeys(MEASURED, 1.0)
    instance = cluster([job("j", task("t", (100.0, "A")), task("u", (100.0, "A")))], [("A", "r", [10.0])], **speeds)
    assert proven(instance, network=network, penalties=Penalties(waiting=weight)).objective == objective


def test_a_job_above_its_share_loses_its_shortest_running_task() -> None:
    nodes = [("A", "r", [10.0, 10.0, 10.0, 10.0])]
    rich = job("rich", *(task(f"r{i}", running=(f"A.{i}", 10.0 * (i + 1))) for i in range(4)))
    instance = cluster([rich, job("poor", task("p0"), task("p1"))], nodes)
    solution = GpuAssignment(instance, policy=Policy.FSP).solve("network")
    assert solution.preempted == ("r0", "r1")
    assert solution.to_frame().loc["r0", "reason"] == (
        "job rich ran 4, above its fair share of 2, and keeps 2; "
        "this task ran shortest: 10 s of work lost, weighed as 0 s of transfer"
    )
    assert GpuAssignment(instance, policy=Policy.FS).solve("network").preempted == ()
    assert GpuAssignment(instance, policy=Policy.FSU).solve("network").preempted == ()


def test_without_preemption_free_gpus_go_to_the_jobs_furthest_below() -> None:
    """Job a runs four of six; with the paper's caps b could take both free GPUs, with ours b and c get one each."""
    nodes = [("A", "r1", [10.0] * 6), ("B", "r2", [])]
    a = job("a", *(task(f"a{i}", running=(f"A.{i}", 1.0)) for i in range(4)))
    b = job("b", *(task(f"b{i}", (100.0, "A")) for i in range(2)))
    c = job("c", *(task(f"c{i}", (100.0, "B")) for i in range(2)))
    frame = GpuAssignment(cluster([a, b, c], nodes), policy=Policy.FS).solve("network").job_frame()
    assert frame["running"].to_dict() == {"a": 4, "b": 1, "c": 1}


@pytest.mark.parametrize(("policy", "network"), ALL)
@pytest.mark.parametrize("engine", ["pulp", "highs"])
def test_every_engine_gives_the_same_optimum(policy: Policy, network: str, engine: Any) -> None:
    for seed in range(4):
        model = GpuAssignment(generate("gpu-random", seed=seed), policy=policy, network=network)  # type: ignore[arg-type]
        ours, theirs = model.solve("network"), model.solve(engine)
        assert ours.objective == theirs.objective
        assert ours.certificate is not None
        assert ours.certificate.exact


@settings(max_examples=17, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from(list(Policy)), st.integers(1, 7), st.integers(1, 4), st.booleans())
def test_the_compact_network_has_the_papers_optimum(
    seed: int, policy: Policy, nodes: int, jobs: int, slow_disk: bool
) -> None:
    instance = generate("gpu-random", seed=seed, nodes=nodes, racks=min(nodes, 3), jobs=jobs, tasks=3 * jobs)
    assert isinstance(instance, GpuInstance)
    if slow_disk:  # with higher costs for nearer data, racks must not be merged
        instance = instance.model_copy(update={"disk_mb_per_s": 10.0, "rack_mb_per_s": 40.0})
    compact = GpuAssignment(instance, policy=policy).solve("network")
    paper = GpuAssignment(instance, policy=policy, network="paper").solve("network")
    assert compact.placement.exact_transfer_s == paper.placement.exact_transfer_s
    assert len(compact.placement.preempted) == len(paper.placement.preempted)
    assert compact.placement.running_by_job.sum() == paper.placement.running_by_job.sum()


@pytest.mark.parametrize("seed", [37, 44, 51])
def test_a_search_that_ends_at_its_cap_leaves_a_proven_bound(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    instance: Any = generate("gpu-random", seed=seed)
    best = GpuAssignment(instance).solve("network")
    monkeypatch.setattr("flowlex.models.gpu.methods.rounds.MOST_ARCS", 0)
    met: list[Any] = []
    capped = GpuAssignment(instance).solve("network", report=met.append)
    for answer in (capped, *met):
        document = answer.to_dict()
        if answer.status == "optimal":  # found at once
            continue
        certificate = verify(document, instance)
        fair = sorted(answer.placement.running_by_job.tolist()) == sorted(best.placement.running_by_job.tolist())
        assert certificate.ok and certificate.claim == ("feasible" if answer.bound is None else "bounded")
        if answer.bound is not None:
            assert fair and answer.bound <= best.objective <= answer.objective
            above = float(best.objective) + 1
            false = {**document, "bound": above, "gap": abs(answer.objective - above) / max(1, answer.objective)}
            assert not verify({**false, "certificate": None}, instance).ok
    assert capped.status == "optimal" or met
