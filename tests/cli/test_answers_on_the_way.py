"""A killed, stopped or starved instance leaves its best answer so far, which `flowlex verify` accepts."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flowlex.cli.batch_results_log import Fingerprint, Journal
from flowlex.cli.worker_process import run_task
from flowlex.formulations.lexicographic import lexicographic_network
from flowlex.formulations.solver_outcome import Status
from flowlex.instances import generate, write_instance
from flowlex.instances.file_storage import read_bytes
from flowlex.instances.instance_base import InstanceError
from flowlex.models import model_for
from flowlex.models.flow.model import FlowScheduling
from flowlex.validation.certificates import verify

OPTIONS = {"engine": "network", "settings": {"order": "phases"}, "gap": 0.0, "compare": False, "time_limit_s": None}


class Listener:
    """Record the messages from a worker to its parent."""

    def __init__(self) -> None:
        self.said: list[tuple[str, dict[str, Any]]] = []

    def send(self, event: str, **content: Any) -> None:
        self.said.append((event, json.loads(json.dumps(content))))


def solved(tmp_path: Path) -> tuple[dict[str, Any], Listener]:
    write_instance(generate("flow-random", seed=3), tmp_path / "a.json")
    task = {"path": str(tmp_path / "a.json"), "instance": "a.json", "solution": str(tmp_path / "a.solution.json")}
    listener = Listener()
    more = {"spare_threads": False, "log": False, "display": False}
    return run_task({**OPTIONS, **task, **more}, listener)["record"], listener  # type: ignore[arg-type]


def failing(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Let flow scheduling by phases solve all stages, then raise ``error``."""
    run = FlowScheduling._run

    def broken(self: FlowScheduling, *arguments: Any) -> Any:
        run(self, *arguments)
        raise error

    monkeypatch.setattr(FlowScheduling, "_run", broken)


def test_answers_on_the_way_are_written_as_they_come(tmp_path, run):
    record, listener = solved(tmp_path)
    said = [content["record"] for event, content in listener.said if event == "answer"]
    answers = [record for record in said if record["solution"] == "a.solution.json"]
    assert [answer["status"] for answer in answers] == ["feasible"] * len(answers) and answers
    assert answers[0]["message"].startswith("least shortfall, in this order; not looked at: waiting_")
    assert (record["status"], record["cut_off"]) == ("optimal", None)


def test_an_instance_that_needs_too_much_memory_leaves_its_best_answer(tmp_path, run, monkeypatch):
    failing(monkeypatch, MemoryError())
    record, _ = solved(tmp_path)
    assert (record["status"], record["cut_off"]) == ("feasible", "memory limit")
    assert record["message"] == "not enough memory; this is the best answer so far"
    assert run("verify", "a.solution.json", "a.json").exit_code == 0


def test_an_answer_on_the_way_to_a_defect_is_none(tmp_path, monkeypatch):
    failing(monkeypatch, AssertionError("a defect"))
    record, _ = solved(tmp_path)
    assert (record["status"], record["objective"], record["solution"]) == ("error", None, None)
    assert not (tmp_path / "a.solution.json").exists()


def test_a_killed_instance_leaves_its_best_answer_and_is_solved_again(start, run, children, tmp_path):
    write_instance(generate("flow-scale", machines=1500, tasks=3000), tmp_path / "big.json")
    words = ("solve", "big.json", "-o", "out", "--engine", "network", "--set", "order=phases")
    process, found = start(*words, "--json"), tmp_path / "out" / "big.solution.json"
    while not found.exists() and process.poll() is None:
        time.sleep(0.02)
    for worker in children(process.pid):
        os.kill(worker, signal.SIGKILL)
    stdout, stderr = process.communicate(timeout=100)
    record = json.loads(stdout)
    assert process.returncode == 0, stderr
    assert (record["status"], record["cut_off"]) == ("feasible", "killed")
    assert record["certificate"]["ok"]
    assert record["message"].endswith("SIGKILL (out of memory?); this is the best answer so far")
    assert json.loads(found.read_text())["status"] == Status.FEASIBLE
    accepted = run("verify", "out/big.solution.json", "big.json")
    assert accepted.exit_code == 0 and accepted.stdout.startswith("out/big.solution.json: feasible, proven exactly")
    assert json.loads((tmp_path / "out" / "results.jsonl").read_text())["cut_off"] == "killed"
    with Journal(tmp_path / "out") as journal:
        assert journal.done(Fingerprint.of(tmp_path / "big.json"), record["options"]) is None  # solved again


