"""The live flow scheduler over HTTP: events, decisions, queries, rights, and restarts in the same state."""

import json
import os
import signal
import subprocess
import threading
import time
from dataclasses import asdict

import numpy as np
import pytest
import sqlalchemy as sa

from flowlex.instances.flow import FlowInstance
from flowlex.models.flow.goals import preset
from flowlex.systems.scheduler import flow_core
from flowlex.systems.scheduler.database import LOG, SERVICE, SNAPSHOT, SchedulerDatabase, _process, me
from flowlex.systems.scheduler.flow_core import ClusterCore
from flowlex.systems.scheduler.live.scheduler import FlowScheduler
from flowlex.systems.telemetry.tokens_and_rights import Role, digest, new_token
from tests.systems.scheduler.conftest import wait_until
from tests.systems.scheduler.processes import audit, committed


def core(api):
    return api.replica._memory.core


@pytest.fixture
def api(start):
    return start()


def send(api, *events, status=200, **more):
    answer = api.post("/v1/events", json={"events": list(events)}, **more)
    assert answer.status_code == status, answer.text
    return answer.json()


def machine(name, slots=1):
    return {"event": "add_machine", "machine": {"name": name, "slots": slots}}


def job(name, *tasks, **more):
    return {"event": "submit", "job": {"name": name, "tasks": [{"name": task} for task in tasks], **more}}


def test_events_decisions_and_questions(api):
    assert send(api, machine("m0"), job("j", "a", "b")) == {"taken": 2}
    decision = api.post("/v1/step").json()
    assert decision["number"] == 1 and decision["running"] == decision["waiting_count"] == 1
    ((runs, at),) = decision["placed"]
    waits = ({"a", "b"} - {runs}).pop()
    assert at == "m0" and decision["waiting"][0][0] == waits
    assert api.get("/v1/task", params={"name": runs}).json() == {"task": runs, "job": "j", "machine": "m0"}
    assert api.get("/v1/task", params={"name": waits}).json()["reason"]
    why = api.get("/v1/explanation", params={"task": waits}).json()
    assert why["rule"] == "worth" and why["blocker"] == runs
    assert api.get("/v1/placements").json() == {"number": 1, "places": {runs: "m0"}}
    send(api, {"event": "finish", "task": runs})
    assert api.post("/v1/step").json()["placed"] == [[waits, "m0"]]
    assert [each["number"] for each in api.get("/v1/decisions", params={"after": 1}).json()] == [2]
    assert api.get("/v1/decisions", params={"after": 2}).json() == []
    said = api.get("/metrics").text
    assert 'flowlex_scheduler_state{what="tasks_running"} 1.0' in said
    assert 'flowlex_scheduler_records_total{kind="event"} 3.0' in said
    assert "/v1/explanation" in api.get("/docs").text


@pytest.mark.parametrize(
    ("event", "status", "said"),
    [
        ({"event": "finish", "task": "zz"}, 409, "events[1]: no task is named 'zz'"),
        ({"event": "step"}, 422, "events[1]: 'step' is not sent"),
        ({"event": "finish", "task": "a", "at_s": 3}, 422, "events[1]: leave at_s out"),
        ({"event": "nothing"}, 422, "does not match any of the expected tags"),
        ({"event": "set_slots", "machine": "m0", "slots": 2.5}, 422, "valid integer"),
    ],
)
def test_what_is_refused_says_why_and_how_much_was_taken(api, event, status, said):
    answer = send(api, machine("m0"), event, status=status)
    assert said in str(answer)
    assert core(api).pending == (1 if status == 409 else 0)
    assert api.get("/v1/task", params={"name": "zz"}).status_code == 404
    assert api.get("/v1/explanation", params={"task": "zz"}).status_code == 404
    assert api.get("/v1/task", params={"nme": "zz"}).status_code == 422


def live(api, rng, names, count):
    """Send random events and a step; return the acknowledged ones."""
    for _ in range(5):
        if names and rng.random() < 0.4:
            name = names.pop(int(rng.integers(len(names))))
            send(api, {"event": "cancel", "task": name})
        else:
            count += 1
            names.append(f"t{count}")
            send(api, job(f"j{count}", f"t{count}"))
    answer = api.post("/v1/step")
    assert answer.status_code == 200, answer.text
    return answer.json(), count


