"""The report: verdicts, tables, pictures, what measuring took; the same numbers give the same bytes."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from flowlex.instances.base import InstanceError
from flowlex.simulation.experiments import experiments, papers
from flowlex.simulation.experiments.base import Curves, Experiment, Rule, Statement, Table, Verdict
from flowlex.simulation.report import Measured, figure_svg, rows_of, variants, write_report
from flowlex.simulation.statistics import Estimate


def tiny(**more: object) -> Experiment:
    statements = (
        Statement("a", "a is about 2", "2", "s", Rule.near(2.0, 1.0), "because"),
        Statement("b", "b | c", "?", "", None, "shown"),
        Statement("never", "not measured", "1", "", Rule.near(1.0, 0.0), ""),
    )
    return Experiment("tiny", "paper", "A tiny one", statements, lambda seed, quick: {}, **more)


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([1.9, 2.0, 2.1], Verdict.REPRODUCED),
        ([3.9, 4.0, 4.1], Verdict.DIRECTION),
        ([0.5, 2.0, 3.5], Verdict.NOT),  # the mean is theirs, but nobody knows
        ([0.4, 0.5, 0.6], Verdict.NOT),
        ([2.0], Verdict.REPRODUCED),
    ],
)
def test_verdicts_follow_their_rule(values, verdict):
    assert Rule.near(2.0, 1.0).judge(Estimate.of(values)) == verdict


def test_the_report_has_every_statement_and_the_same_bytes(tmp_path):
    table = Table("By policy", {"a": "first", "b": "second", "z": "none"}, {"{}": "number"}, {"b": "1.5"})
    experiment = tiny(open={"x": (1, 2)}, also=({"x": 3, "y": 4},), tables=(table,))
    assert variants(experiment) == [{}, {"x": 2}, {"x": 3, "y": 4}]
    found = [Measured("tiny", s, g, {"a": 2.0 + s / 10, "b": 1.0}) for g in ({}, {"x": 2}) for s in range(3)]
    assert [row.verdict for row in rows_of(experiment, found)] == ["reproduced", "shown", "not measured"]
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        counts = write_report(tmp_path / folder, {experiment: found}, quick=False)
    assert counts == {"reproduced": 1, "shown": 1, "not measured": 1}
    names = {path.name for path in (tmp_path / "one").iterdir()}
    assert names == {"report.md", "report.html", "report.csv", "measured.csv", "tiny.svg"}
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    page = (tmp_path / "one" / "report.html").read_text()
    assert "<svg" in page and "http://" not in page.split("<svg")[0] and "x = 2" in page
    text = (tmp_path / "one" / "report.md").read_text()
    assert "b \\| c" in text
    assert text.split("By policy:")[1].split("\n")[2:7] == [
        "|  | number |",
        "| --- | --- |",
        "| first | 2.1 ± 0.25 |",
        "| second | 1 ± 0 (1.5) |",
        "| none | - |",
    ]


def test_experiments_have_names_of_their_own_and_belong_to_their_papers():
    found = experiments()
    assert len({each.name for each in found}) == len(found)
    assert {each.paper for each in found} <= set(papers())
    for each in found:
        assert len({(s.figure, s.says) for s in each.statements}) == len(each.statements), each.name
        assert all(values for values in each.open.values())


def test_the_report_in_the_documentation_is_of_these_statements():
    kept = Path(__file__).resolve().parents[2] / "docs" / "reproduction" / "report.csv"
    rows = list(csv.DictReader(kept.open()))
    shown = {row["experiment"] for row in rows}
    now = [(e.name, s.figure, s.says, s.theirs) for e in experiments() if e.name in shown for s in e.statements]
    assert [(row["experiment"], row["figure"], row["statement"], row["theirs"]) for row in rows] == now
    assert {each.name for each in experiments("gpu_assignment", "flow_scheduling")} <= shown


def test_a_name_that_nothing_has_is_refused_with_the_nearest():
    assert [each.name for each in experiments("gpu-users", "gpu-alone")] == ["gpu-alone", "gpu-users"]
    with pytest.raises(InstanceError, match=r"no experiment is named 'gpus'; did you mean 'gpu-users'\? Papers"):
        experiments("gpus")


def test_a_size_without_a_direction_is_reproduced_or_not():
    rule = Rule((float("-inf"), float("inf")), (0.16, 0.48))
    assert [rule.judge(Estimate.of([x, x])) for x in (0.3, 0.5)] == [Verdict.REPRODUCED, Verdict.NOT]


def test_the_report_says_what_measuring_took(tmp_path):
    runs = [Measured("tiny", s, {}, {"a": 2.0, "b": 1.0}, took) for s, took in enumerate((1.5, None, 4.0))]
    effort = {"runs": 2, "wall_s": 90.0, "processes": 2, "cores": 4}
    write_report(tmp_path, {tiny(): runs}, quick=True, effort=effort)
    text = (tmp_path / "report.md").read_text()
    assert "3 runs; 2 of them say what they took: 6 s of a processor." in text and "**Quick report**" in text
    assert "The last command made 2 of them in 1.5 minutes with 2 processes on 4 cores." in text
    assert "| tiny | 3 | 5.5 | 4.0 |" in text
    write_report(tmp_path, {tiny(): runs[1:2]}, quick=True, effort=effort | {"processes": 1})
    assert "| tiny | 1 | - | - |" in (tmp_path / "report.md").read_text()


def test_curves_are_drawn_over_what_their_numbers_say():
    curves = Curves("t", "x", "y", {"wait": "w"})
    assert curves.points("wait", {"wait@3": 1.0, "wait@10": 2.0, "waits@1": 5.0, "wait": 4.0}) == {3.0: 1.0, 10.0: 2.0}
    found = [Measured("tiny", s, {}, {"a": 2.0, "b": 1.0, "wait@1": 1.0 * s, "wait@2": 2.0}) for s in range(3)]
    with_curves, without = (figure_svg(tiny(curves=each), found) for each in ((curves,), ()))
    assert ">t<" in with_curves and ">t<" not in without
    assert figure_svg(tiny(), [Measured("tiny", 0, {"x": 2}, {"a": 2.0})]) == ""  # nothing at the defaults
