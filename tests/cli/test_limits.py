"""Inputs and limits of a batch: links, standard input, memory, what reaches the solver, what -o may be."""

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from flowlex.cli.app import app
from flowlex.cli.batch_results_log import Journal
from flowlex.cli.worker_pool import _Process
from flowlex.instances import generate, write_instance
from flowlex.instances.file_storage import read_bytes
from flowlex.instances.instance_base import InstanceError


@pytest.fixture(scope="module")
def network():
    return generate("network-random", nodes=2000, arcs=200_000)


def piped(data: bytes, *words: str) -> Result:
    return CliRunner().invoke(app, ["solve", *words], input=data)


def test_links_that_lead_nowhere_or_in_a_circle_end_their_line_only(run, write):
    write("a.json")
    Path("loop.json").symlink_to("loop.json")
    Path("gone.json").symlink_to("nowhere.json")
    Path("in").mkdir()
    Path("in/round.json").symlink_to("round.json")
    Path("in/b.json").symlink_to("../a.json")
    Path("in/c.json").symlink_to("../absent.json")
    result = run("solve", "loop.json", "gone.json", "in", "--json", "-o", "out")
    assert result.exit_code == 1
    records = {record["instance"]: record for record in map(json.loads, result.stdout.splitlines())}
    assert {name: record["status"] for name, record in records.items()} == {
        "loop.json": "error",
        "gone.json": "error",
        "in/b.json": "optimal",
        "in/c.json": "error",
        "in/round.json": "error",
    }
    assert "loop.json: cannot be read: Too many levels of symbolic links" in records["loop.json"]["message"]
    assert "cannot be read: No such file" in records["gone.json"]["message"]


def test_an_instance_from_standard_input(run, write):
    data = write("a.json").read_bytes()
    for name, content in (("-", data), ("/dev/stdin", gzip.compress(data))):
        done = piped(content, name, "--json", "-o", "out")
        assert done.exit_code == 0 and json.loads(done.stdout)["objective"] == 11
    assert Path("out/stdin.solution.json").exists()
    assert json.loads(piped(b"p min 2 1\nn 1 5\nn 2 -5\na 1 2 0 9 3\n", "-", "--json").stdout)["objective"] == 15
    empty = piped(b"", "/dev/stdin", "--json")
    assert empty.exit_code == 1 and "the file is empty" in json.loads(empty.stdout)["message"]


def test_a_memory_limit_ends_one_instance(run, write, network):
    write("a.json")
    write_instance(network, "network.json")
    result = run("solve", "network.json", "a.json", "--engine", "pulp", "--memory-limit", 60, "--json")
    assert result.exit_code == 1
    records = map(json.loads, result.stdout.splitlines())
    small, big = sorted(records, key=lambda record: record["instance"] != "a.json")
    assert big["status"] == "error"
    assert "memory limit of 60 MB" in big["message"]
    assert small["status"] == "optimal"


@pytest.mark.rare
@pytest.mark.parametrize("limit", [20, 30, 60])
def test_a_library_that_ends_its_process_for_lack_of_memory_is_no_riddle(run, monkeypatch, network, limit):
    """Plain and compressed files: one line each with the reason, and no backtrace that deadlocks."""
    monkeypatch.setenv("RUST_BACKTRACE", "1")
    flow = generate("flow-scale", machines=5000, tasks=10_000)
    for name in ("flow.json", "flow.json.gz", "network.json", "network.json.gz"):
        write_instance(flow if "flow" in name else network, f"in/{name}")
    result = run("solve", "in", "--engine", "pulp", "--memory-limit", limit, "--json")
    records = list(map(json.loads, result.stdout.splitlines()))
    assert result.exit_code == 1 and len(records) == 4
    known = f"needs more than the memory limit of {limit} MB"
    rare = rf"the process .* ended: SIG\w+ \(perhaps for lack of memory: the limit is {limit} MB\)\..*"  # no message
    odd = [record["message"] for record in records if not re.fullmatch(f"{known}|{rare}", record["message"])]
    assert odd == []


def test_a_crash_under_a_memory_limit_names_the_limit(run, write, monkeypatch):
    monkeypatch.setattr("flowlex.cli.worker_pool.out_of_memory", lambda *_: "")
    write("a.json")
    killed = _Process.take_in

    def crash(process: _Process, event: dict[str, object]) -> None:
        killed(process, event)
        os.kill(process.process.pid, signal.SIGSEGV)

    monkeypatch.setattr(_Process, "take_in", crash)
    limited = "SIGSEGV (perhaps for lack of memory: the limit is 900 MB)."
    for words, cause in (((), "SIGSEGV."), (("--memory-limit", 900), limited)):
        (record,) = map(json.loads, run("solve", "a.json", *words, "--json").stdout.splitlines())
        assert record["status"] == "error" and record["message"].endswith(cause)