def test_rules_and_capacities_over_http(start, monkeypatch):
    api = start(lease_s=60.0)
    gang = {"name": "g", "jobs": ["g"], "within": "rack"}
    send(api, machine("m0", 2), machine("m1", 2), job("f", "f0"))
    send(api, {"event": "set_goals", "goals": "borg"})
    send(api, job("g", "g0", "g1", "g2", "g3", priority=1) | {"gangs": [gang]})
    decision = api.post("/v1/step").json()
    assert decision["whole"] and decision["running"] == 1 and len(decision["waiting"]) == 4
    answer = api.get("/v1/explanation", params={"task": "g1"})
    assert answer.status_code == 200, answer.text
    why = answer.json()
    assert why["rule"] == "gang" and "needs 4 slots at once" in why["reason"] and why["price"] is None
    assert why["unpriced"] == "" and why["stops"] == ["f0"]  # no cost replaces a more important task
    assert api.get("/v1/task", params={"name": "g1"}).json()["reason"] == why["reason"]
    refused = send(api, {"event": "tie", "affinities": [{"name": "a", "tasks": ["g0"]}]}, status=409)
    assert "task 'g0' is in gang 'g' and affinity 'a'" in str(refused)
    send(api, {"event": "relabel", "machine": "m1", "rack": "r1"})
    send(api, {"event": "set_slots", "machine": "m1", "slots": 4})
    second = api.post("/v1/step").json()
    assert second["running"] == 5
    send(api, {"event": "set_slots", "machine": "m1", "slots": 3})
    third = api.post("/v1/step").json()
    assert sorted(task for task, *_ in third["stopped"]) == ["g0", "g1", "g2", "g3"]
    api.__exit__()
    monkeypatch.setattr(
        "flowlex.systems.scheduler.live.decision.solve_fully", None
    )  # decisions of the log are not solved
    again = start()
    assert again.get("/v1/placements").json() == {"number": 3, "places": {"f0": "m0"}}
    scheduler = core(again).scheduler
    assert scheduler.state.goals == preset("borg") and list(scheduler.state.side_constraints.rules) == [("gang", "g")]
    assert "needs 4 slots" in again.get("/v1/task", params={"name": "g1"}).json()["reason"]
    send(again, {"event": "untie", "kind": "gang", "name": "g"})
    assert again.post("/v1/step").json()["running"] == 5


def test_decisions_come_by_themselves_after_events(start):
    api = start(every_s=0.01)
    send(api, machine("m0"), job("j", "a"))
    found = api.get("/v1/decisions", params={"wait_s": 30}).json()
    assert found and found[-1]["running"] == 1
    time.sleep(0.05)
    assert api.replica.decisions()[-1]["number"] == found[-1]["number"]  # nothing came, nothing is decided


def test_time_alone_decides_where_it_is_asked_to(start):
    api = start(idle_s=0.01)
    send(api, machine("m0"))
    numbers = [each["number"] for each in api.get("/v1/decisions", params={"after": 3, "wait_s": 30}).json()]
    assert numbers and numbers[0] == 4  # one event, and decision after decision


def test_old_decisions_are_told_to_be_gone(start, monkeypatch):
    monkeypatch.setattr("flowlex.systems.scheduler.snapshot_and_log._MOST_DECISIONS", 2)
    api = start()
    send(api, machine("m0"))
    for _ in range(4):
        api.post("/v1/step")
    answer = api.get("/v1/decisions", params={"after": 1})
    assert answer.status_code == 409 and "decisions from 3 on are kept" in answer.text
    assert len(api.get("/v1/decisions", params={"after": 2}).json()) == 2


def test_a_database_that_refuses_acknowledges_nothing_and_keeps_nothing(api, monkeypatch):
    send(api, machine("m0"), job("j", "a"))

    def full(*_):
        raise sa.exc.OperationalError("INSERT", {}, OSError("database or disk is full"))

    with monkeypatch.context() as patch:
        patch.setattr(api.replica.database, "append", full)
        answer = api.post("/v1/events", json={"events": [job("k", "b")]})
        assert answer.status_code == 503 and "disk is full" in answer.text
    assert api.get("/v1/task", params={"name": "b"}).status_code == 404
    assert send(api, job("k", "b")) == {"taken": 1}


