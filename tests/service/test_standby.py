"""A standby takes over from a loaded service, alive, paused or killed: no acknowledged event is lost or duplicated."""

from __future__ import annotations

import random
import signal
import threading
import time

import httpx
import pytest

from flowlex.models.flow.goals import preset
from flowlex.service.flow_scheduler_core import ClusterCore
from flowlex.service.replication import Replication
from flowlex.service.scheduler_routes import cluster_router
from flowlex.service.standby import Follower, NotComplete
from flowlex.service.write_ahead_log import Journal
from flowlex.telemetry.http_client import Refused, TelemetryClient
from tests.service.test_client import URL, Wire
from tests.service.test_killed import Writer, check, connect, launch


def test_answers_wait_for_the_attached_standby_and_are_refused_once_it_is_silent(tmp_path):
    def answered(replication, position):
        replication.answer(position, lambda trouble, n=position[1]: found.append((n, bool(trouble))))

    found, file = [], tmp_path / "attached"
    replication = Replication(file, lease_s=1e6)
    answered(replication, (0, 10))
    assert found == [(10, False)]  # no standby is attached
    replication.attach("s", lambda: (0, 15))
    assert replication.needed == (0, 15) and file.read_text() == "s"
    replication.confirm((0, 15), 0.0)
    answered(replication, (0, 20))
    answered(replication, (1, 5))
    assert found[1:] == [] and replication.waiting and not replication.covers((0, 20))
    replication.confirm((0, 20), 0.0)
    replication.expire()  # its lease holds
    assert found[1:] == [(20, False)]
    replication.confirm((0, 0), 0.0)  # it copies again: acknowledged events are needed now
    assert replication.needed == (0, 20)
    replication.lease_s = -1.0
    replication.confirm((0, 20), 0.0)
    replication.expire()
    answered(replication, (1, 6))
    assert found[2:] == [(5, True), (6, True)] and "silent" in replication.trouble
    again = Replication(file, lease_s=-1.0)  # a service that starts again is bound as well
    answered(again, (0, 7))
    again.detach()
    answered(again, (0, 8))
    assert found[4:] == [(7, True), (8, False)] and not file.exists()


# Worst moments, in one process --------------------------------------------------------------------------------------
def load(state):
    return ClusterCore.load(state, preset("borg"), None)


def machine(name):
    return {"events": [{"event": "add_machine", "machine": {"name": name}}]}


def until(condition):
    end = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


class Cable(Wire):
    """A transport that can be cut."""

    cut = False

    def handle_request(self, request):
        answer = None if self.cut else super().handle_request(request)
        if answer is None or self.cut:
            raise httpx.ConnectError("cut")
        return answer


@pytest.fixture
def pair(start, folder, tmp_path):
    """Yield a service that decides only on request, and a standby with a complete copy."""
    folder.mkdir()
    (folder / "service.json").write_text("{}")
    api = start(load, cluster_router)
    cable = Cable(api)
    follower = Follower(tmp_path / "copy", TelemetryClient(URL, transport=cable))
    until(lambda: follower.complete)
    yield api, follower, cable
    cable.cut = True
    follower._stop.set()
    follower._thread.join()


def copied(follower):
    """Return the machines in the log of a standby that has taken over."""
    journal = Journal(follower.folder)
    events = [event for record in journal.read(0) for event in record.get("events", ())]
    journal.close()
    return [event["machine"]["name"] for event in events]


def test_what_waits_in_the_queue_at_a_takeover_is_copied_before_it_is_acknowledged(pair):
    api, follower, _ = pair
    assert api.post("/v1/events", json=machine("a")).status_code == 200
    busy, release, answers = threading.Event(), threading.Event(), []
    api.worker.call(lambda core: (busy.set(), release.wait(60)))
    busy.wait(60)  # the scheduler's thread is busy while the event and the takeover arrive
    sender = threading.Thread(target=lambda: answers.append(api.post("/v1/events", json=machine("b")).status_code))
    sender.start()
    until(lambda: api.worker.waiting)
    finish = threading.Thread(target=follower.finish)
    finish.start()
    until(lambda: api.worker.failing)
    time.sleep(0.2)  # the standby has the complete log, and would finish
    release.set()
    for thread in (finish, sender):
        thread.join(60)
    assert answers == [200] and copied(follower) == ["a", "b"]
    late = api.post("/v1/events", json=machine("c"))
    assert late.status_code == 503 and late.json()["detail"]["reason"] == "not_leading"
    assert "retry-after" not in late.headers  # clients ask the next service


def test_a_service_that_is_cut_off_acknowledges_nothing_after_the_takeover(pair):
    api, follower, cable = pair
    api.worker.replication.lease_s = 0.3
    assert api.post("/v1/events", json=machine("a")).status_code == 200
    cable.cut = True
    held = api.post("/v1/events", json=machine("b"))  # it reaches the disk, then the lease ends
    assert held.status_code == 503 and "the same key" in held.json()["detail"]["message"]
    follower.finish()
    assert copied(follower) == ["a"]
    for path, body in (("/v1/events", machine("c")), ("/v1/step", None)):
        assert api.post(path, json=body).status_code == 503
    assert api.get("/readyz").status_code == 503 and api.get("/metrics").status_code == 200
    assert api.get("/v1/decisions").json() == []
    assert api.post("/v1/replica/detach").status_code == 204
    assert api.post("/v1/events", json=machine("c")).status_code == 200


