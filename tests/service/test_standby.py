"""A standby takes over from a service under load, alive or killed: nothing is lost or doubled."""

from __future__ import annotations

import random
import threading
import time

import pytest

from flowlex.service.replication import Replication
from tests.service.test_killed import Writer, check, connect, launch


def test_answers_wait_for_a_standby_that_follows():
    replication, sent = Replication(lease_s=1e6), []
    replication.answer((0, 10), lambda: sent.append(1))
    assert sent == [1] and not replication.attached  # nobody follows
    replication.confirm((0, 10), 0.0)
    for n, position in ((2, (0, 20)), (3, (1, 5))):
        replication.answer(position, lambda n=n: sent.append(n))
    assert sent == [1] and replication.waiting
    replication.confirm((0, 20), 0.0)
    assert sent == [1, 2]
    replication.expire()  # its lease holds
    assert sent == [1, 2]
    replication.detach()
    assert sent == [1, 2, 3] and not replication.waiting


class Client(Writer):
    """A writer that asks whichever of two services answers."""

    def run(self, urls, stop):
        """Send until it is told to stop; 503 is what a standby and a service that hands over say."""
        while not stop.is_set():
            for url in list(urls):
                with connect(url) as http:
                    while not stop.is_set() and self.send(http) == 200:
                        pass


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("takeovers", [2, pytest.param(50, marks=pytest.mark.slow)])
def test_takeovers_under_load(tmp_path, takeovers):
    rng, writers, stop = random.Random(takeovers), [Client(name) for name in "ab"], threading.Event()
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
    for count in range(1, takeovers + 1):
        folder = tmp_path / f"state{count}"
        folder.mkdir()
        other, url = launch(folder, "--standby", urls[0], *pace)
        with connect(url) as http:
            until, wanted = time.monotonic() + 120, sum(each.acknowledged for each in writers) + rng.randint(5, 60)
            while sum(each.acknowledged for each in writers) < wanted:
                assert time.monotonic() < until
                time.sleep(0.005)
            assert http.get("/v1/placements").json()["detail"]["reason"] == "standby"
            while http.get("/healthz").json()["silent_s"] > 1.0:
                assert time.monotonic() < until
            if count % 2:  # the service dies; else it hands over
                process.kill()
                process.wait()
            assert http.post("/v1/promote").json() == {"status": "serving"}
            urls[:] = [url]
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
    assert sum(each.acknowledged for each in writers) > 5 * takeovers


def test_a_standby_of_nobody_is_refused(tmp_path):
    with pytest.raises(AssertionError, match="does not answer"):
        launch(tmp_path / "state", "--standby", "http://127.0.0.1:1")
