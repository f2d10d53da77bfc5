"""``flowlex simulate`` and ``flowlex reproduce``: logs, tables, pictures, resumption, and refusals."""

import csv
import importlib.util
import json
from pathlib import Path

import pandas
import pytest
from typer.testing import CliRunner, Result

from flowlex.cli.app import app
from flowlex.systems.simulation.commands.reproduce import _runs
from flowlex.systems.simulation.event_log import RunLog
from flowlex.systems.simulation.experiments import experiments

SCENARIO = {
    "kind": "scenario",
    "name": "small",
    "simulator": "cluster",
    "workload": {"generator": "cluster-random"},
    "policies": ["FIFO", {"name": "GSD", "label": "patient", "parameters": {"first": 3.0, "second": 6.0}}],
    "seeds": [0, 1],
}


def flowlex(*arguments: object, code: int = 0) -> Result:
    """Run the command line in this process; long runs use worker processes anyway."""
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, list(map(str, arguments)))
    assert done.exit_code == code, done.output
    return done


def write(folder: Path, **changes: object) -> Path:
    path = folder / "small.json"
    path.write_text(json.dumps(SCENARIO | changes))
    return path


def test_a_scenario_leaves_logs_tables_and_pictures_and_is_resumed(tmp_path):
    path, out = write(tmp_path), tmp_path / "out"
    shown = flowlex("simulate", path, "-o", out, "--pictures", "--jobs", 2)
    assert "total_s" in shown.stdout and "patient" in shown.stdout
    rows = list(csv.DictReader((out / "runs.csv").open()))
    assert [(row["policy"], row["seed"]) for row in rows] == [(p, s) for p in ("FIFO", "patient") for s in "01"]
    if importlib.util.find_spec("pyarrow"):
        pandas.testing.assert_frame_equal(pandas.read_parquet(out / "runs.parquet"), pandas.read_csv(out / "runs.csv"))
    logs = sorted(out.glob("*.run.jsonl.gz"))
    assert len(logs) == 4 and len(list(out.glob("*-gantt.svg"))) == 2
    header = RunLog.read(logs[0]).header
    assert (header["scenario"], header["policy"], header["seed"]) == ("small", "FIFO", 0)
    before = {log.name: log.read_bytes() for log in logs}
    lines = (out / "results.jsonl").read_text().splitlines(keepends=True)
    (out / "results.jsonl").write_text("".join(lines[:3]) + lines[3][:20])  # as a killed run leaves it
    again = flowlex("simulate", path, "-o", out, "--resume")
    assert "dropped 1 half-written line" in again.stderr and "3 of 4 were done before" in again.stderr
    assert {log.name: log.read_bytes() for log in sorted(out.glob("*.run.jsonl.gz"))} == before
    assert list(csv.DictReader((out / "runs.csv").open())) == rows


MINE = """
from flowlex.systems.simulation.cluster import Policy


class ShortestFirst(Policy):
    def decide(self, state):
        places = state.open_places()
        for task in sorted(state.waiting(), key=lambda task: task.task.compute_s):
            place = next((place for place in places if place.fits(task)), None)
            if place is not None:
                yield state.start(task, place)
"""


def test_a_policy_in_a_file_runs_beside_others(tmp_path):
    file = tmp_path / "my_policy.py"
    file.write_text(MINE)
    mine = f"{file}:ShortestFirst"
    shown = flowlex("simulate", write(tmp_path), "--policy", mine, "--policy", "FIFO", "--seeds", 1, "--json")
    records = {record["model"]: record for record in map(json.loads, shown.stdout.splitlines())}
    assert set(records) == {mine, "FIFO"}
    assert all(record["status"] == "simulated" for record in records.values())


@pytest.mark.parametrize(
    ("text", "name", "says"),
    [
        ("", "Mine", "has no class or function 'Mine'"),
        ("1 / 0", "Mine", "fails: ZeroDivisionError"),
        (None, "M", "cannot be read"),
    ],
)
def test_a_file_without_the_policy_is_named(tmp_path, text, name, says):
    file = tmp_path / "my_policy.py"
    if text is not None:
        file.write_text(text)
    path = write(tmp_path)
    shown = CliRunner().invoke(app, ["simulate", str(path), "--policy", f"{file}:{name}"])
    assert shown.exit_code == 2 and says in shown.output.replace("\n", " ") + str(shown.exception)


