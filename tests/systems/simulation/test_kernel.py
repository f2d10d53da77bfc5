"""The event queue: total order, a clock that only events move, independent random streams, readable logs."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowlex.instances import InstanceError, read_instance, write_instance
from flowlex.systems.simulation.confidence_intervals import Estimate
from flowlex.systems.simulation.decision_time import ask
from flowlex.systems.simulation.event_log import RunLog
from flowlex.systems.simulation.event_queue import Kernel, SimulationError
from flowlex.systems.simulation.random_streams import Streams
from flowlex.systems.simulation.scenario import Decision, Scenario


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-1, 1)), max_size=30))
def test_events_happen_by_time_then_rank_then_order_of_planning(planned):
    kernel, seen = Kernel(), []
    for number, (at_s, rank) in enumerate(planned):
        kernel.at(at_s, lambda entry=(at_s, rank, number): seen.append(entry), rank)
    kernel.run()
    assert seen == sorted(seen) and len(seen) == len(planned) == kernel.events


def test_an_event_may_plan_another_now_and_one_that_is_cancelled_never_happens():
    kernel, seen = Kernel(), []
    late = kernel.at(2.0, lambda: seen.append("never"))
    kernel.at(1.0, lambda: (kernel.after(0.0, lambda: seen.append(kernel.now_s)), late.cancel()))
    kernel.run(until_s=5.0)
    assert seen == [1.0] and kernel.now_s == 5.0 and kernel.next_s() == math.inf


@pytest.mark.parametrize("at_s", [0.5, math.nan, math.inf])
def test_the_past_and_no_time_at_all_are_refused(at_s):
    kernel = Kernel()
    kernel.at(1.0, lambda: None)
    kernel.run()
    with pytest.raises(SimulationError, match=r"at 1 s: an event cannot be planned for"):
        kernel.at(at_s, lambda: None)


def test_what_one_purpose_draws_leaves_the_others_alone():
    one, two = Streams(3), Streams(3)
    one.of("failures").random(50)
    assert (one.of("arrivals").random(5) == two.of("arrivals").random(5)).all()
    assert (one.of("x").random(5) != Streams(4).of("x").random(5)).any()


def test_a_log_comes_back_as_it_was_and_the_same_log_gives_the_same_bytes(tmp_path):
    log = RunLog({"seed": 3})
    log.add(0.0, "start", task="t1")
    log.add(1 / 3, "end", task="t1", mb=2)
    for name in ("a.jsonl", "b.jsonl.gz", "c.jsonl"):
        log.write(tmp_path / name)
        again = RunLog.read(tmp_path / name)
        assert (again.header, again.records) == (log.header, log.records)
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "c.jsonl").read_bytes()
    assert [record["mb"] for record in log.of("end")] == [2]
    with pytest.raises(SimulationError, match="late"):
        log.add(0.1, "end")


def test_a_torn_log_names_its_line(tmp_path):
    path = tmp_path / "torn.jsonl"
    path.write_text('{"event":"run"}\n{"at_s":0.0,"event":"start"}\n{"at_s":')
    with pytest.raises(InstanceError, match=r"torn\.jsonl: line 3"):
        RunLog.read(path)


@pytest.mark.parametrize(
    ("decision", "seconds"),
    [
        (Decision(), 0.0),
        (Decision(mode="fixed", seconds=0.5), 0.5),
        (Decision(mode="counted", seconds=1.0, seconds_per_unit=0.25), 2.0),
    ],
)
def test_decision_time_is_what_the_scenario_says(decision, seconds):
    assert ask(decision, lambda: iter("ab"), lambda: 4.0) == (["a", "b"], seconds)


def test_measured_time_passes_and_uncounted_work_is_refused():
    assert ask(Decision(mode="measured"), lambda: sorted(range(1000)), lambda: None)[1] > 0.0
    with pytest.raises(SimulationError, match="counts no work"):
        ask(Decision(mode="counted"), lambda: [], lambda: None)


def test_an_estimate_covers_the_mean_as_often_as_it_says():
    rng = np.random.default_rng(0)
    hits = sum(abs(found.mean) <= found.half for found in (Estimate.of(rng.normal(size=10)) for _ in range(2000)))
    assert 0.93 < hits / 2000 < 0.97
    assert Estimate.of([2.0]).half == math.inf
    with pytest.raises(ValueError, match="finite"):
        Estimate.of([1.0, math.nan])


SCENARIO = {
    "kind": "scenario",
    "simulator": "cluster",
    "workload": {"generator": "gpu-testbed"},
    "policies": ["FSP", {"name": "GSD", "parameters": {"first": 3}}],
}


def test_a_scenario_is_an_instance_file(tmp_path):
    scenario = Scenario.model_validate(SCENARIO)
    write_instance(scenario, tmp_path / "scenario.json")
    assert read_instance(tmp_path / "scenario.json") == scenario
    assert scenario.summary()["runs"] == 20


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"workload": {}}, "a file or a generator"),
        ({"workload": {"file": "a.json", "parameters": {"x": 1}}}, "a file has none"),
        ({"policies": []}, "no policies"),
        ({"policies": ["FS", "FS"]}, "two policies are named 'FS'"),
        ({"seeds": [1, 1]}, "two seeds are named '1'"),
        ({"seeds": [-1]}, "greater than or equal to 0"),
        ({"horizon_s": -5.0}, "greater than 0"),
        ({"decision": {"mode": "none", "seconds": 1.0}}, "modes fixed and counted"),
        ({"decision": {"mode": "fixed", "seconds": -1.0}}, "greater than or equal to 0"),
    ],
)
def test_a_scenario_that_cannot_be_is_refused(change, says):
    with pytest.raises(ValueError, match=says):
        Scenario.model_validate(SCENARIO | change)
