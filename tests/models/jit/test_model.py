"""Latest arrival times by hand, options, the stored fractional instance, and the contents of a solution."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flowlex.formulations.engines import solve
from flowlex.formulations.solver_outcome import Status
from flowlex.instances.files import read_instance
from flowlex.instances.generators import generate
from flowlex.instances.jit import Computation, JitInstance, Job, Machine, Transfer
from flowlex.models import model_for
from flowlex.models.jit.latest_arrival import latest_arrival_times
from flowlex.models.jit.model import JitBandwidth
from flowlex.models.model_base import ModelError


def figure4() -> JitInstance:
    made = generate("jit-figure4")
    assert isinstance(made, JitInstance)
    return made


def test_latest_arrival_times_of_the_paper() -> None:
    """Figure 4: T1 alone, then T2 and T3 together into one port, then T4; T4 comes after T1 through 1 + 2."""
    latest = latest_arrival_times(figure4(), "paper")
    assert latest.trans_s.tolist() == [1, 4, 4, 1]
    assert latest.offset_s.tolist() == [1, 1 + 1 + 4, 1 + 1 + 4, 6 + 2 + 1]
    assert latest_arrival_times(two_transfers(gap=7.0), "paper").offset_s.tolist() == [1.0, 1.0 + 7.0 + 2.0]


def test_latest_arrival_times_if_all_transfers_of_the_job_share_a_port() -> None:
    latest = latest_arrival_times(figure4(), "paper-job")
    assert latest.trans_s.tolist() == [4, 8, 8, 4]
    assert latest.offset_s.tolist() == [4, 4 + 1 + 8, 4 + 1 + 8, 13 + 2 + 4]
    assert latest.rank.tolist() == [0, 1, 2, 3]
    assert latest.to_columns()["latest_s"].tolist() == [4, 13, 13, 19]


def two_transfers(gap: float, arrival: float = 0.0, **changes: Any) -> JitInstance:
    """T1 feeds a computation of ``gap`` seconds, T2 the one after it; another computation runs at the same time."""
    machines = tuple(Machine(name=n, out_mbps=80.0, in_mbps=80.0) for n in ("a", "b", "c"))
    computations = (
        Computation(name="c1", seconds=gap),
        Computation(name="beside", seconds=1.0),
        Computation(name="c2", seconds=1.0, after=("c1", "beside")),
    )
    transfers = (
        Transfer(name="t1", size_mb=10.0, sender="a", receiver="c", feeds="c1"),
        Transfer(name="t2", size_mb=20.0, sender="b", receiver="c", feeds="c2", **changes),
    )
    job = Job(name="j", arrival_s=arrival, computations=computations, transfers=transfers)
    return JitInstance(machines=machines, jobs=(job,), slot_s=1.0, unit_mb=5.0)


def test_latest_arrival_counts_the_longest_computation_between() -> None:
    # Two transfers into c share its port: 10 MB/s / 2.
    assert latest_arrival_times(two_transfers(gap=7.0), "paper-job").offset_s.tolist() == [2.0, 2.0 + 7.0 + 4.0]
    assert latest_arrival_times(two_transfers(gap=7.0, arrival=3.0), "paper-job").latest_s.tolist() == [5.0, 16.0]


def test_a_deadline_overrides_the_dag() -> None:
    assert latest_arrival_times(two_transfers(gap=7.0, deadline_s=5.0), "paper-job").offset_s.tolist() == [2.0, 5.0]


def test_share_keeps_the_first_in_topological_order() -> None:
    grid = JitBandwidth(figure4(), share=0.4).grid
    assert [grid.name(k) for k in range(grid.count)] == ["job/T1", "job/T2"]
    assert grid.rest.tolist() == [2, 3]


def test_grid_rounds_inwards_and_widens_what_gets_too_short() -> None:
    instance = two_transfers(gap=7.4, arrival=0.5)
    grid = JitBandwidth(instance, share=1.0, lat="paper-job").grid
    assert grid.start.tolist() == [1, 1]
    assert grid.due.tolist() == [2, 13]  # 2.5 and 13.9 s
    assert grid.widened == 0
    tight = JitBandwidth(
        two_transfers(gap=0.0, arrival=0.9).model_copy(update={"unit_mb": 4.0}), share=1.0, lat="paper-job"
    ).grid
    # From 0.9 to 2.9 s only slot 1 is complete; 10 MB are 3 units of 4 MB, of which a slot carries 2.
    assert (tight.start[0], tight.due[0], tight.stop[0]) == (1, 2, 3)
    assert tight.widened == 1


def test_a_window_too_short_is_named_and_elastic_is_offered() -> None:
    short = two_transfers(gap=7.0, deadline_s=1.5)
    with pytest.raises(ModelError, match=r"'j/t2' needs 2 s at full rate, its window is 1.5 s .*windows='elastic'"):
        JitBandwidth(short, share=1.0, windows="strict").solve()
    late = JitBandwidth(short, share=1.0, windows="elastic").solve()
    assert late.status is Status.OPTIMAL
    assert "j/t2" in late.late_frame()["transfer"].tolist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"share": 0.0}, "share must lie above 0"),
        ({"share": 1.5}, "share must lie above 0"),
        ({"program": "P4", "presolve": True}, "P4 is solved as printed"),
        ({"program": "P3", "horizon": "intervals"}, "P3 is solved as printed, slot by slot"),
        ({"integrality": "lp", "presolve": True}, "presolve looks for integer units"),
        ({"windows": "elastic", "program": "P1"}, "elastic windows are available for P2 only"),
        ({"stage": "level_1", "program": "P1"}, "stages are those of P2, P1 is one program"),
        ({"horizon": "days"}, "horizon='days'"),
        ({"speed": "1"}, "has no option 'speed'"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        model_for(figure4(), **options)


def test_printed_programs_compile_with_their_names() -> None:
    instance = figure4()
    for program, blocks in (("P1", {"largest_link"}), ("P2", {"largest_link"}), ("P4", {"lambda_link", "lambda_one"})):
        model = JitBandwidth(instance, share=0.25, program=program)  # type: ignore[arg-type]
        names = set(model.formulation.constraint_blocks)  # type: ignore[union-attr]
        assert names == {"egress", "ingress", "size"} | blocks
        assert model.compile().numVariables() == model.sizes()["columns"]
    rows = JitBandwidth(instance, share=0.25).formulation.row_names()  # type: ignore[union-attr]
    assert "egress[m1,0]" in rows and "size[job/T1]" in rows


def test_literal_weights_refuse_a_cluster() -> None:
    cluster = generate("jit-cluster", seed=1, jobs=5, machines=4, mix="VGG16")
    assert isinstance(cluster, JitInstance)
    with pytest.raises(ModelError, match="use program='P2'"):
        JitBandwidth(cluster, program="P4").solve()


KEPT = Path(__file__).parent / "data" / "jit-fractional-vertex.json"


def test_the_kept_instance_has_a_fractional_vertex() -> None:
    """Found by search over random instances: the simplex method's answer has halves, an integer one is equally good."""
    instance = read_instance(KEPT)
    assert isinstance(instance, JitInstance)
    relaxed = solve(JitBandwidth(instance, share=1.0, program="P1", integrality="lp").formulation, "highs").values
    assert relaxed is not None and np.abs(relaxed - np.rint(relaxed)).max() > 0.1
    whole = JitBandwidth(instance, share=1.0, presolve=False).solve()
    assert whole.route[0].startswith("staged lp")
    assert whole.certificate is not None and whole.certificate.claim == "optimal"
    structured = JitBandwidth(instance, share=1.0).solve()
    assert structured.sorted_loads.tolist() == whole.sorted_loads.tolist()