def test_set_replaces_fields_of_the_scenario(tmp_path):
    path, out = write(tmp_path), tmp_path / "out"
    given = ("--set", 'policies=["spread"]', "--set", "workload.parameters.jobs=2", "--set", "parameters.round_s=7")
    flowlex("simulate", path, "-o", out, "--seeds", 1, *given)
    (log,) = out.glob("*.run.jsonl.gz")
    found = RunLog.read(log)
    assert found.header["policy"] == "spread" and len(list(found.of("submit"))) == 2
    assert all(record["at_s"] % 7 == 0 for record in found.of("start"))
    again = flowlex("simulate", path, "-o", out, "--seeds", 1, *given[:-1], "parameters.round_s=5", "--resume")
    assert "1 of 1 were done before" not in again.stderr  # another scenario, so it runs in addition to the first
    (other,) = set(out.glob("*.run.jsonl.gz")) - {log}
    assert all(record["at_s"] % 5 == 0 for record in RunLog.read(other).of("start"))


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("horizont_s=3", "a scenario has no 'horizont_s'; its fields are"),
        ("horizon_s=-3", "horizon_s: must be greater than 0"),
        ("decision.mode=dreaming", "decision.mode: must be 'none', 'fixed', 'counted' or 'measured'"),
        ("name.first=x", "a scenario has no 'name.first'"),
        ("horizon_s", "is not KEY=VALUE"),
    ],
)
def test_a_setting_that_cannot_be_is_named(tmp_path, setting, says):
    failed = flowlex("simulate", write(tmp_path), "-o", tmp_path / "out", "--set", setting, code=2)
    assert says in " ".join(failed.stderr.replace("│", " ").split()) and not (tmp_path / "out").exists()


def test_a_run_can_be_replayed_by_a_live_scheduler(tmp_path):
    workload = {"generator": "cluster-random", "parameters": {"resource": "slot", "outages": 0.5}}
    flowlex("simulate", write(tmp_path, workload=workload, policies=["FIFO"], seeds=[3]), "-o", tmp_path / "out")
    (events,) = (tmp_path / "out").glob("*.events.jsonl.gz")
    shown = flowlex("replay", events, "--goals", "quincy")
    assert "placed" in shown.stdout
    (log,) = (tmp_path / "out").glob("*.run.jsonl.gz")
    assert f"record of a simulated run; replay {events.name}" in flowlex("replay", log, code=1).stderr


def test_a_network_run_can_be_replayed_by_the_just_in_time_scheduler(tmp_path):
    workload = {"generator": "jit-cluster", "parameters": {"jobs": 2, "machines": 4, "copies": 1, "mix": "LeNet"}}
    path = write(tmp_path, simulator="network", workload=workload, policies=["fair"], seeds=[0])
    flowlex("simulate", path, "-o", tmp_path / "out")
    (events,) = (tmp_path / "out").glob("*.events.jsonl.gz")
    assert "just in time" in flowlex("replay", events).stdout


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"policies": ["FIFFO"]}, "has no policy 'FIFFO'; did you mean 'FIFO'?"),
        ({"simulator": "clusters"}, "no simulator is named 'clusters'; one of: cluster, network"),
        ({"workload": {"generator": "gpu-testbed"}}, "takes cluster-workload, but this is 'gpu-assignment'"),
        ({"workload": {"file": "nowhere.json"}}, "nowhere.json"),
        ({"horizon_s": -1.0}, "horizon_s"),
        ({"parameters": {"round_s": -2}}, "parameters: round_s=-2: must be greater than or equal to 0"),
        ({"simulator": "network", "policies": ["fair"], "parameters": {"bin_s": 0}}, "bin_s must be a positive number"),
        ({"policies": [{"name": "GSD", "parameters": {"third": 1}}]}, "no parameter 'third'"),
    ],
)
def test_a_scenario_that_cannot_run_is_refused_before_anything_runs(tmp_path, changes, says):
    failed = flowlex("simulate", write(tmp_path, **changes), "-o", tmp_path / "out", code=2)
    assert says in failed.stderr and not (tmp_path / "out").exists()