@pytest.mark.parametrize("jobs", [("--jobs", 1), pytest.param(("--scheduler", "local:1"), marks=pytest.mark.rare)])
def test_files_that_are_none_are_one_line_each_at_once(run, write, read_results, jobs):
    """Without a time limit the batch must not wait for any of these files."""
    long = "é" * 120 + "n" * 10 + ".json"  # 255 bytes
    for name in ("good.json", long, "in/x.json/inner.json"):
        write(name)
    for name in ("sparse.json", "sparse.json.gz"):
        with Path(name).open("wb") as stream:
            stream.truncate(8 << 40)  # more than any memory
    os.mkfifo("pipe.json")
    Path("empty.json").mkdir()
    odd = (long, "sparse.json", "sparse.json.gz", "pipe.json", "in", "empty.json")
    result = run("solve", "good.json", *odd, *jobs, "-o", "out")
    assert result.exit_code == 1
    records = {record["instance"]: record for record in read_results(Path("out"))}
    assert {name: record["status"] for name, record in records.items()} == {
        "good.json": "optimal",
        long: "optimal",
        "sparse.json": "error",
        "sparse.json.gz": "error",
        "pipe.json": "error",
    }
    for name in ("sparse.json", "sparse.json.gz"):
        assert re.match(rf"{name}: (has 8388608 MB, this machine only|is larger than)", records[name]["message"])
    assert records["pipe.json"]["message"].startswith("pipe.json: cannot be read: nobody writes to this pipe")
    said = "left out 2 files that are no instance files by name or beginning: "
    assert f"{said}x.json (no regular file), empty.json (no regular file)" in result.stderr
    assert (Path("out") / records[long]["solution"]).is_file()


def test_a_pipe_with_a_writer_is_read_to_its_end(tmp_path):
    path, content = tmp_path / "pipe.json", b"x" * 3_000_000
    os.mkfifo(path)
    held = os.open(path, os.O_RDWR)  # so that the writer is there before the reader

    def write_all() -> None:
        path.write_bytes(content)
        os.close(held)

    writer = threading.Thread(target=write_all)
    writer.start()
    assert read_bytes(path) == content
    writer.join()


@pytest.mark.parametrize("jobs", [("--jobs", 1), pytest.param(("--scheduler", "local:1"), marks=pytest.mark.slow)])
def test_a_file_that_changes_after_the_batch_began_is_an_error_line(run, write, monkeypatch, read_results, jobs):
    path, begin = write("a.json"), Journal.begin

    def changing(journal: Journal, forget: set[str]) -> bool:
        path.write_text(path.read_text() + "\n")
        return begin(journal, forget)

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "begin", changing)
        assert run("solve", "a.json", *jobs, "-o", "out").exit_code == 1
    (record,) = read_results(Path("out"))
    size = path.stat().st_size
    assert record["message"] == (
        f"a.json: changed after the batch began ({size - 1} bytes before, {size} now); solve it again with --resume"
    )
    assert run("solve", "a.json", *jobs, "-o", "out", "--resume").exit_code == 0


def test_reading_in_pieces_takes_no_more_than_there_is(tmp_path):
    packed = tmp_path / "long.gz"
    packed.write_bytes(gzip.compress(bytes(3_000_000)))
    tracemalloc.start()
    assert read_bytes(packed) == bytes(3_000_000)
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()
    with pytest.raises(InstanceError, match="unfolds to more than"):
        read_bytes(packed, most=2_999_999)


def test_a_link_into_proc_has_one_line_of_results(run, tmp_path):
    (tmp_path / "memory.json").symlink_to("/proc/self/mem")
    line = "import sys, pathlib; from flowlex.cli.batch_results_log import Fingerprint; "
    line += "print(Fingerprint.of(pathlib.Path(sys.argv[1])).path)"
    command = [sys.executable, "-c", line, str(tmp_path / "memory.json")]
    elsewhere = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    for _ in range(2):
        assert run("solve", "memory.json", "memory.json", "-o", "out").exit_code == 1
    (record,) = map(json.loads, Path("out/results.jsonl").read_text().splitlines())
    assert record["input"]["path"] == elsewhere == str(tmp_path / "memory.json")


def test_options_of_the_solver_reach_it_or_are_refused(run, write):
    write("a.json")
    result = run("solve", "a.json", "--solver", "PULP_CBC_CMD", "--seed", 3, "--json")
    record = json.loads(result.stdout)
    assert record["options"]["solver"] == "PULP_CBC_CMD" and record["options"]["seed"] == 3
    refused = run("solve", "a.json", "--solver", "NONE_SUCH", "--json")
    assert refused.exit_code == 1 and "NONE_SUCH" in json.loads(refused.stdout)["message"]
    refused = run("solve", "a.json", "--engine", "network", "--threads", 2, "--json")
    assert "engine 'network' has no option 'threads'" in json.loads(refused.stdout)["message"]
    assert run("solve", "a.json", "--engine", "highs", "--threads", 1, "--seed", 7, "--json").exit_code == 0


def test_the_log_of_the_solver_is_shown_on_standard_error(start, write):
    process = start("solve", write("a.json"), "--engine", "highs", "--log", "--json")
    stdout, stderr = process.communicate(timeout=120)
    assert json.loads(stdout)["objective"] == 11
    assert "HiGHS" in stderr


def test_resume_says_why_it_solves_again(run, write):
    write("a.json")
    run("solve", "a.json", "-o", "out", "--time-limit", 60)
    result = run("solve", "a.json", "-o", "out", "--resume")
    assert (
        "earlier results were made with other options (time_limit_s); these instances are solved again" in result.stderr
    )
    result = run("solve", "a.json", "-o", "out", "--resume")
    assert "1 of 1 were done before" in result.stderr
