"""`flowlex solve` on files and folders: what it prints, writes and exits with."""

import gzip
import json
import subprocess
from pathlib import Path

import pytest

KEYS = {"instance", "kind", "model", "engine", "status", "objective", "bound", "gap", "certificate", "seconds"}


@pytest.mark.parametrize("engine", ["pulp", "highs", "network"])
def test_one_file_as_json(run, write, engine):
    write("a.json")
    result = run("solve", "a.json", "--engine", engine, "--json")
    assert result.exit_code == 0, result.output
    (line,) = result.stdout.splitlines()
    record = json.loads(line)
    assert record.keys() >= KEYS
    assert {key: record[key] for key in ("instance", "name", "kind", "model")} == {
        "instance": "a.json",
        "name": "a",
        "kind": "min-cost-flow",
        "model": "min-cost-flow",
    }
    assert (record["engine"], record["status"]) == (engine, "optimal")
    assert (record["objective"], record["bound"], record["gap"]) == (11, 11, 0)
    assert record["certificate"]["ok"] is True
    assert record["certificate"]["claim"] == "optimal"
    assert record["seconds"].keys() >= {"load", "compile", "solve"}
    assert all(isinstance(value, float) for value in record["seconds"].values())


def test_one_file_for_a_person(run, write):
    write("a.json")
    result = run("solve", "a.json", "-o", "out")
    assert result.exit_code == 0
    for text in ("optimal", "11", "mid dle", "Certificate: optimal, proven exactly: ", "a.solution.json"):
        assert text in result.stdout
    solution = json.loads(Path("out/a.solution.json").read_text())
    assert solution["kind"] == "min-cost-flow-solution"
    assert solution["answer"]["flow"] == [3, 1, 3]
    assert solution["certificate"]["ok"] is True


def test_a_mixed_folder_reports_every_file_and_stops_for_none(run, write, read_results):
    write("in/a.json")
    write("in/b.json", units=99, room=2)
    write("in/c.json", units=3)
    Path("in/d.json.gz").write_bytes(gzip.compress(Path("in/a.json").read_bytes()))
    Path("in/e.json").write_text("{")
    Path("in/f.json").write_bytes(b"")
    Path("in/g.json.gz").write_bytes(b"no gzip")
    Path("in/h.json").write_bytes(b"\xff\xfe{}")
    Path("in/i").write_text("c any name will do\np min 2 1\nn 1 5\nn 2 -5\na 1 2 0 9 3\n")
    Path("in/j.min").write_text("p min 2 1\nn 1 5\nn 2 -4\na 1 2 0 9 3\n")
    Path("in/notes.txt").write_text("nothing to solve")
    write("in/.hidden.json")
    write("in/k.json.part")
    write("in/old.solution.json")
    result = run("solve", "in", "--jobs", 2, "--json", "-o", "out")
    assert result.exit_code == 1
    records = {Path(r["instance"]).name: r for r in map(json.loads, result.stdout.splitlines())}
    status = {name: record["status"] for name, record in records.items()}
    assert status == {
        "a.json": "optimal",
        "b.json": "infeasible",
        "c.json": "optimal",
        "d.json.gz": "optimal",
        "e.json": "error",
        "f.json": "error",
        "g.json.gz": "error",
        "h.json": "error",
        "i": "optimal",
        "j.min": "error",
    }
    assert records["c.json"]["objective"] == 6
    assert records["i"]["objective"] == 15
    assert "short by" in records["b.json"]["explanation"]["message"]
    assert records["b.json"]["certificate"]["claim"] == "infeasible"
    for name, words in {
        "e.json": "is it cut off?",
        "f.json": "the file is empty",
        "g.json.gz": "the content is not gzip",
        "h.json": "not UTF-8",
        "j.min": "must sum to 0",
    }.items():
        assert words in records[name]["message"]
        assert words in result.stderr
        assert records[name]["certificate"]["ok"] is None
    assert "left out 1 file" in result.stderr
    assert "notes.txt" in result.stderr
    assert sorted(map(json.dumps, read_results(Path("out")))) == sorted(map(json.dumps, records.values()))
    # a.json and d.json.gz hold the same instance, each has a file of its own; that b.json has no answer is proven too
    written = {path.name for path in Path("out").glob("*.solution.json")}
    assert written == {records[name]["solution"] for name, s in status.items() if s in ("optimal", "infeasible")}
    assert len(written) == 5
    assert not list(Path("out").glob("*.part"))


