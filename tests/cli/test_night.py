"""A long batch: files of all kinds, some of them faulty, on two workers; processes are killed at random and resumed."""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
from collections import Counter
from itertools import cycle, islice
from pathlib import Path

import pytest

from flowlex.cli.batch_report import LISTED
from flowlex.instances import generate
from flowlex.instances.files import instance_bytes

pytestmark = pytest.mark.rare

#: A generator of small instances for each kind that has a model.
GENERATORS = {
    "gpu-random": {},
    "jit-random": {},
    "inference-cluster": {},
    "network-random": {"nodes": 12, "arcs": 40},
    "pods-scale": {"nodes": 2, "pods": 4},
    "flow-random": {},
    "gavel-like": {"jobs": 5, "gpus": 8},
}
INFEASIBLE = {
    "kind": "min-cost-flow",
    "supply": [9, -9],
    "tail": [0],
    "head": [1],
    "lower": [0],
    "upper": [3],
    "cost": [1],
}
#: Contents of faulty files and the statuses in which they must end.
POISONS = {
    "empty": (b"", "error"),
    "cut": (b'{"kind": "gpu-assignment", "racks": [', "error"),
    "binary": (bytes(range(256)), "error"),
    "unknown": (b'{"kind": "horoscope"}', "error"),
    "fields": (b'{"kind": "min-cost-flow", "supply": 3}', "error"),
    "packed": (gzip.compress(json.dumps(INFEASIBLE).encode())[:-20], "error"),
    "infeasible": (json.dumps(INFEASIBLE).encode(), "infeasible"),
    "deep": (b"[" * 100_000, "error"),
}


def written(folder: Path, many: int, poisoned: int) -> dict[str, str]:
    """Write a number of files of mixed kinds and faults; return the status in which each must end."""
    folder.mkdir()
    kinds = [
        instance_bytes(generate(name, seed=seed, **about), "x.json")
        for name, about in GENERATORS.items()
        for seed in range(4)
    ]
    contents = [(content, "optimal") for content in islice(cycle(kinds), many - poisoned)]
    contents += islice(cycle(POISONS.values()), poisoned)
    random.Random(34).shuffle(contents)
    expected = {}
    for number, (content, status) in enumerate(contents):
        path = folder / f"{number:04}.json"
        path.write_bytes(content)
        expected[path.name] = status
    return expected


def lines(results: Path) -> int:
    return results.read_bytes().count(b"\n") if results.exists() else 0


@pytest.mark.parametrize(
    ("many", "poisoned", "kills"),
    [(LISTED + 4, 8, 2), pytest.param(3000, 60, 5, marks=pytest.mark.slow)],
    ids=["small", "ten minutes"],
)
def test_a_night_ends_with_one_line_each(
    start, run, wait_for, children, alive, read_results, tmp_path, many, poisoned, kills
):
    expected = written(tmp_path / "in", many, poisoned)
    choose, results = random.Random(2026), tmp_path / "out" / "results.jsonl"
    command = ("solve", "in", "-j", 2, "--time-limit", 300, "--memory-limit", 4000, "--engine", "highs", "-o", "out")

    def kill_everything(until: int) -> None:
        process = start(*command, *["--resume"] * results.exists())
        wait_for(lambda: lines(results) >= until or process.poll() is not None, seconds=1200)
        doomed = [process.pid, *children(process.pid)]
        choose.shuffle(doomed)
        assert process.poll() is None, process.communicate()
        for pid in filter(alive, doomed):
            os.kill(pid, signal.SIGKILL)
        process.wait(timeout=100)
        wait_for(lambda: not any(map(alive, doomed)))
        if choose.random() < 0.5:  # a power failure in the middle of a line
            results.write_bytes(results.read_bytes()[: -choose.randrange(1, 40)])

    for until in sorted(choose.sample(range(1, many - many // 8), kills)):
        kill_everything(until)
    process = start(*command, "--resume")
    stdout, stderr = process.communicate(timeout=1500)
    assert process.returncode == 1, stderr
    assert "Traceback" not in stdout + stderr

    records = {Path(record["instance"]).name: record for record in read_results(tmp_path / "out")}
    assert len(read_results(tmp_path / "out")) == len(records) == many
    unlike = {name: record["message"] for name, record in records.items() if record["status"] != expected[name]}
    assert not unlike
    verified = run("verify", "out", "in", "--json")
    claims = {
        Path(report["instance"]).name: report["claim"] for report in map(json.loads, verified.stdout.splitlines())
    }
    assert claims == {name: status for name, status in expected.items() if status != "error"}
    assert verified.exit_code == 0
    assert not list((tmp_path / "out").glob(".*.part"))

    counts = Counter(expected.values())
    titles = (
        f"{many} instances: {counts['optimal']} optimal, {counts['error']} error, {counts['infeasible']} infeasible"
    )
    page = (tmp_path / "out" / "summary.html").read_text()
    for title in (titles, "Slowest instances", "To run again"):
        assert title in stdout and f"{title}</h" in page
    again = page.partition("To run again")[2]
    assert all((name in again) == (status == "error") for name, status in expected.items())