def test_decisions_are_shown_once_the_standby_has_them(pair):
    api, _, cable = pair
    api.worker.replication.lease_s = 0.3
    assert api.post("/v1/step").json()["number"] == 1
    assert api.get("/v1/placements").json()["number"] == 1
    cable.cut = True
    assert api.post("/v1/step").status_code == 503  # decided, and in the log
    assert [each["number"] for each in api.get("/v1/decisions").json()] == [1]
    assert api.get("/v1/placements").json()["number"] == 1
    cable.cut = False
    until(lambda: len(api.get("/v1/decisions").json()) == 2)
    assert api.get("/v1/placements").json()["number"] == 2


def test_only_a_complete_copy_takes_over_and_one_standby_is_attached(pair, tmp_path, start):
    api, follower, cable = pair
    with pytest.raises(Refused, match="another standby is attached"):
        Follower(tmp_path / "second", TelemetryClient(URL, transport=Wire(api)))
    api.post("/v1/events", json=machine("a"))
    cable.cut = True
    follower._stop.set()
    follower._thread.join()
    follower._journal.close()
    again = Follower(follower.folder, TelemetryClient(URL, transport=Wire(api)))  # the same standby copies again
    assert (again.folder / "replaced").is_dir()
    until(lambda: again.complete)
    again.complete = False
    with pytest.raises(NotComplete, match="force=true"):
        again.finish()
    again.finish(force=True)
    assert copied(again) == ["a"]


# Processes ----------------------------------------------------------------------------------------------------------
class Client(Writer):
    """A writer that uses the one of two services that answers."""

    def run(self, urls, stop):
        """Send until stopped; a standby and a service during a takeover answer 503."""
        while not stop.is_set():
            for url in list(urls):
                with connect(url) as http:
                    while not stop.is_set() and self.send(http) == 200:
                        pass


def take_over(way, process, standby):
    """Let a standby take over from a service that is killed, alive, or paused for longer than its lease."""
    if way == "killed":
        process.kill()
        process.wait()
    elif way == "paused":
        process.send_signal(signal.SIGSTOP)
    assert standby.post("/v1/promote").json() == {"status": "serving"}
    if way == "paused":
        process.send_signal(signal.SIGCONT)


@pytest.mark.timeout(3000)
@pytest.mark.parametrize(
    "ways",
    [
        ("killed", "alive"),
        pytest.param(("paused", "alive") * 2, marks=pytest.mark.slow, id="paused"),
        pytest.param(("killed", "alive", "killed", "alive", "paused") * 10, marks=pytest.mark.slow, id="fifty"),
    ],
)
def test_takeovers_under_load(tmp_path, ways):
    rng, writers, stop = random.Random(len(ways)), [Client(name) for name in "ab"], threading.Event()
    pace = ["--every-ms", "20", "--snapshot-every", "60"]
    folder = tmp_path / "state0"
    folder.mkdir()
    process, url = launch(folder, *pace)
    urls = [url]
    with connect(url) as http:
        machines = [{"event": "add_machine", "machine": {"name": f"m{k}", "slots": 8}} for k in range(4)]
        assert http.post("/v1/events", json={"events": machines}).status_code == 200
    threads = [threading.Thread(target=each.run, args=(urls, stop), daemon=True) for each in writers]
    for thread in threads:
        thread.start()
    for count, way in enumerate(ways, 1):
        # The folder of an earlier leader serves again: its log may go on with what was never acknowledged.
        folder = tmp_path / f"state{count % 3}"
        folder.mkdir(exist_ok=True)
        other, url = launch(folder, "--standby", urls[0], *pace)
        with connect(url) as http:
            wanted = sum(each.acknowledged for each in writers) + rng.randint(5, 60)
            until(lambda wanted=wanted: sum(each.acknowledged for each in writers) >= wanted)
            assert http.get("/v1/placements").json()["detail"]["reason"] == "standby"
            until(lambda http=http: http.get("/healthz").json()["complete"])
            take_over(way, process, http)
            before = sum(each.acknowledged for each in writers)
            urls[:] = [url]
            until(lambda before=before: sum(each.acknowledged for each in writers) > before)
            assert http.get("/readyz").status_code == 200
        process.kill()
        process.wait()
        process = other
    stop.set()
    for thread in threads:
        thread.join(120)
    with connect(urls[0]) as http:
        check(http, writers, folder)
    process.kill()
    process.wait()
    assert sum(each.acknowledged for each in writers) > 5 * len(ways)


def test_a_standby_of_nobody_is_refused(tmp_path):
    with pytest.raises(AssertionError, match="does not answer"):
        launch(tmp_path / "state", "--standby", "http://127.0.0.1:1")