def test_a_leader_whose_database_is_silent_sends_its_clients_away(api, monkeypatch):
    monkeypatch.setattr("flowlex.systems.scheduler.rest_app._WAIT_S", 600.0)
    answers = threading.Event()

    def silent(*_):
        answers.wait(600)
        raise sa.exc.OperationalError("INSERT", {}, OSError("server closed the connection"))

    with monkeypatch.context() as patch:
        for name in ("append", "renew"):
            patch.setattr(api.replica.database, name, silent)
        said = send(api, machine("m0"), headers={"idempotency-key": "k"}, status=503)["detail"]  # it is silent still
        answers.set()
    assert said["reason"] == "slow" and "Idempotency-Key" in said["message"]
    wait_until(lambda: api.post("/v1/events", json={"events": [machine("m0")]}).status_code == 200)


def test_a_follower_answers_questions_while_its_database_is_silent(start, monkeypatch):
    api, follower = start(lease_s=1e6), start(leads=False, lease_s=1e6)
    send(api, machine("m0"), job("j", "a"))
    api.post("/v1/step")
    wait_until(lambda: follower.replica._memory.number == 2 and follower.replica._spare is not None)
    asked = []

    def silent(*_):
        asked.append(time.monotonic())
        time.sleep(1.0)
        raise sa.exc.OperationalError("SELECT", {}, OSError("server closed the connection"))

    with monkeypatch.context() as patch:
        for name in ("records", "lease"):
            patch.setattr(follower.replica.database, name, silent)
        patch.setattr(follower.replica.database.database, "ping", silent)
        for without_spare in (False, True):
            begun = len(asked)
            if without_spare:
                follower.replica._spare = None
            wait_until(lambda begun=begun: len(asked) > begun + 1)
            for _ in range(5):
                began = time.monotonic()
                assert follower.get("/v1/placements").json()["places"] == {"a": "m0"}
                assert time.monotonic() - began < 0.5
    send(api, job("k", "b"))
    wait_until(lambda: follower.replica._memory.number == 3)


