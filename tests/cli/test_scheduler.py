"""Batches on a Dask cluster: the same results as a local batch, even if processes are killed."""

import functools
import http.server
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

distributed = pytest.importorskip("distributed", reason="extra distributed is not installed")

from flowlex.cli import dask_batch, dask_transport  # noqa: E402
from flowlex.cli.versions import versions  # noqa: E402
from flowlex.cli.worker_pool import Cancelled, PoolError, SingleWorker  # noqa: E402

pytestmark = pytest.mark.rare

MANY = 24


class Poison(distributed.WorkerPlugin):  # type: ignore[misc]
    """Kill the worker that starts an instance named poison."""

    def setup(self, worker: Any) -> None:
        perform = SingleWorker.perform

        def deadly(process: SingleWorker, task: dict[str, Any], wanted: Callable[[], bool]) -> Any:
            if "poison" in task["instance"]:
                os.kill(os.getpid(), signal.SIGKILL)
            return perform(process, task, wanted)

        SingleWorker.perform = deadly  # type: ignore[method-assign]


def _cluster(workers: int) -> Iterator[Any]:
    about = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": 60}
    with distributed.LocalCluster(**about) as cluster, distributed.Client(cluster) as client:
        client.wait_for_workers(workers, timeout=100)
        yield client


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    yield from _cluster(2)


@pytest.fixture
def doomed() -> Iterator[Any]:
    """A cluster with enough workers that some may die: when a nanny restarts one is not part of the test."""
    yield from _cluster(dask_transport.TRIES + 1)


@pytest.fixture
def address(client: Any) -> str:
    return str(client.scheduler.address)


def _told(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != "seconds"}


def _sorted(out: Path) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    return sorted(map(_told, records), key=lambda record: record["instance"])


def test_a_cluster_leaves_what_the_local_batch_leaves(run, write, address, tmp_path):
    for number in range(1, 4):
        write(f"in/{number}.json", units=number)
    write("in/none.json", units=99, room=2)
    (tmp_path / "in" / "wrong.json").write_text('{"kind": "min-cost-flow", "supply": 3}')
    far = run("solve", "in", "--scheduler", address, "-o", "far")
    near = run("solve", "in", "--jobs", 2, "-o", "near")
    assert far.exit_code == near.exit_code == 1
    assert _sorted(tmp_path / "far") == _sorted(tmp_path / "near")
    assert "2 threads of 2 workers; dashboard: http://" in far.stderr
    (wrong,) = (record for record in _sorted(tmp_path / "far") if record["status"] == "error")
    assert wrong["message"].startswith("in/wrong.json: supply")
    files = {path.name for path in (tmp_path / "near").glob("*.solution.json")}
    for name in sorted(files):
        documents = [json.loads((tmp_path / out / name).read_text()) for out in ("far", "near")]
        assert documents[0]["answer"] == documents[1]["answer"]
    assert {path.name for path in (tmp_path / "far").glob("*.solution.json")} == files
    assert run("verify", "far", "in").exit_code == 0
    again = run("solve", "in", "--scheduler", address, "-o", "far", "--resume")
    assert "4 of 5 were done before" in again.stderr


def test_an_instance_that_kills_its_workers_is_tried_three_times(run, write, doomed):
    doomed.register_plugin(Poison(), name="poison")
    paths = [write("poison.json"), write("well.json", units=3)]
    result = run("solve", *paths, "--scheduler", doomed.scheduler.address, "--json")
    records = {Path(record["instance"]).stem: record for record in map(json.loads, result.stdout.splitlines())}
    assert result.exit_code == 1
    assert records["well"]["status"] == "optimal"
    message = records["poison"]["message"]
    assert message.count("tcp://") in (dask_transport.TRIES, dask_transport.TRIES + 1)  # and perhaps who refused it
    assert "the workers that had it died" in message


