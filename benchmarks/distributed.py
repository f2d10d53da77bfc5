"""Compare a batch on a local Dask cluster with the local batch, and test its recovery when processes are killed.

Throughput: seconds from the first result to the last, which excludes the start of processes on both sides; the overhead
of Dask is given per instance. As other programs may use the machine, the processor time of all processes involved
(client, scheduler, workers, solving processes) is given, too. Recovery: a worker, and then the whole command, is killed
by SIGKILL in mid-run; afterwards we count the instances with no result or with more than one.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import Row, Tables
from flowlex.cli.batch_runner import Batch, Job
from flowlex.cli.dask_batch import Cluster
from flowlex.instances.files import write_instance
from flowlex.instances.generators import generate


def tables(quick: bool = False) -> Tables:
    sizes = [("small", 40, 5)] if quick else [("small", 2000, 5), ("large", 20, 3000)]
    workers = (2,) if quick else (2, 4)
    with tempfile.TemporaryDirectory() as name:
        folders = {title: _written(Path(name) / title, many, jobs) for title, many, jobs in sizes}
        spread = [_row(title, files, n) for title, files in folders.items() for n in workers]
        small = folders["small"]
        killed = [_worker_killed(small, max(workers)), _command_killed(small, max(workers), Path(name))]
    return [
        ("A batch on a local Dask cluster beside the local batch, wall seconds from first to last result", spread),
        (f"Killed by SIGKILL in mid-run, {len(small)} small instances", killed),
    ]


def _written(folder: Path, many: int, jobs: int) -> list[Path]:
    """Write allocation instances with individual weights, so that no two jobs are identical."""
    folder.mkdir()
    for k in range(many):
        made: Any = generate("gavel-like", jobs=jobs, gpus=max(8, jobs // 8), seed=k)
        weighed = [job.model_copy(update={"weight": 1 + m / jobs}) for m, job in enumerate(made.jobs)]
        write_instance(made.model_copy(update={"jobs": tuple(weighed)}), folder / f"{k:05}.json")
    return sorted(folder.iterdir())


def _row(title: str, files: list[Path], workers: int) -> Row:
    local, busy_here = _batch(files, jobs=workers)
    with Cluster(f"local:{workers}", quiet=True) as cluster:
        _batch(files[: 4 * workers], cluster=cluster)  # warm-up: its processes import
        dask, busy_there = _batch(files, cluster=cluster)
    return {
        "instances": f"{len(files)} {title}",
        "workers": workers,
        "local": round(local, 2),
        "Dask": round(dask, 2),
        "instances/s": round(len(files) / dask, 1),
        "ratio": round(dask / local, 2),
        "more per instance, ms": round(1000 * (dask - local) / len(files), 2),
        "processor time, local": round(busy_here, 2),
        "Dask's": round(busy_there, 2),
        "more per instance, processor ms": round(1000 * (busy_there - busy_here) / len(files), 2),
    }


def _batch(files: Sequence[Path], *, jobs: int = 1, cluster: Cluster | None = None) -> tuple[float, float]:
    """Wall seconds from the first result to the last, and processor seconds of all processes between them."""
    began, busy, last = 0.0, 0.0, 0.0
    for done, item in enumerate(_results(files, jobs, cluster), 1):
        if item.record["status"] != "optimal":
            raise AssertionError(item.record["message"])
        if done == 1:
            began, busy = time.perf_counter(), _busy()
        if done == len(files):  # before processes end
            last = _busy()
    return time.perf_counter() - began, last - busy


def _busy() -> float:
    """Processor seconds of this process and all its descendants, including those that have ended."""
    psutil: Any = importlib.import_module("psutil")
    found = 0.0
    me = psutil.Process()
    for process in (me, *me.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            found += times.user + times.system + times.children_user + times.children_system
    return found


def _results(files: Sequence[Path], jobs: int, cluster: Cluster | None) -> Any:
    options: dict[str, Any] = {"engine": "highs", "settings": {}, "time_limit_s": None, "gap": 0.0, "compare": False}
    return Batch(list(map(Job.solving, files)), options, journal=None, processes=jobs, cluster=cluster).run()


def _worker_killed(files: list[Path], workers: int) -> Row:
    """Kill one of the workers when a quarter of the batch is done."""
    seen: Counter[str] = Counter()
    began, pids = time.perf_counter(), list[int]()
    with _local(workers) as client, Cluster(client.scheduler.address, quiet=True) as cluster:
        for item in _results(files, 1, cluster):
            seen[item.record["instance"]] += item.record["status"] == "optimal"
            if not pids and 4 * len(seen) >= len(files):
                pids = list(client.run(os.getpid).values())
                os.kill(pids[0], signal.SIGKILL)
    return _counted("one worker", files, seen, workers, time.perf_counter() - began)


def _command_killed(files: list[Path], workers: int, folder: Path) -> Row:
    """Kill the command when a quarter of the batch is done; then run it again with ``--resume``."""
    journal = folder / "out" / "results.jsonl"
    command = [sys.executable, "-m", "flowlex", "solve", str(files[0].parent), "--engine", "highs"]
    began = time.perf_counter()
    with _local(workers) as client:
        command += ["--scheduler", client.scheduler.address, "-o", str(folder / "out")]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            while 4 * _lines(journal) < len(files) and process.poll() is None:
                time.sleep(0.05)
            process.kill()
        kept = _lines(journal)
        subprocess.run([*command, "--resume"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    records = [json.loads(line) for line in journal.read_text().splitlines()]
    seen = Counter(record["instance"] for record in records if record["status"] == "optimal")
    return _counted(f"the command, after {kept} lines; --resume", files, seen, workers, time.perf_counter() - began)


@contextlib.contextmanager
def _local(workers: int) -> Iterator[Any]:
    about = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": 60}
    dask: Any = importlib.import_module("distributed")
    with dask.LocalCluster(**about) as cluster, dask.Client(cluster) as client:
        client.wait_for_workers(workers, timeout=100)
        yield client


def _lines(journal: Path) -> int:
    return journal.read_bytes().count(b"\n") if journal.exists() else 0


def _counted(what: str, files: list[Path], seen: Counter[str], workers: int, seconds: float) -> Row:
    lost, twice = len(files) - len(seen), sum(seen.values()) - len(seen)
    return {"killed": what, "workers": workers, "seconds in all": round(seconds, 1), "lost": lost, "twice": twice}