def test_a_defect_in_a_step_leaves_the_state_of_the_log(api, monkeypatch):
    send(api, machine("m0"), job("j", "a"))
    monkeypatch.setattr(ClusterCore, "decide", lambda self, at_s: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        api.post("/v1/step")
    monkeypatch.undo()
    assert api.post("/v1/step").json()["placed"] == [["a", "m0"]]


def test_followers_have_the_state_of_the_leader_after_every_decision(start):
    """Which of two equally good schedules was taken is read from the log, not decided again."""
    rng, names, count = np.random.default_rng(1), [], 0
    api = start(goals="borg", lease_s=60.0)
    follower = start(goals="borg", leads=False, lease_s=1e6)
    late = None
    send(api, *(machine(f"m{k}", 2) for k in range(5)))
    for turn in range(25):
        decision, count = live(api, rng, names, count)
        if turn == 12:
            api.replica.database.keep_snapshot(*api.replica._memory.saved())
            late = start(goals="borg", leads=False, lease_s=1e6)
        for each in filter(None, (follower, late)):
            wait_until(lambda each=each: each.replica._memory.number == api.replica._memory.number)
            assert each.get("/v1/placements").json() == api.get("/v1/placements").json()
            assert each.get("/v1/decisions").json() == api.get("/v1/decisions").json()
    refused = follower.post("/v1/step")
    assert refused.status_code == 503 and refused.json()["detail"]["reason"] == "not_leading"
    assert "retry-after" not in refused.headers and follower.get("/readyz").status_code == 503
    assert decision["number"] == 25


def test_a_follower_takes_over_and_the_old_leader_can_write_nothing(start):
    api, follower = start(), start(leads=False)
    send(api, machine("m0"), job("j", "a"), headers={"idempotency-key": "k"})
    database = api.replica.database
    renew, append = database.renew, database.append
    database.renew = database.append = lambda *_: time.sleep(0.01)  # cut off: what it writes does not arrive
    wait_until(lambda: follower.replica.term == 2)
    send(follower, machine("m1"))
    database.renew, database.append = renew, append
    late = api.post("/v1/events", json={"events": [machine("m2")]})
    assert late.status_code == 503 and late.json()["detail"]["reason"] == "not_leading"
    wait_until(lambda: api.replica._memory.number == follower.replica._memory.number)
    assert set(core(api).scheduler.state.cluster.machines) == {"m0", "m1"}
    assert send(follower, machine("m0"), job("j", "a"), headers={"idempotency-key": "k"}) == {"taken": 2}
    with follower.store.database.read() as connection:
        assert set(connection.scalars(sa.select(LOG.c.term))) == {1, 2}


def test_a_takeover_that_waits_for_a_lock_is_tried_again_at_once(start):
    """The database frees the lock of a leader that was cut off within a commit after some seconds."""
    api, follower = start(lease_s=4.0), start(leads=False, lease_s=4.0)
    database, tries = follower.replica.database, []
    real = database.take_over

    def fails_once(*given):
        tries.append(time.monotonic())
        if len(tries) == 1:
            raise sa.exc.OperationalError("INSERT", {}, Exception("canceling statement due to lock timeout"))
        return real(*given)

    database.take_over = fails_once
    api.replica.database.renew = lambda *_: time.sleep(0.01)  # cut off: what it writes does not arrive
    wait_until(lambda: follower.replica.term == 2)
    assert tries[1] - tries[0] < 1.5  # half a lease later before


def test_a_process_whose_first_look_at_the_lease_fails_leads_later(start, monkeypatch):
    real, looks = SchedulerDatabase.lease, []

    def fails_once(self):
        looks.append(self)
        if len(looks) == 1:
            raise sa.exc.OperationalError("SELECT", {}, Exception("server closed the connection"))
        return real(self)

    monkeypatch.setattr(SchedulerDatabase, "lease", fails_once)
    assert start().replica.term == 1 and len(looks) > 1


@pytest.mark.parametrize("patience_s", [0.0, 0.3])
def test_a_follower_to_which_clients_come_replaces_a_leader_that_nobody_reaches(start, monkeypatch, patience_s):
    def fails(*_):
        time.sleep(patience_s)  # the leader renews its lease meanwhile
        raise TimeoutError

    monkeypatch.setattr("flowlex.systems.scheduler.replica.socket.create_connection", fails)
    api, follower = start(url="http://127.0.0.1:9"), start(leads=False)  # nothing listens there
    time.sleep(1.0)
    assert follower.replica.term is None  # nobody misses the leader
    wait_until(lambda: follower.post("/v1/step").status_code == 200)
    late = api.post("/v1/events", json={"events": [machine("m2")]})
    assert late.status_code == 503 and late.json()["detail"]["reason"] == "not_leading"
    send(follower, machine("m2"))


def test_only_a_stopped_leader_is_ended(start):
    """One that waits for the lock of a SQLite file is alive, however silent; one without it may wake up and follow."""
    api, leader = start(), subprocess.Popen(["sleep", "60"])
    database = api.replica.database
    holder = me("") | {"pid": leader.pid, "started": _process(leader.pid)[1]}
    assert not database.end_stopped(holder) and leader.poll() is None
    os.kill(leader.pid, signal.SIGSTOP)
    wait_until(lambda: _process(leader.pid)[0] == "T")
    assert not database.end_stopped(holder)
    with api.store.database.write():
        assert not database.end_stopped(holder | {"started": "1"})  # another process has its number
        assert database.end_stopped(holder)
    assert leader.wait(10) == -signal.SIGKILL


def test_a_follower_starts_while_another_process_holds_the_lock(start, url):
    """A leader that was stopped within a commit holds the lock of a SQLite file until a follower ends it."""
    api = start()
    send(api, machine("m0"))
    with api.store.database.write():
        began = time.monotonic()
        follower = start(leads=False)
        assert follower.get("/v1/placements").status_code == 200 and time.monotonic() - began < 2
        assert follower.replica._memory.number == 1


def test_keys_belong_to_a_token_and_to_one_body(start):
    api = start(auth=True)
    admin, agent = (new_token(api.store, Role.ADMIN), new_token(api.store, Role.AGENT, node="m0"))
    as_admin, as_agent = ({"authorization": f"Bearer {token}", "idempotency-key": "k"} for token in (admin, agent))
    wait_until(lambda: api.get("/v1/placements", headers=as_admin).status_code == 200)
    assert send(api, machine("m0"), headers=as_agent) == {"taken": 1}
    assert send(api, job("j", "a"), headers=as_admin) == {"taken": 1}  # the agent's key does not hide it
    assert send(api, job("j", "a"), headers=as_admin) == {"taken": 1}
    said = send(api, job("j", "b"), headers=as_admin, status=422)
    assert "named another request before" in str(said)
    assert api.post("/v1/step", headers=as_admin).status_code == 422
    assert api.get("/v1/task", params={"name": "a"}, headers=as_admin).status_code == 200


def test_a_revoked_token_stays_revoked_after_a_takeover(start):
    api, follower = start(auth=True), start(auth=True, leads=False)
    token, made = new_token(api.store, Role.ADMIN), new_token(api.store, Role.ADMIN)
    ask = {"headers": {"authorization": f"Bearer {token}"}}
    wait_until(lambda: api.get("/v1/placements", **ask).status_code == 200)
    api.store.registry.remove_token(digest(token))
    api.__exit__()
    wait_until(lambda: follower.replica.term == 2)
    wait_until(lambda: follower.get("/v1/placements", **ask).status_code == 401)
    later = {"headers": {"authorization": f"Bearer {made}"}}
    wait_until(lambda: follower.get("/v1/placements", **later).status_code == 200)


def test_bodies_of_strangers_are_not_read(start):
    api = start(auth=True)
    answer = api.post("/v1/events", content=b"{" * 1_000_000)
    assert answer.status_code == 401 and answer.headers["connection"] == "close"


def test_a_state_of_a_newer_version_is_refused_by_name(start, url):
    start().store.database.change(sa.update(SERVICE).values(format=99))
    with pytest.raises(ValueError, match="has format 99, this version reads 1; install a newer one"):
        start(leads=False)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://127.0.0.1:8760"}, 200),
        ({"origin": "http://localhost"}, 200),
        ({"origin": "https://example.org"}, 403),
        ({"origin": "http://localhost.example.org"}, 403),
        ({"origin": "null"}, 403),
        ({"host": "example.org"}, 400),
    ],
)
def test_without_tokens_pages_of_other_origins_are_refused(api, headers, status):
    assert api.post("/v1/step", headers=headers).status_code == status


