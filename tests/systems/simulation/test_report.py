"""The report: verdicts, tables, pictures, effort; the same numbers give the same bytes."""

import csv
import math

import pytest

from flowlex.instances.instance_base import InstanceError
from flowlex.systems.simulation.confidence_intervals import Estimate
from flowlex.systems.simulation.experiments import experiments, papers
from flowlex.systems.simulation.experiments.statements_and_verdicts import (
    OURS,
    Experiment,
    Picture,
    Rule,
    Statement,
    Table,
    Verdict,
)
from flowlex.systems.simulation.report_pictures import picture_svg
from flowlex.systems.simulation.reproduction_report import Measured, rows_of, write_report
from tests.documents import ROOT

PRINTED = Rule(1.9, 2.1, neutral=1.0, printed=True)


def statement(*figures: str, **more: object) -> Statement:
    texts = {"says": f"{figures[0]} | says", "theirs": "2", "because": "because", "cause": "left out"}
    empty = dict.fromkeys(("over", "minus", "unit", "tolerance", "source", "quote"), "")
    return Statement(**{"figures": figures, "values": (), "rule": None, **empty, **texts, **more})


def tiny(**more: object) -> Experiment:
    statements = (statement("a", rule=PRINTED), statement("b"), statement("never", rule=PRINTED))
    return Experiment("tiny", "paper", "A tiny one", lambda seed, quick: {}, statements, **more)


@pytest.mark.parametrize(
    ("rule", "low", "high", "verdict"),
    [
        (PRINTED, 1.95, 2.05, Verdict.REPRODUCED),
        (PRINTED, 1.2, 2.0, Verdict.REPRODUCED),  # the paper's value is in our interval, all on its side
        (PRINTED, 0.5, 2.5, Verdict.UNDECIDED),  # the mean is near the paper's value, but the interval is too wide
        (PRINTED, 2.2, 2.4, Verdict.DIRECTION),
        (PRINTED, 0.4, 0.9, Verdict.NOT),
        (Rule(-math.inf, 1.0, resolution=0.02), 0.985, 1.01, Verdict.NOT),  # the effect is below the paper's resolution
        (Rule(-math.inf, 1.0, resolution=0.02), 0.97, 1.01, Verdict.UNDECIDED),
        (Rule(1.5, math.inf, neutral=1.0, resolution=0.01), 0.995, 1.005, Verdict.NOT),
        (PRINTED, 1.0, 1.0, Verdict.NOT),  # no effect is on no side
        (Rule(1.5, math.inf, neutral=1.0), 1.2, 1.6, Verdict.DIRECTION),  # at least 1.5: not shown
        (Rule(1.5, math.inf, neutral=1.0), 1.6, 1.7, Verdict.REPRODUCED),
        (Rule(-math.inf, 0.9, neutral=1.0), 0.92, 0.97, Verdict.DIRECTION),
        (Rule(-math.inf, 0.9, neutral=1.0), 1.1, 1.2, Verdict.NOT),
        (Rule(0.0, math.inf), -0.1, 0.3, Verdict.UNDECIDED),
        (Rule(0.0, math.inf), -0.3, -0.1, Verdict.NOT),
        (Rule(0.0, math.inf), 0.1, 0.3, Verdict.REPRODUCED),
        (Rule(0.3, 0.34), 0.29, 0.33, Verdict.UNDECIDED),
    ],
)
def test_verdicts_follow_their_rule(rule, low, high, verdict):
    assert rule.judge(Estimate((low + high) / 2, (high - low) / 2, 10)) == verdict


def test_claims_of_ours_hold_or_fail_and_count_apart():
    each = statement("a", rule=Rule(-math.inf, 1.0), source=OURS)
    experiment = Experiment("tiny", "paper", "A tiny one", lambda seed, quick: {}, (each,))
    for value, verdict in ((0.9, Verdict.HOLDS), (1.1, Verdict.FAILS)):
        found = [Measured("tiny", seed, {}, {"a": value}) for seed in range(3)]
        assert rows_of(experiment, found)[0].verdict is verdict


def test_one_run_decides_nothing_unless_it_is_exact():
    each = statement("a", rule=Rule(1.0, math.inf))
    assert each.rule.judge(each.estimate([{"a": 5.0}])) == Verdict.UNDECIDED
    assert each.rule.judge(each.estimate([{"a": 5.0}], exact=True)) == Verdict.REPRODUCED