def test_cluster_needs_no_solver_and_is_proven_exactly() -> None:
    cluster = generate("jit-cluster", seed=1, jobs=12, machines=30, mix="VGG16,LeNet")
    assert isinstance(cluster, JitInstance)
    solution = JitBandwidth(cluster, lat="paper-job", windows="strict").solve()
    assert solution.route == ("structure",)
    assert solution.lp_solves == solution.mip_solves == 0
    assert solution.certificate is not None
    assert (solution.certificate.claim, solution.certificate.exact) == ("optimal", True)
    assert solution.sorted_loads.sum() == solution.grid.units.sum()
    assert len(solution.background_frame()) == len(cluster.copies) + len(solution.grid.rest)


def test_solution_tells_rates_remaining_and_pictures(tmp_path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    solution = JitBandwidth(figure4(), share=1.0, lat="paper-job").solve()
    frame = solution.to_frame()
    assert frame.groupby("transfer")["units"].sum().to_dict() == {"job/T1": 4, "job/T2": 8, "job/T3": 8, "job/T4": 4}
    assert (frame["mbps"] == frame["units"] * 2.0).all()
    assert solution.levels == {1: 24}
    assert solution.remaining[:, 0].tolist() == pytest.approx([1 - 12 / (4 * 19), 1 - 12 / (4 * 19), 1.0])
    assert solution.greedy_loads()[0] == 4
    assert solution.metrics()["largest_load"] == 1
    assert solution.to_dict()["answer"]["schedule"]["job/T1"] == [[0, 4, 1]]
    assert solution.plot().get_title()


def test_a_time_limit_is_never_called_optimal(monkeypatch: pytest.MonkeyPatch) -> None:
    """An integer program that stops early gives a feasible schedule without a claim to optimality."""
    from dataclasses import replace

    from flowlex.models.jit.methods import plan_search as levels

    whole = levels.solve

    def stopped(*arguments: Any, **keywords: Any) -> Any:
        outcome = whole(*arguments, **keywords)
        return replace(outcome, status=Status.FEASIBLE, bound=0.0)

    monkeypatch.setattr(levels, "solve", stopped)
    instance = generate("jit-random", seed=22, machines=3, jobs=3, transfers=3, slots=5, capacity=3)
    assert isinstance(instance, JitInstance)
    solution = JitBandwidth(instance, share=1.0, presolve=False, integrality="mip").solve()
    assert solution.status is Status.FEASIBLE
    assert solution.certificate is not None and solution.certificate.claim == "feasible"
    assert solution.gap is not None and solution.gap > 0


@pytest.mark.parametrize("options", [{}, {"presolve": False}, {"program": "P1", "presolve": False}, {"program": "P4"}])
def test_nothing_to_send(options: dict[str, Any]) -> None:
    machines = tuple(Machine(name=n, out_mbps=80.0, in_mbps=80.0) for n in ("a", "b"))
    jobs = (Job(name="j", computations=(Computation(name="c", seconds=1.0),)),)
    for instance in (JitInstance(machines=machines, jobs=j, unit_mb=0.5) for j in ((), jobs)):
        solution = JitBandwidth(instance, **options).solve()
        assert solution.status is Status.OPTIMAL
        assert len(solution.to_frame()) == len(solution.sorted_loads) == 0


def test_port_duals_price_the_conflict() -> None:
    """An egress of 3 units sends 2 to b in slot 0, and 4 to c in slots 0 and 1: not 2 and 2, but 1 and 3."""
    machines = tuple(Machine(name=n, out_mbps=24.0, in_mbps=24.0) for n in ("a", "b", "c"))
    transfers = tuple(
        Transfer(name=f"to {to}", size_mb=size, sender="a", receiver=to, feeds="c", deadline_s=end)
        for to, size, end in (("b", 2.0, 1.0), ("c", 4.0, 2.0))
    )
    job = Job(name="j", computations=(Computation(name="c", seconds=0.0),), transfers=transfers)
    instance = JitInstance(machines=machines, jobs=(job,), slot_s=1.0, unit_mb=1.0)
    solution = JitBandwidth(instance, share=1.0).solve()
    assert solution.route == ("staged lp",)
    assert solution.sorted_loads.tolist() == [3, 2, 1]
    assert solution.largest_bound == 2  # by windows alone
    assert solution.duals["egress"].to_dict() == {"a,0": -1}  # one unit more in slot 0 saves the 3
    assert not len(solution.duals["ingress"])


def test_what_remains_counts_background() -> None:
    """In three slots of 2 units: a sends the 2 units of t1 as planned, b the 4 of t2 in the background, c takes all."""
    solution = JitBandwidth(two_transfers(gap=0.0), share=0.5, lat="paper-job").solve("highs")
    assert solution.background_frame()["finish_s"].tolist() == [3.0]
    assert solution.remaining.ravel().tolist() == pytest.approx([2 / 3, 1, 1 / 3, 1, 1, 0])


@pytest.mark.parametrize("slot_s", [1.0, 1e-3, 1e-6, 1e-9])
def test_work_does_not_grow_with_time_over_slot(slot_s: float) -> None:
    """70 s at 1e-9 s a slot: every load is even over its window, and levels count slots of any length."""
    fine = JitInstance.model_validate({**dict(two_transfers(gap=70.0)), "slot_s": slot_s, "unit_mb": slot_s})
    for load in ("pair", "port"):
        for windows in ("strict", "elastic"):
            solution = JitBandwidth(fine, share=1.0, load=load, windows=windows).solve("highs")  # type: ignore[arg-type]
            assert solution.certificate is not None and solution.certificate.claim == "optimal"
            assert len(solution.blocks.item) <= 6
            units = int((solution.load_counts[0] * solution.load_counts[1]).sum())
            assert units == solution.grid.units.sum() * (2 if load == "port" else 1)
            assert sum(solution.levels.values()) == units


def test_programs_that_no_memory_holds_are_refused() -> None:
    """Only integer programs of lateness use single slots."""
    two = two_transfers(gap=0.0)
    late = tuple(t.model_copy(update={"deadline_s": 1.0}) for t in two.jobs[0].transfers)
    jobs = (two.jobs[0].model_copy(update={"transfers": late}),)
    fine = JitInstance.model_validate({**dict(two), "jobs": jobs, "slot_s": 1e-9, "unit_mb": 1e-9})
    with pytest.raises(
        ModelError, match=r"one per transfer and slot of 1e-09 s, of 'j/t1' alone 7e\+09; at most 2e\+07"
    ):
        JitBandwidth(fine, share=1.0, integrality="mip").solve("highs")
    late_one = JitBandwidth(fine, share=1.0).solve("highs")
    assert late_one.certificate is not None and late_one.certificate.claim == "optimal"