def test_urls_are_read_by_the_client(run, write, address, tmp_path):
    fsspec = pytest.importorskip("fsspec")
    content = write("a.json").read_bytes()
    with fsspec.open("memory://bucket/nightly/a.json", "wb") as stream:
        stream.write(content)
    with fsspec.open("memory://bucket/nightly/notes.txt", "wb") as stream:
        stream.write(b"nothing")
    result = run("solve", "memory://bucket/nightly", "--scheduler", address, "-o", "out")
    assert result.exit_code == 0, result.stderr
    (record,) = _sorted(tmp_path / "out")
    assert record["status"] == "optimal"
    assert record["instance"] == record["input"]["path"] == "memory://bucket/nightly/a.json"
    assert "left out 1 file" in result.stderr
    assert "1 of 1 were done before" in run("solve", "memory://bucket/nightly", "-o", "out", "--resume").stderr
    with fsspec.open("memory://bucket/nightly/a.json", "wb") as stream:
        stream.write(content + b"\n")
    assert (
        "were done before"
        not in run("solve", "memory://bucket/nightly", "--scheduler", address, "-o", "out", "--resume").stderr
    )
    assert "memory://bucket/none.json does not exist" in run("solve", "memory://bucket/none.json").stderr
    assert "no such store" in run("solve", "nowhere://bucket/a.json").stderr


def test_a_file_of_a_web_server_is_solved_here(run, write, tmp_path):
    pytest.importorskip("aiohttp")
    write("web/a.json")
    serve = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path / "web"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/a.json"
        result = run("solve", url, "-o", "out")
        missing = run("solve", url.replace("a.json", "b.json"))
        server.shutdown()
    assert result.exit_code == 0, result.stderr
    assert [record["instance"] for record in _sorted(tmp_path / "out")] == [url]
    assert missing.exit_code == 2
    assert "b.json does not exist" in missing.stderr