def test_a_run_that_fails_is_named_and_the_others_go_on(tmp_path):
    path = write(tmp_path, parameters={"most_events": 10})
    failed = flowlex("simulate", path, "-o", tmp_path / "out", "--seeds", 1, code=1)
    assert "over 10 events" in failed.stderr
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [".lock", "results.jsonl"]


def test_a_report_is_written_of_what_a_folder_holds(tmp_path, monkeypatch):
    record = {
        "name": "load-changes",
        "status": "measured",
        "seed": 0,
        "given": {},
        "metrics": {"uneven_wild": 6.0, "uneven_calm": 2.0},
    }
    record["options"] = {"quick": False}
    monkeypatch.delenv("FLOWLEX_COFLOW_TRACE", raising=False)  # needed for measuring, not for writing the report
    hour = record | {"name": "coflow-hour", "metrics": {"mean_cct_s_fair": 6.0, "mean_cct_s_sebf": 3.0}}
    lines = [
        hour,
        record,
        record | {"seed": 1, "metrics": {"uneven_wild": 5.0, "uneven_calm": 1.0}},
        record | {"status": "error", "seed": 2},
    ]
    (tmp_path / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    flowlex("reproduce", "coflow_hour", "--write", "-o", tmp_path)
    assert "2.0" in (tmp_path / "report.csv").read_text()
    flowlex("reproduce", "load_partition", "--write", "-o", tmp_path)
    (row,) = csv.DictReader((tmp_path / "report.csv").open())
    assert (float(row["ours"]), int(row["seeds"])) == (4.0, 2)
    assert "holds no measurements" in flowlex("reproduce", "--write", "-o", tmp_path / "none", code=2).stderr


@pytest.mark.rare
def test_a_report_goes_on_and_says_what_it_took(tmp_path):
    out, chosen = tmp_path / "out", ("load-evaluations", "load-changes", "--quick", "-j", 2)
    flowlex("reproduce", *chosen, "-o", out)
    results = out / "results.jsonl"
    lines = results.read_text().splitlines(keepends=True)
    results.write_text("".join(lines[:4]) + lines[4][:20])  # as a killed run leaves it
    assert "4 of 10 were done before" in flowlex("reproduce", *chosen, "-o", out, "--resume").stderr
    records = [json.loads(line) for line in results.read_text().splitlines()]
    assert len({(one["name"], one["seed"]) for one in records}) == len(records) == 10
    text = (out / "report.md").read_text()
    assert f"10 runs; 10 of them say what they took: {sum(one['processor_s'] for one in records):.0f} s" in text
    assert "The last command made 6 of them in" in text and "2 processes on" in text
    took = (out / "effort.json").read_bytes()
    assert "10 of 10 were done before" in flowlex("reproduce", *chosen, "-o", out, "--resume").stderr
    assert (out / "effort.json").read_bytes() == took  # nothing was measured: the earlier report remains


def test_what_takes_long_begins_first():
    takes_s = {each.name: each.takes_s for each in experiments()}
    runs = [takes_s[run.task["experiment"]] for run in _runs(experiments(), quick=False, seeds=1, sweep=False)]
    assert runs == sorted(runs, reverse=True) and runs[0] > runs[-1]


def test_what_an_experiment_needs_and_is_not_here_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("FLOWLEX_OPENB", str(tmp_path / "nowhere"))
    listed = flowlex("reproduce", "beyond", "--list")
    gone = f"openb-protocol is left out; FLOWLEX_OPENB is {tmp_path / 'nowhere'}, which does not exist; set it to the"
    assert gone in listed.stderr.replace("\n", " ")
    monkeypatch.delenv("FLOWLEX_OPENB")
    listed = flowlex("reproduce", "beyond", "--list")
    assert "openb-protocol is left out; set FLOWLEX_OPENB to the folder" in listed.stderr
    assert "google-day" in listed.stdout and "openb-protocol" not in listed.stdout