def test_ratios_differences_and_trends_are_taken_run_by_run():
    runs = [{"a": 2.0, "b": 1.0, "c": 4.0}, {"a": 6.0, "b": 2.0, "c": 7.0}]
    assert statement("a", over="b").estimate(runs).mean == 2.5
    assert statement("a", minus="b").estimate(runs).mean == 2.5
    falling = statement("a", "b", "c", values=(2.0, 3.0, 1.0))
    assert falling.trend and falling.estimate(runs).high < 0  # reversed: the paper's curve falls, ours rises
    assert statement("a", over="nothing").estimate(runs) is None


def test_the_report_has_every_statement_and_the_same_bytes(tmp_path):
    table = Table("By policy", {"a": "first", "b": "second", "z": "none"}, {"{}": "number"})
    bars = Picture("tiny-1", "bars of a", "", "", "bars", {"a": "ours"}, theirs={"a": 2.0}, front=True)
    experiment = tiny(open={"x": (1, 2)}, also=({"x": 3, "y": 4},), tables=(table,), pictures=(bars,))
    assert experiment.variants() == [{}, {"x": 2}, {"x": 3, "y": 4}]
    found = [Measured("tiny", s, g, {"a": 2.0 + s / 10, "b": 1.0}) for g in ({}, {"x": 2}) for s in range(3)]
    assert [row.verdict.value for row in rows_of(experiment, found)] == ["reproduced", "shown", "not measured"]
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        counts = write_report(tmp_path / folder, {experiment: found}, quick=False)
    assert counts == {"reproduced": 1, "shown": 1, "not measured": 1}
    names = {path.name for path in (tmp_path / "one").iterdir()}
    assert names == {"report.md", "report.html", "report.csv", "measured.csv", "tiny-1.svg"}
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    page = (tmp_path / "one" / "report.html").read_text()
    assert "<svg" in page and "http://" not in page.split("<svg")[0]
    text = (tmp_path / "one" / "report.md").read_text()
    assert "b \\| says" in text and "| paper | 1 | 0 | 0 | 0 | 1 | 0 | 0 | 1 |" in text and "| 2.1 to 2.1 |" in text
    assert text.split("By policy:")[1].split("\n")[2:7] == [
        "|  | number |",
        "| --- | --- |",
        "| first | 2.1 ± 0.25 |",
        "| second | 1 ± 0 |",
        "| none | - |",
    ]


def test_a_search_reports_levers_and_where_figures_are_nearest(tmp_path):
    levers = Picture("tiny-1", "Levers", "", "factor", "effects", {"a": "first"})
    space = tiny(joint=({"x": (1, 2), "y": (3, 5)}, {"x": (4,)}), pictures=(levers,))
    assert len(space.variants()) == 5
    object.__setattr__(space, "statements", (statement("a", rule=PRINTED, values=(2.0,)),))
    points = [(1, 3, 1.0), (2, 3, 2.0), (1, 5, 3.0), (2, 5, 24.0), (7, 3, 5.0)]  # y = 5 at x = 7 is missing
    found = [Measured("tiny", 1000, {"x": x, "y": y}, {"a": a}) for x, y, a in points]
    assert write_report(tmp_path, {space: found}, quick=False) == {"shown": 1}  # its seeds decide no verdict
    text = (tmp_path / "report.md").read_text()
    assert "| x: 1 to 2 | 2 | 4 |" in text  # the geometric mean of 2 and 8
    assert "| y: 3 to 5 | 2 | 6 |" in text
    assert "| 1 to 24 | 2 | x = 2, y = 3 |" in text and "| x = 2, y = 3 | 1000 | 0.000 |" in text
    assert "x: 1 to 2" in (tmp_path / "tiny-1.svg").read_text()


def test_pictures_show_lines_and_distributions_with_theirs():
    runs = [{"w@0.5": 1.0 + s, "w@1": 2.0} for s in range(3)]
    for kind in ("lines", "cdf"):
        svg = picture_svg(Picture("p", "title", "x", "y", kind, {"w": "wait"}, theirs={"w@0.5": 1.0}), runs)
        assert ">wait<" in svg and ">printed<" in svg
    assert picture_svg(Picture("p", "title", "x", "y", "lines", {"v": "none"}), runs) == ""