def test_simulations_travel_with_their_workload(run, address, tmp_path):
    assert run("generate", "cluster-random", "-o", "work/w.json").exit_code == 0
    (tmp_path / "scenarios").mkdir()
    scenario = {
        "kind": "scenario",
        "name": "small",
        "simulator": "cluster",
        "workload": {"file": "../work/w.json"},
        "policies": ["FIFO"],
        "seeds": [0, 1],
    }
    path = tmp_path / "scenarios" / "s.json"
    path.write_text(json.dumps(scenario))
    far = run("simulate", "scenarios", "--scheduler", address, "-o", "far")
    near = run("simulate", "scenarios", "-o", "near")
    assert far.exit_code == near.exit_code == 0, far.stderr + near.stderr
    assert (tmp_path / "far" / "runs.csv").read_bytes() == (tmp_path / "near" / "runs.csv").read_bytes()
    logs = {log.name: log.read_bytes() for log in (tmp_path / "near").glob("*.jsonl.gz")}
    assert {log.name: log.read_bytes() for log in (tmp_path / "far").glob("*.jsonl.gz")} == logs != {}
    path.write_text(json.dumps(scenario | {"workload": {"file": str(tmp_path / "work" / "w.json")}}))
    refused = run("simulate", "scenarios", "--scheduler", address)
    assert refused.exit_code == 2
    assert "is not relative to the scenario's" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--scheduler", "tcp://127.0.0.1:9"), "the scheduler tcp://127.0.0.1:9 does not answer"),
        (("--scheduler", "127.0.0.1"), "'127.0.0.1' is no address of a scheduler; give tcp://HOST:PORT"),
        (("--scheduler", "local:0"), "'local:0' is no address of a scheduler"),
        (("--scheduler", "local:2", "--jobs", "2"), "--jobs: is not for --scheduler: the cluster's workers"),
        (("--scheduler", "local:2", "--log"), "--log: is not for --scheduler"),
    ],
)
def test_wrong_schedulers_are_refused(run, write, monkeypatch, arguments, message):
    monkeypatch.setattr(dask_batch, "_REACH_S", 0.5)
    result = run("solve", write("a.json"), *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_workers_of_another_version_are_refused(run, write, monkeypatch, address):
    monkeypatch.setattr(dask_batch, "versions", lambda: {**versions(), "highspy": "0.1"})
    result = run("solve", write("a.json"), "--scheduler", address)
    assert result.exit_code == 2
    assert f"highspy {versions()['highspy']} instead of 0.1" in result.stderr
    assert "(and" not in result.stderr


def test_a_scheduler_without_workers_is_refused(run, write):
    assert "--wait-workers: is for --scheduler only" in run("solve", write("b.json"), "--wait-workers", 1).stderr
    with distributed.LocalCluster(n_workers=0, dashboard_address=None, silence_logs=60) as cluster:
        result = run("solve", write("a.json"), "--scheduler", cluster.scheduler_address, "--wait-workers", 0.5)
    assert result.exit_code == 2
    assert "has no workers after 0.5 s; start one: dask worker" in result.stderr


def test_a_task_that_nobody_wants_is_stopped(silent_pipe, children, wait_for):
    limits = {"time_limit_s": None, "gap": 0.0, "settings": {}, "compare": False, "display": False}
    task = {"instance": "a", "path": str(silent_pipe("a.json")), "engine": "network", "log": False, "solution": None}
    asked, others = iter([True] * 8), set(children(os.getpid()))  # other tests may have left some
    with pytest.raises(Cancelled):
        SingleWorker().perform({**task, **limits, "spare_threads": True}, lambda: next(asked, False))
    wait_for(lambda: set(children(os.getpid())) <= others)


def test_parts_of_one_instance_are_tasks_of_their_own(run, address, tmp_path):
    arguments = ("--set", "jobs=24", "--set", "gpus=8", "--set", "sharing=true", "-o", "a.json")
    assert run("generate", "gavel-like", *arguments).exit_code == 0
    told = []
    for how in (("--jobs", 1), ("--jobs", 2), ("--scheduler", address)):
        result = run("solve", "a.json", "--set", "parts=2", "--json", *how)
        assert result.exit_code == 0, result.stderr
        record = json.loads(result.stdout)
        told.append((record["status"], record["objective"], record["bound"], record["certificate"]["ok"]))
    assert told[0] == told[1] == told[2]
    assert told[0][0] == "feasible"


def test_subtasks_run_in_processes_of_their_own_and_tell_what_fails(tmp_path):
    from flowlex.cli.subtasks import distributed_subtasks
    from flowlex.formulations.solver_outcome import EngineError
    from flowlex.models.process_pool import side_by_side

    task = {"instance": "a.json", "engine": "network", "time_limit_s": None, "log": False, "processes": 2}
    with distributed_subtasks(task):
        assert list(side_by_side(abs, [-1, 2, -3])) == [1, 2, 3]
        assert os.getpid() not in set(side_by_side(os.getpgid, [0, 0]))
        with pytest.raises(EngineError, match=r"a.json, part 2: .*invalid literal for int"):
            list(side_by_side(int, ["1", "one"]))
    with (
        distributed_subtasks(task | {"time_limit_s": 0.2}),
        pytest.raises(EngineError, match=r"stopped while solving it: limit 0\.2"),
    ):
        list(side_by_side(time.sleep, [60.0]))


class Threads:
    """A Dask client that reports numbers of threads in turn."""

    def __init__(self, *threads: int) -> None:
        self._threads = iter(threads)

    def nthreads(self) -> dict[str, int]:
        count = next(self._threads)
        return {"tcp://a": count} if count else {}


def test_a_cluster_without_workers_is_waited_for_and_said(monkeypatch, capsys):
    clock = iter(range(0, 10_000, 2))
    monkeypatch.setattr(dask_batch.time, "monotonic", lambda: next(clock))
    workers = dask_batch.Workers(Threads(2, 0, 0, 3), "tcp://s:1", 600)
    assert [workers.threads() for _ in range(4)] == [2, 0, 0, 3]
    assert capsys.readouterr().err.splitlines() == [
        "no workers at tcp://s:1; waiting for one (at most 600 s)",
        "workers are back: 3 threads",
    ]
    workers = dask_batch.Workers(Threads(0, 0, 0), "tcp://s:1", 3)
    with pytest.raises(PoolError, match=r"no workers for 3 s; start one \(dask worker tcp://s:1\) and go on"):
        [workers.threads() for _ in range(3)]


def test_a_batch_goes_on_when_its_only_worker_comes_back(start, write, wait_for, tmp_path):
    for number in range(MANY):
        write(f"in/{number}.json", units=1 + number % 4)
    about = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": None, "silence_logs": 60}
    with distributed.LocalCluster(**about) as cluster:
        process = start("solve", "in", "--scheduler", cluster.scheduler_address, "-o", "out")
        results = tmp_path / "out" / "results.jsonl"
        wait_for(lambda: results.exists() and len(results.read_bytes().splitlines()) >= 3)
        cluster.scale(0)
        wait_for(lambda: not cluster.scheduler.workers)
        time.sleep(2.5)  # the batch queries the workers once per second
        cluster.scale(1)
        _, stderr = process.communicate(timeout=100)
    assert process.returncode == 0, stderr
    assert [record["status"] for record in _sorted(tmp_path / "out")] == ["optimal"] * MANY