def test_files_of_one_name_get_solution_files_of_their_own(run, write):
    write("x/a.json")
    write("y/a.json", units=3)
    assert run("solve", "x/a.json", "y/a.json", "x", "-o", "out").exit_code == 0
    costs = {json.loads(path.read_text())["objective"] for path in Path("out").glob("*.solution.json")}
    assert costs == {11, 6}
    # another run into the same folder leaves them alone
    write("z/a.json", units=2)
    assert run("solve", "z", "-o", "out").exit_code == 0
    costs = {json.loads(path.read_text())["objective"] for path in Path("out").glob("*.solution.json")}
    assert costs == {11, 6, 4}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.json"], "nowhere.json does not exist"),
        (["empty"], "no instance files in empty"),
        (["a.json", "--resume"], "needs -o DIR"),
        (["a.json", "--engine", "cplex"], "cplex"),
        (["a.json", "--jobs", "0"], "jobs"),
        (["a.json", "--time-limit", "0"], "not a positive, finite number of seconds"),
        (["a.json", "--time-limit", "nan"], "not a positive, finite number of seconds"),
        (["a.json", "--gap", "-1"], "not a finite number of at least 0"),
        (["a.json", "--set", "policy"], "'policy' is not KEY=VALUE"),
        (["a.json", "--set", "penalties={rack"], "'{rack' is not JSON"),
        (["a.json", "--policy", "FS", "--set", "policy=FSP"], "'policy' is given twice"),
        (["a.json", "--policy", "FS"], "MinCostFlow has no option 'policy'"),
        (["a.json", "--tme-limit", "1"], "--tme-limit"),
        (["a.json", "-o", "a.json"], "a.json is a file; -o names a folder"),
        ([], "PATH"),
    ],
)
def test_wrong_usage_is_named_and_exits_with_2(run, write, arguments, words):
    write("a.json")
    Path("empty").mkdir()
    result = run("solve", *arguments)
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.replace("│", " ").split())


def test_a_folder_that_cannot_be_written_exits_with_2(run, write):
    write("a.json")
    Path("file").write_text("")
    result = run("solve", "a.json", "-o", "file/out")
    assert result.exit_code == 2
    assert "cannot write results there" in result.stderr


def test_names_that_are_no_unicode_are_reported(run, write):
    path = write("a.json")
    odd = path.rename(path.with_name("a\udce9.json"))
    result = run("solve", odd.parent, "--json", "-o", "out")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["instance"].endswith("a\udce9.json")
    assert run("solve", odd.parent, "-o", "out").exit_code == 0


def test_a_comparison_that_does_not_exist_says_so(run, write):
    write("a.json")
    result = run("solve", "a.json", "--compare", "--json")
    assert result.exit_code == 0
    assert "MinCostFlow has nothing to compare with" in json.loads(result.stdout)["comparison"]["message"]
    assert "nothing to compare" in run("solve", "a.json", "--compare").stdout


def test_a_comparison_and_an_option_that_is_an_object(run):
    assert run("generate", "gpu-figure4", "-o", "a.json").exit_code == 0
    result = run("solve", "a.json", "--policy", "FS", "--set", 'penalties={"rack": 3}', "--compare", "--json")
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    assert record["options"]["settings"] == {"policy": "FS", "penalties": {"rack": 3}}
    policies = [row["policy"] for row in record["comparison"]["rows"]]
    assert {"FSP", "FS", "FSU"} <= set(policies)
    header = run("solve", "a.json", "--compare").stdout.partition("Comparison: a.json")[2].splitlines()[2]
    assert [word for word in header.replace("┃", " ").split() if word != "policy"] == policies
    result = run("solve", "a.json", "--set", 'penalties={"rock": 3}')
    assert result.exit_code == 2
    assert "penalties has no field 'rock'; it has: rack, between_racks" in result.stderr


def test_a_reader_that_goes_away_is_no_crash(start, write):
    for number in range(3):
        write(f"in/{number}.json")
    process: subprocess.Popen[str] = start("solve", "in", "--json")
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()
    process.wait(timeout=120)
