"""Changed just-in-time models: comparison with a plain program, certificates, files, messages."""

import json
from typing import Any

import pytest

from flowlex.instances.generators.jit import jit_random
from flowlex.instances.jit import Computation, JitInstance, Job, Machine, Transfer
from flowlex.models.jit.model import JitBandwidth
from flowlex.models.model_base import ModelError
from flowlex.validation.certificates import verify

LOADS = ("pair", "port", "sender", "receiver")


def tiny(seed: int) -> JitInstance:
    """A random instance of one to three transfers a job, in three slots."""
    return jit_random(seed=seed, transfers=1 + seed % 3, slots=3, capacity=2, largest=3)


def hand(*sizes: float, due: float = 4.0, rate: float = 2.0) -> JitInstance:
    """Transfers of these sizes from a to b, each of a job of its own, due at the same time; 2 units a slot."""
    jobs = tuple(
        Job(
            name=f"job{k}",
            computations=(Computation(name="c", seconds=1.0),),
            transfers=(
                Transfer(name="t", sender="a", receiver="b", size_mb=size, feeds="c", ready_s=0.0, deadline_s=due),
            ),
        )
        for k, size in enumerate(sizes)
    )
    machines = tuple(Machine(name=name, out_mbps=8 * rate, in_mbps=8 * rate) for name in ("a", "b"))
    return JitInstance(name="hand", machines=machines, jobs=jobs, slot_s=1.0, unit_mb=1.0)


def stage_values(solution: Any) -> dict[str, float]:
    return {name: float(value) for name, value in solution.stages.items()}


def test_own_row_binds_in_every_stage() -> None:
    model = JitBandwidth(hand(4.0), share=1.0)
    assert model.solve().levels == {1: 4}
    rate = model.variables["rate"]
    quiet = model.with_constraint("quiet", rate.sel(time=slice(2.0, 3.0)).sum() <= 0).solve()
    assert stage_values(quiet) == {"lateness": 0, "largest": 2, "level_2": 2, "level_1": 2}
    assert quiet.to_frame()["slot"].tolist() == [0, 1]
    assert quiet.largest == quiet.objective == 2
    assert quiet.certificate is not None and (quiet.certificate.claim, quiet.certificate.exact) == ("optimal", True)


def test_elastic_windows_are_late_under_a_rule() -> None:
    model = JitBandwidth(hand(4.0, due=2.0), share=1.0)
    changed = model.with_constraint("thin", model.variables["rate"].sum(by="slot") <= 1).solve()
    assert stage_values(changed) == {"lateness": 3, "largest": 1, "level_2": 0, "level_1": 4}
    assert changed.late_frame()["late_slots"].tolist() == [2]


def test_levels_can_be_ruled() -> None:
    model = JitBandwidth(hand(4.0, due=3.0), share=1.0)
    level = model.variables["level"]
    free = model.solve()
    assert free.levels == {2: 1, 1: 3}
    changed = model.with_constraint("busy", level.sel(step=2, slot=0).sum() == 0).with_fixed(
        level.sel(step=2, slot=1), 0
    )
    assert changed.solve().to_frame().groupby("slot")["units"].sum().tolist() == [1, 1, 2]


def test_fractional_rates_are_shown_as_they_are() -> None:
    model = JitBandwidth(hand(3.0, due=2.0), share=1.0)
    relaxed = model.relaxed().solve()
    assert relaxed.objective == pytest.approx(1.5)
    assert relaxed.to_frame()["units"].tolist() == pytest.approx([1.5, 1.5])
    assert relaxed.certificate is not None and not relaxed.certificate.exact


def test_labels_are_those_of_the_instance() -> None:
    instance = jit_random(seed=5, slots=5)
    names = {f"{job.name}/{f.name}": (job.name, f.sender, f.receiver) for job in instance.jobs for f in job.transfers}
    first = min(job.arrival_s for job in instance.jobs)
    index = JitBandwidth(instance, share=1.0).variables["rate"].index
    for label in index.to_frame(index=False).to_dict("records"):
        job, sender, receiver = names[label["transfer"]]
        assert (label["job"], label["sender"], label["receiver"]) == (job, sender, receiver)
        assert label["link"] == f"{sender}>{receiver}"
        assert label["time"] == label["slot"] + first
    for load in LOADS[1:]:
        ports = JitBandwidth(instance, share=1.0, load=load).variables["level"].index.to_frame(index=False)
        assert all(r["port"] == f"{r['machine']} {r['side']}" for r in ports.to_dict("records"))
        assert set(ports["side"]) == {"port": {"out", "in"}, "sender": {"out"}, "receiver": {"in"}}[load]


@pytest.mark.parametrize("program", ["P3", "P4"])
def test_weighted_programs_take_changes(program: Any) -> None:
    """4 units in 4 slots: 1 in each, weight 4 * 4**1; with 3 units at most in all slots but the first, the same; with
    two of them in slot 0, loads 2, 1, 1, 0: 16 + 4 + 4 + 1.
    """
    model = JitBandwidth(hand(4.0), share=1.0, program=program)
    assert model.solve().objective == 16
    rate = model.variables["rate"]
    changed = model.with_constraint("first", rate.sel(slot=0).sum() == 2).solve()
    assert stage_values(changed) == {"weighted": 25} and changed.objective == 25
    document = json.loads(json.dumps(changed.to_dict()))
    assert verify(document, model.instance).claim == "optimal"
    document["options"]["program"] = "P1"
    assert not verify(document, model.instance).ok
    for rows in ("size", "level_link") if program == "P3" else ("lambda_link", "lambda_one"):
        with pytest.raises(ModelError, match="cannot be dropped"):
            model.without(rows)


def test_the_largest_load_alone_takes_changes() -> None:
    model = JitBandwidth(hand(4.0), share=1.0, program="P1")
    changed = model.with_constraint("early", model.variables["rate"].sel(slot=[0, 1]).sum() >= 3)
    assert stage_values(changed.solve()) == {"largest": 2}


def test_rules_that_need_a_longer_wait_name_the_option_that_lengthens_the_horizon() -> None:
    # 12 units at 4 a slot, due after 4 slots: unchanged schedules end by slot 4 + 3 + 3. One unit a slot needs 12
    # slots, the last eight of which are 1, 2, ..., 8 slots late.
    def quiet(extra_slots: int) -> Any:
        model = JitBandwidth(hand(12.0, rate=4.0), share=1.0, extra_slots=extra_slots)
        return model.with_constraint("quiet", model.variables["rate"].sum(by="slot") <= 1).solve()

    for extra_slots in (0, 1):
        found = quiet(extra_slots)
        assert found.status == "infeasible" and found.certificate.claim == "infeasible"
        assert f"extra_slots (now {extra_slots})" in found.message and "quiet[" in found.message
    found = quiet(2)
    assert (found.status, found.stages["lateness"], found.certificate.claim) == ("optimal", 36, "optimal")
    document = json.loads(json.dumps(found.to_dict()))
    assert verify(document, found.source).ok
    document["options"]["extra_slots"] = 1
    assert not verify(document, found.source).ok
    with pytest.raises(ModelError, match="windows='elastic'"):
        JitBandwidth(hand(4.0), windows="strict", extra_slots=1)
