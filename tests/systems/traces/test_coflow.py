"""Coflow traces: the published format, and files that are not what they announce."""

from typing import Any

import pytest

from flowlex.instances.files import read_instance
from flowlex.instances.instance_base import InstanceError
from flowlex.systems.traces.coflow import parse_coflow_trace, read_coflow_trace

TRACE = "4 2\n1 0 2 1 2 2 3:10.0 4:2.0\n2 1500 1 3 2 3:7.0 1:6\n"


def test_a_coflow_becomes_a_job_with_a_deadline_window() -> None:
    instance = parse_coflow_trace(TRACE, rate_mbps=80.0, slack=2.0)  # 10 MB a second
    assert [m.name for m in instance.machines] == ["p1", "p2", "p3", "p4"]
    first, second = instance.jobs
    assert {(f.sender, f.receiver): f.size_mb for f in first.transfers} == {
        ("p1", "p3"): 5.0,
        ("p2", "p3"): 5.0,
        ("p1", "p4"): 1.0,
        ("p2", "p4"): 1.0,
    }
    assert {f.deadline_s for f in first.transfers} == {2.0}  # the busiest port receives 10 MB, twice its time
    assert second.arrival_s == 1.5
    assert [(f.sender, f.receiver, f.size_mb) for f in second.transfers] == [("p3", "p1", 6.0)]  # 3 to 3 stays inside


def test_files_are_recognised_by_content(tmp_path: Any) -> None:
    path = tmp_path / "FB2010-1Hr-150-0.txt"
    path.write_text(TRACE)
    assert read_instance(path).kind == "jit-bandwidth"
    assert len(read_coflow_trace(path, first=1).jobs) == 1


def test_ports_count_from_zero_unless_the_file_says_otherwise() -> None:
    assert [m.name for m in parse_coflow_trace("2 1\n1 0 1 0 1 1:3\n").machines] == ["p0", "p1"]
    assert [m.name for m in parse_coflow_trace("3 1\n1 0 1 2 1 1:3\n").machines] == ["p0", "p1", "p2"]
    with pytest.raises(InstanceError, match=r"port 2 is not among the 2 ports \(0..1\)"):
        parse_coflow_trace("2 1\n1 0 1 0 1 2:3\n")


@pytest.mark.parametrize("slot", [0.1, 1.0, 60.0])
def test_a_coarse_slot_changes_no_volume(slot: float) -> None:
    instance = parse_coflow_trace(TRACE, slot_s=slot)
    assert instance.rounding().size_added_mb == parse_coflow_trace(TRACE).rounding().size_added_mb
    assert instance.unit_mb == 1.0


def test_a_trace_can_be_planned() -> None:
    from flowlex.models.jit.model import JitBandwidth

    lines = ["150 3", "459 2786189 2 37 107 1 52:2.0", "460 2789166 5 13 19 105 113 114 2 89:5.0 143:5.0"]
    lines.append("497 3237120 2 26 118 3 54:2.0 56:2.0 57:8.0")
    solution = JitBandwidth(parse_coflow_trace("\n".join(lines)), share=1.0).solve()
    assert solution.grid.count == 2 + 10 + 6
    assert solution.certificate is not None and solution.certificate.claim == "optimal"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the trace is empty"),
        ("4\n", "line 1: expected the number of ports and of coflows, found 1 columns"),
        ("4 3\n1 0 1 1 1 3:10\n", "announces 3 coflows, 1 follow; is the file cut off"),
        ("4 1\n1 0\n", "line 2: missing columns: expected id, arrival, mappers"),
        ("4 1\n1 0 3 1 2\n", "line 2: missing columns: 3 mappers and the number of reducers are announced, 2 columns"),
        ("4 1\n1 0 1 1 2 3:10\n", "line 2: 2 reducers are announced, 1 follow"),
        ("4 1\n1 0 1 1 1 3:10 4:1\n", "line 2: 1 reducers are announced, 2 follow"),
        ("4 1\n1 0 1 1 1 3\n", "a reducer is port:MB with MB above 0, found '3'"),
        ("4 1\n1 0 1 1 1 3:0\n", "a reducer is port:MB with MB above 0, found '3:0'"),
        ("4 1\n1 0 1 1 1 3:nan\n", "a reducer is port:MB with MB above 0"),
        ("4 1\n1 0 1 9 1 3:1\n", r"line 2: port 9 is not among the 4 ports \(0..3\)"),
        ("4 1\n1 -5 1 1 1 3:1\n", "arrival .* must be an integer, found '-5'"),
        ("4 1\n1 0 1 1 2 3:1 3:2\n", "names a reducer twice"),
    ],
)
def test_bad_traces(text: str, message: str) -> None:
    with pytest.raises(InstanceError, match=message):
        parse_coflow_trace(text)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"slack": 0.5}, r"slack must be at least 1 \(got 0.5\)"),
        ({"first": -1}, r"first must not be negative \(got -1\)"),
        ({"unit_mb": 0.0}, r"unit_mb must be a positive number \(got 0.0\)"),
        ({"rate_mbps": float("inf")}, r"rate_mbps must be a positive number \(got inf\)"),
        ({"unit_mb": 1e-15}, r"all sizes together are .* units of 1e-15 MB; .*use a larger unit_mb"),
        ({"unit_mb": 1e-320}, "are beyond all numbers; use a larger unit_mb"),
        ({"unit_mb": 1e300}, "at most 1e\\+12 slots are kept apart"),
        ({"slack": 1e300}, "at most 1e\\+12 slots are kept apart"),
    ],
)
def test_settings_that_make_no_instance(settings: dict[str, float], message: str) -> None:
    with pytest.raises(InstanceError, match=message):
        parse_coflow_trace(TRACE, **settings)  # type: ignore[arg-type]
