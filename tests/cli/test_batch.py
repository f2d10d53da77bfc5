"""Batches that are killed, hang, or lose a worker: no result is lost or duplicated.

The hanging instance is a named pipe whose writer never writes.
"""

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flowlex.cli.batch_results_log import Fingerprint, Journal, JournalError, encode

OPTIONS = {"engine": "pulp"}


def _reads(worker: int, pipe: Path) -> bool:
    """Whether a process has the pipe open."""
    try:
        return str(pipe) in {os.path.realpath(link) for link in Path(f"/proc/{worker}/fd").iterdir()}
    except FileNotFoundError:  # one was closed meanwhile
        return False


def test_a_killed_batch_resumes_without_loss_or_double_entry(
    start, run, write, silent_pipe, wait_for, children, alive, read_results, tmp_path
):
    before = [write(f"{number}.json", units=number) for number in range(1, 4)]
    after = [write(f"{number}.json", units=number) for number in range(5, 8)]
    hanging = silent_pipe("4.json")
    out = tmp_path / "out"
    arguments = ["solve", *before, hanging, *after, "-o", out, "--json"]
    process = start(*arguments)
    results = out / "results.jsonl"
    wait_for(lambda: results.exists() and len(results.read_bytes().splitlines()) == 3)
    (worker,) = wait_for(lambda: children(process.pid))
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=120)
    wait_for(lambda: not alive(worker))  # no process outlives a killed run

    whole = results.read_bytes()
    assert [record["name"] for record in read_results(out)] == ["1", "2", "3"]
    kept = whole.splitlines(keepends=True)[:2]
    results.write_bytes(whole[:-40])  # as if killed in the middle of the third line
    hanging.unlink()
    write("4.json")

    result = run(*arguments, "--resume")
    assert result.exit_code == 0
    assert "dropped 1 half-written line" in result.stderr
    assert "2 of 7 were done before" in result.stderr
    assert results.read_bytes().splitlines(keepends=True)[:2] == kept
    names = [record["name"] for record in read_results(out)]
    assert names == ["1", "2", "3", "4", "5", "6", "7"]
    assert [json.loads(line)["name"] for line in result.stdout.splitlines()] == names
    assert len(list(out.glob("*.solution.json"))) == 7

    again = run(*arguments, "--resume")
    assert "7 of 7 were done before" in again.stderr
    assert again.stdout == result.stdout
    assert len(read_results(out)) == 7


def test_a_hanging_instance_is_stopped_and_the_others_are_solved(run, write, silent_pipe):
    paths = [write("a.json"), silent_pipe("b.json"), write("c.json", units=3)]
    result = run("solve", *paths, "--time-limit", "3", "--jobs", 2, "--json", "-o", "out")
    assert result.exit_code == 1
    records = {Path(record["instance"]).stem: record for record in map(json.loads, result.stdout.splitlines())}
    statuses = {name: record["status"] for name, record in records.items()}
    assert statuses == {"a": "optimal", "b": "time_limit", "c": "optimal"}
    assert "stopped while reading it: limit 3 s" in records["b"]["message"]
    assert "b.json" in result.stderr
    # the same limit would stop it again, so it counts as done
    again = run("solve", *paths, "--time-limit", "3", "--json", "-o", "out", "--resume")
    assert "3 of 3 were done before" in again.stderr
    assert again.exit_code == 1


def test_a_worker_that_dies_is_an_error_line(start, write, silent_pipe, wait_for, children, read_results, tmp_path):
    paths = [write("a.json"), silent_pipe("b.json"), write("c.json", units=3)]
    out = tmp_path / "out"
    process = start("solve", *paths, "-o", out)
    (worker,) = wait_for(lambda: children(process.pid))
    wait_for(lambda: _reads(worker, paths[1]))
    os.kill(worker, signal.SIGKILL)
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 1
    assert [record["status"] for record in read_results(out)] == ["optimal", "error", "optimal"]
    assert "SIGKILL (out of memory?)" in read_results(out)[1]["message"]
    assert "2 optimal, 1 error" in stdout
    assert "b.json" in stderr


def test_workers_that_cannot_start_end_the_run(run, write, monkeypatch):
    write("a.json")
    monkeypatch.setattr(sys, "executable", "/bin/false")
    result = run("solve", "a.json")
    assert result.exit_code == 2
    assert "worker processes end before they begin" in result.stderr


def test_an_interrupted_run_says_how_to_go_on(start, silent_pipe, wait_for, children, alive):
    pipe = silent_pipe("a.json")
    process = start("solve", pipe, "-o", "out")
    (worker,) = wait_for(lambda: children(process.pid))
    wait_for(lambda: _reads(worker, pipe))
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "interrupted; go on with --resume" in stderr
    assert "Traceback" not in stderr
    wait_for(lambda: not alive(worker))