def _raised(document: dict[str, Any], stage: str) -> dict[str, Any]:
    """Return the document with the bound of a stage raised by one."""
    name = f"{stage}_at_least"
    return document | {"metrics": document["metrics"] | {name: document["metrics"][name] + 1}, "certificate": None}


def test_a_time_limit_between_stages_leaves_the_stages_before(monkeypatch):
    model = FlowScheduling(generate("flow-random", seed=3), order="phases")
    full, met = model.solve("network"), list[Any]()
    assert full.status is Status.OPTIMAL and len(full.stages) == 5
    model.solve("network", report=met.append)
    for known, answer in enumerate(met, start=1):
        names = list(full.stages)[:known]
        assert {name: answer.stages[name] for name in names} == {name: full.stages[name] for name in names}
        last = list(full.stages)[-1]
        assert answer.bound is None or answer.bound <= full.stages[last]
        assert verify(answer.to_dict(), model.instance).claim in ("feasible", "bounded", "optimal")
        assert not verify(_raised(answer.to_dict(), names[-1]), model.instance).ok
    solve, calls = lexicographic_network.solve, list[float]()

    def slow(program: Any, engine: Any, options: Any) -> Any:
        calls.append(options.time_limit_s)
        found = solve(program, engine)
        return found if len(calls) < 4 else replace(found, status=Status.TIME_LIMIT, values=None)

    monkeypatch.setattr(lexicographic_network, "solve", slow)
    stopped, names = model.solve("network", time_limit_s=100), list(full.stages)[:3]
    assert stopped.status is Status.FEASIBLE and stopped.certificate.ok
    assert {name: stopped.stages[name] for name in names} == {name: full.stages[name] for name in names}
    assert calls == sorted(calls, reverse=True) and calls[-1] < 100  # one limit for all


@pytest.mark.parametrize(
    ("name", "engine", "options"), [("jit-random", "highs", {"load": "port"}), ("gpu-random", "network", {})]
)
def test_answers_on_the_way_are_certified_and_the_end_is_the_same(name, engine, options):
    model, met = model_for(generate(name, seed=1), **options), list[Any]()
    last = model.solve(engine, report=met.append)
    assert last.status is Status.OPTIMAL and last.objective == model.solve(engine).objective
    assert all(each.status is Status.FEASIBLE and each.certificate.ok for each in met)
    assert all(each.objective >= last.objective for each in met)
    assert name == "gpu-random" or met  # a round may be proven at once


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no device that does not end")
def test_a_device_that_does_not_end_is_read_to_a_limit():
    with pytest.raises(InstanceError, match="gives more than 1 MB; save what it gives in a file first"):
        read_bytes("/dev/zero", most=1 << 20)


@pytest.mark.slow
def test_compiling_loops_for_the_first_time_is_outside_the_limit(tmp_path, monkeypatch) -> None:
    """A worker without cached loops is not stopped while it compiles them."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cold"))
    path = tmp_path / "pods.json"
    write_instance(generate("pods-scale", nodes=40, pods=200, seed=1), path)  # a small one would run plain
    words = ("solve", str(path), "--engine", "highs", "--time-limit", "20", "--json")
    done = subprocess.run([sys.executable, "-P", "-m", "flowlex", *words], capture_output=True, text=True, check=False)
    assert "compiling numerical loops" in done.stderr
    record = json.loads(done.stdout)
    assert record["status"] in ("optimal", "feasible"), record["message"]