def test_declarations_are_complete():
    found = experiments()
    assert len({each.name for each in found}) == len(found)
    assert {each.paper for each in found} == set(papers())
    for each in found:
        assert len({(s.name, s.says) for s in each.statements}) == len(each.statements), each.name
        for picture in each.pictures:  # a bare key with a dot would nest
            assert all(isinstance(label, str) for label in picture.groups.values()), picture.name
        for row in each.statements:
            where = (each.name, row.name)
            assert row.theirs and (row.because or row.rule is None), where
            if row.rule is not None:
                assert row.source, where
                assert row.tolerance or not row.rule.printed, where


#: Headings, tables and figures of the papers that are known to exist; `docs/papers` says what they print.
PLACES = {
    "gpu_assignment": "abstract, introduction, conclusion, 4.3, 5, figure 5, figure 6, figure 6(c), "
    "figure 7(a), figure 7(c), Table 1",
    "jit_bandwidth": "4.1, 4.2, figure 2, figure 5, figure 7, figure 8, figure 9, figure 10",
    "flow_scheduling": "abstract, 4.1.2, 4.2.1, 4.2.2, 4.2.3, 4.3, figure 9, figure 12, figure 13",
    "load_partition": "2, 4",
    "pod_placement": "3, 4, figure 5, table 4",
    "beyond": "figure 9",  # of the comparison of GPU sharing
    "coflow_hour": "Varys (SIGCOMM 2014), abstract",
}


def test_printed_values_name_a_place_that_exists_and_quotations_are_short():
    for each in experiments():
        for row in each.statements:
            where = (each.name, row.name)
            assert len(row.quote.split()) <= 10 and (row.source or not row.quote), where
            places = set(row.source.replace("section ", "").split(", ")) - {"", OURS}
            assert places <= set(PLACES[each.paper].split(", ")), (*where, row.source)
            assert row.source or row.theirs in ("none stated", "nothing printed", "impossible", "-"), where
            assert row.quote or "abstract" not in row.source, where  # abstracts are public: their words are at hand


def test_the_report_in_the_documentation_is_of_these_statements():
    kept = ROOT / "docs" / "reproduction" / "report.csv"
    rows = list(csv.DictReader(kept.open()))
    shown = {row["experiment"] for row in rows}
    now = [(e.name, s.name, s.says, s.theirs) for e in experiments() if e.name in shown for s in e.statements]
    assert [(row["experiment"], row["figure"], row["statement"], row["theirs"]) for row in rows] == now
    assert {each.paper for each in experiments() if each.name in shown} == set(papers()) and "jit-compare" in shown
    unexplained = [
        (row["experiment"], row["figure"]) for row in rows if row["verdict"] == Verdict.NOT and not row["cause"]
    ]
    assert not unexplained


def test_a_name_that_nothing_has_is_refused_with_the_nearest():
    assert [each.name for each in experiments("gpu-users", "gpu-alone")] == ["gpu-alone", "gpu-users"]
    with pytest.raises(InstanceError, match=r"no experiment is named 'gpus'; did you mean 'gpu-users'\? Papers"):
        experiments("gpus")


def test_the_report_says_what_measuring_took(tmp_path):
    took = ((1.5, "2026-01-02"), (None, ""), (4.0, "2026-01-03"))
    runs = [Measured("tiny", s, {}, {"a": 2.0, "b": 1.0}, *one) for s, one in enumerate(took)]
    effort = {"runs": 2, "wall_s": 90.0, "processes": 2, "cores": 4}
    write_report(tmp_path, {tiny(): runs}, quick=True, effort=effort)
    text = (tmp_path / "report.md").read_text()
    assert "3 runs; 2 of them say what they took: 6 s of a processor." in text and "**Quick report**" in text
    assert "The last command made 2 of them in 1.5 minutes with 2 processes on 4 cores." in text
    assert "| tiny | 3 | 5.5 | 4.0 | earlier to 2026-01-02 to 2026-01-03 |" in text
    write_report(tmp_path, {tiny(): runs[1:2]}, quick=True, effort=effort | {"processes": 1})
    assert "| tiny | 1 | - | - | earlier |" in (tmp_path / "report.md").read_text()