def test_a_request_that_comes_again_is_answered_as_before(start):
    api = start()
    for key, event in (("a", machine("m0")), ("b", job("j", "t")), ("c", job("k", "t"))):
        for _ in range(3):
            refused = key == "c"  # the task is here already
            answer = send(api, event, headers={"idempotency-key": key}, status=409 if refused else 200)
            assert answer["detail"]["taken"] == 0 if refused else answer == {"taken": 1}
    api.post("/v1/step")
    api.replica.database.keep_snapshot(*api.replica._memory.saved())
    api.__exit__()
    again = start()
    assert send(again, job("j", "t"), headers={"idempotency-key": "b"}) == {"taken": 1}
    assert send(again, job("j", "t"), headers={"idempotency-key": "d"}, status=409)


@pytest.mark.parametrize("every_s", [None, 1e6])
def test_events_between_two_decisions_are_bounded(start, every_s):
    api = start(max_events=3, every_s=every_s)
    send(api, machine("m0"), machine("m1"))
    if every_s is None:  # decisions are made on request only
        said = send(api, job("j", "a"), job("k", "b"), status=503)["detail"]
        assert said["reason"] == "busy" and "2 events wait for a decision" in said["message"]
    else:
        send(api, job("j", "a"), job("k", "b"))
        assert api.get("/v1/placements").json()["number"] == 1
    assert core(api).pending == 2


def test_prices_under_rules_are_found_while_decisions_are_made(api, monkeypatch):
    gang = {"name": "g", "jobs": ["g"]}
    send(api, machine("m0", 2), job("g", "g0", "g1") | {"gangs": [gang]}, job("k", "a"))
    assert api.post("/v1/step").json()["running"] == 2
    waits = next(name for name in ("a", "g0") if name not in api.get("/v1/placements").json()["places"])
    scheduler = core(api).scheduler
    expected = scheduler.explain(waits)
    found, ask = [], lambda: api.get("/v1/explanation", params={"task": waits}).json()
    real, entered, go = flow_core.priced, threading.Event(), threading.Event()

    def slow(why, frozen):
        entered.set()
        assert go.wait(60)
        return real(why, frozen)

    monkeypatch.setattr(flow_core, "priced", slow)
    first = threading.Thread(target=lambda: found.append(ask()))
    first.start()
    assert entered.wait(60)
    second = ask()  # at once, while the first one is being found
    assert second["price"] is None and "one at a time; ask again" in second["unpriced"]
    send(api, machine("m1"))
    assert api.post("/v1/step").json()["number"] == 2  # decisions do not wait, and the price ignores their changes
    go.set()
    first.join()
    assert found == [json.loads(json.dumps(asdict(expected)))] and expected.unpriced == "" and expected.machine == "m0"