def test_resume_solves_again_what_changed_or_failed(run, write, read_results):
    write("a.json")
    write("b.json")
    Path("c.json").write_text("{")
    assert run("solve", "a.json", "b.json", "c.json", "-o", "out").exit_code == 1
    write("b.json", units=3)
    write("c.json", units=2)
    Path("out/a.solution.json").unlink()
    result = run("solve", "a.json", "b.json", "c.json", "-o", "out", "--resume")
    assert result.exit_code == 0
    records = {record["name"]: record for record in read_results(Path("out"))}
    assert len(read_results(Path("out"))) == 3
    assert [records[name]["objective"] for name in "abc"] == [11, 6, 4]
    assert len(list(Path("out").glob("*.solution.json"))) == 3
    # other options: solved again; the earlier results are kept in another file
    result = run("solve", "a.json", "--engine", "highs", "-o", "out", "--resume")
    assert "results.previous.jsonl" in result.stderr
    assert len(Path("out/results.previous.jsonl").read_text().splitlines()) == 3
    engines = {record["name"]: record["engine"] for record in read_results(Path("out"))}
    assert engines == {"a": "highs", "b": "network", "c": "network"}


def test_lines_that_are_no_results_stay_in_a_file_of_their_own(run, write):
    strange = '{"name": "measured elsewhere", "status": "measured"}\n'
    Path("out").mkdir()
    Path("out/results.jsonl").write_text(strange)
    result = run("solve", write("1.json"), "-o", "out", "--resume")
    assert result.exit_code == 0 and "1 line(s) are no results of such a run" in result.stderr
    assert Path("out/results.previous.jsonl").read_text() == strange
    assert len(Path("out/results.jsonl").read_text().splitlines()) == 1


def test_many_files_end_with_tables_and_a_page(run, write, monkeypatch):
    monkeypatch.setattr("flowlex.cli.batch_report.LISTED", 3)
    for number in range(1, 4):
        write(f"in/{number}.json", units=number)
    Path("in/4.json").write_text("{")
    result = run("solve", "in", "-o", "out")
    assert result.exit_code == 1
    page = Path("out/summary.html").read_text()
    for title in ("4 instances: 3 optimal, 1 error", "Slowest instances", "To run again"):
        assert title in result.stdout and f"{title}</h" in page
    assert [name in page.partition("To run again")[2] for name in ("1.json", "4.json")] == [False, True]


def test_two_runs_cannot_write_to_one_folder(tmp_path):
    with Journal(tmp_path), pytest.raises(JournalError, match="another `flowlex solve` is writing there"):
        Journal(tmp_path).__enter__()
    with Journal(tmp_path):
        pass


def _record(number: int) -> dict[str, object]:
    return {"status": "optimal", "options": OPTIONS, "input": vars(Fingerprint(f"/{number}", 1, 1)), "text": "é\u2028"}


_LINES = [encode(_record(number)) for number in range(3)]
_ENDS = [len(b"".join(_LINES[: number + 1])) for number in range(3)]


@given(st.integers(0, _ENDS[-1]))
@example(_ENDS[1] - 1)  # only the line end is missing: a complete record
@example(_ENDS[1] - 2)
@example(_ENDS[1] + 1)
def test_a_file_cut_anywhere_keeps_its_whole_lines(tmp_path_factory, cut):
    folder = tmp_path_factory.mktemp("journal")
    lines, content = _LINES, b"".join(_LINES)[:cut]
    (folder / "results.jsonl").write_bytes(content)
    whole = sum(end - 1 <= cut for end in _ENDS)
    with Journal(folder) as journal:
        assert list(journal.records) == [f"/{number}" for number in range(whole)]
        assert journal.dropped == (cut > sum(map(len, lines[:whole])))
        assert not journal.begin(set())
        journal.append(_record(99))
    assert (folder / "results.jsonl").read_bytes() == b"".join(lines[:whole]) + encode(_record(99))


def test_garbage_in_the_results_is_dropped(tmp_path):
    good = encode(_record(1))
    (tmp_path / "results.jsonl").write_bytes(b"\xff\xfe\n[1]\n" + good + b'{"status": "optimal", "input": 3}\nnull\n')
    with Journal(tmp_path) as journal:
        assert list(journal.records) == ["/1"]
        assert (journal.dropped, journal.foreign) == (1, 3)  # invalid UTF-8; lines that are no results
        journal.begin(set())
    assert (tmp_path / "results.jsonl").read_bytes() == good


@pytest.mark.parametrize(("status", "done"), [("optimal", True), ("time_limit", True), ("error", False)])
def test_an_error_is_tried_again_even_if_nothing_changed(tmp_path, status, done):
    record = {**_record(1), "status": status}
    (tmp_path / "results.jsonl").write_bytes(encode(record))
    with Journal(tmp_path) as journal:
        assert (journal.done(Fingerprint("/1", 1, 1), OPTIONS) is not None) == done
        assert journal.done(Fingerprint("/1", 1, 2), OPTIONS) is None
        assert journal.done(Fingerprint("/1", 1, 1), {"engine": "highs"}) is None
