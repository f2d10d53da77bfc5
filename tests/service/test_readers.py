"""Queries are answered by a process that follows the log and is restarted if it ends."""

from __future__ import annotations

import contextlib
import json

import pytest

from flowlex.service.decision_thread import Worker
from flowlex.service.prometheus_metrics import Metrics
from flowlex.service.reader_process import ReaderProcess
from flowlex.service.scheduler_protocol import NoReaderError, UnknownTask
from flowlex.service.service_folder import loader_of, settled
from flowlex.service.state_snapshot_files import Snapshots
from flowlex.service.write_ahead_log import Journal


@pytest.fixture
def worker(folder):
    options = {"goals": "quincy", "cluster": None, "cost_limit": 10**6, "scale": None, "lexicographic": False}
    folder.mkdir()
    settled(folder, "scheduler", options, set())
    made = Worker(Snapshots(Journal(folder), loader_of(folder)), Metrics(), ReaderProcess())
    yield made
    made.close()


def submit(worker, *tasks):
    events = [{"event": "submit", "job": {"name": task, "tasks": [{"name": task}]}} for task in tasks]
    worker.call(lambda core: worker.take(events)).result(60)


def ask(worker, *question):
    return json.loads(worker.ask(*question).result(60))


def test_a_process_answers_as_of_the_last_decision_and_is_started_again(worker):
    machine = {"event": "add_machine", "machine": {"name": "m0", "slots": 1}}
    worker.call(lambda core: worker.take([machine])).result(60)
    submit(worker, "a")
    worker.call(lambda core: worker.decide()).result(60)
    assert ask(worker, "placements") == {"number": 1, "places": {"a": "m0"}}
    submit(worker, "b")
    assert ask(worker, "placements")["number"] == 1
    assert ask(worker, "task", "b")["reason"]  # not known yet: the events since are taken
    with pytest.raises(UnknownTask):
        ask(worker, "task", "zz")
    worker.call(lambda core: worker.decide()).result(60)
    assert (ask(worker, "explain", "b")["rule"], ask(worker, "nodes_of", ["a", "b"])) == ("worth", {"a": "m0"})
    old, found = worker.readers._process, None
    old.kill()
    while found is None:
        with contextlib.suppress(NoReaderError):  # queries before its end is noticed
            found = ask(worker, "placements")
    assert found["number"] == 2 and worker.readers._process is not old
    submit(worker, "c")
    path = worker.journal.folder / "saved"
    assert ask(worker, "save", path) is None  # with all records, decided or not
    assert loader_of(worker.journal.folder)(path).task("c").reason
    worker.call(lambda core: worker.decide()).result(60)
    assert ask(worker, "placements") == {"number": 3, "places": {"a": "m0"}}
    assert ask(worker, "task", "c")["reason"]