def test_prices_under_rules_have_bounds(monkeypatch):
    core = ClusterCore(FlowScheduler(FlowInstance(name="empty", machines=())))
    for event in (machine("m0"), job("g", "g0", "g1") | {"gangs": [{"name": "g", "jobs": ["g"]}]}, job("k", "a")):
        core.take(event, 0.0)
    core.decide(0.0)
    asked = []
    monkeypatch.setattr(flow_core, "priced", lambda why, frozen: asked.append(frozen) or why)
    assert core.explain("g0").find().task == "g0" and asked[0].options["solver"] == {"time_limit_s": 10.0}
    monkeypatch.setattr(flow_core, "_MOST_TASKS", 2)
    assert "prices of at most 2 tasks, here 3; ask" in core.explain("g0").unpriced


def test_an_agent_speaks_for_its_machine_only(start):
    api = start(auth=True)
    made = {role: new_token(api.store, role) for role in (Role.ADMIN, Role.READER)}
    agent = new_token(api.store, Role.AGENT, node="m0")
    asked = {"authorization": f"Bearer {made[Role.READER]}"}
    wait_until(lambda: api.get("/v1/placements", headers=asked).status_code == 200)  # a new token is known in a second
    as_agent, as_admin = ({"headers": {"authorization": f"Bearer {t}"}} for t in (agent, made[Role.ADMIN]))
    assert send(api, machine("m0"), status=401)
    assert send(api, machine("m0"), **as_agent) == {"taken": 1}
    assert send(api, machine("m1"), status=403, **as_agent)
    assert send(api, job("j", "a", "b"), status=403, **as_agent)
    assert send(api, machine("m1"), job("j", "a", "b"), **as_admin) == {"taken": 2}
    places = {task: at for task, at in api.post("/v1/step", **as_admin).json()["placed"]}
    mine, other = sorted(places, key=lambda task: places[task])
    assert send(api, {"event": "finish", "task": other}, status=403, **as_agent)
    assert send(api, {"event": "finish", "task": mine}, **as_agent) == {"taken": 1}
    reader = {"headers": {"authorization": f"Bearer {made[Role.READER]}"}}
    api.post("/v1/step", **as_admin)
    assert api.get("/v1/placements", **reader).json()["places"] == {other: "m1"}
    assert api.post("/v1/step", **reader).status_code == 403
    assert api.get("/healthz").status_code == api.get("/readyz").status_code == 200


def test_a_state_that_cannot_be_read_costs_nothing(start):
    api = start()
    send(api, machine("m0"), machine("m1"), job("j", "a", "b"))
    places = {task: at for task, at in api.post("/v1/step").json()["placed"]}
    api.replica.database.keep_snapshot(*api.replica._memory.saved())
    send(api, job("k", "c"))
    api.post("/v1/step")
    api.replica.database.keep_snapshot(*api.replica._memory.saved())
    api.store.database.change(
        sa.update(SNAPSHOT).where(SNAPSHOT.c.number == api.replica._memory.number).values(state=b"damaged")
    )
    api.__exit__()
    again = start()
    assert again.get("/v1/placements").json()["places"] == places
    assert again.get("/v1/task", params={"name": "c"}).json()["reason"]


@pytest.mark.parametrize("snapshot", [False, True])
def test_time_goes_on_after_the_last_event_though_the_wall_clock_went_back(start, url, monkeypatch, snapshot):
    api = start()
    send(api, machine("m0"))
    api.post("/v1/step")
    time.sleep(1.0)
    send(api, job("j", "a"))
    if snapshot:
        api.replica.database.keep_snapshot(*api.replica._memory.saved())
    api.__exit__()
    wall = time.time
    monkeypatch.setattr("time.time", lambda: wall() - 3600)
    again = start()
    send(again, job("k", "b"))
    again.post("/v1/step")
    assert audit(committed(url)) == ({"j", "k"}, [])


@pytest.mark.rare
def test_snapshots_are_stored_by_another_process_and_drop_the_log(start):
    api = start(snapshot_every=5)
    for k in range(12):
        send(api, machine(f"m{k}"))
        if k in (5, 11):
            wait_until(lambda k=k: api.replica.database.snapshots()[0][0] >= k, 120)
    with api.store.database.read() as connection:
        assert connection.scalar(sa.select(sa.func.min(LOG.c.number))) > 5
    api.__exit__()
    assert len(core(start()).scheduler.state.cluster.machines) == 12
