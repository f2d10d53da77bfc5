"""The store behaves the same on SQLite and on a real PostgreSQL server."""

import json
import threading
import time

import pytest

from flowlex.systems.telemetry.registrations import AgentRow, DuplicateRegistration
from flowlex.systems.telemetry.request_documents import Registration, Sample
from flowlex.systems.telemetry.store import Store
from flowlex.systems.telemetry.tokens_and_rights import Role, TokenBook, new_token
from tests.systems.telemetry.stored import count_samples, forget_before, sequence_numbers


def sample(time: float, value: object = 1, **more: object) -> Sample:
    return Sample.model_validate({"name": "a", "time": time, "value": value, **more})


def test_a_numbered_sample_is_stored_once(store: Store) -> None:
    batch = [sample(t, seq=t) for t in (1, 2, 3)]
    assert store.writer.write([("n", "journal", batch)], now=10.0) == [3]
    again = [*batch[1:], sample(4, seq=4)]
    assert store.writer.write([("n", "journal", again)], now=10.0) == [1]
    assert sequence_numbers(store, "journal") == {1, 2, 3, 4}
    assert store.writer.write([("n", "another", batch)], now=10.0) == [3]
    assert store.writer.write([("n", None, [sample(1), sample(1)])], now=10.0) == [2]


def test_the_last_value_is_the_newest_good_one(store: Store) -> None:
    store.writer.write([("n", None, [sample(5, "new"), sample(3, "old")])], now=10.0)
    store.writer.write([("n", None, [sample(4, "late")])], now=10.0)
    store.writer.write([("n", None, [sample(6, None, exit_code=2, error="broken")])], now=10.0)
    row = store.reader.latest_one("a", "n")
    assert row is not None and row.value is not None
    assert (json.loads(row.value), row.time) == ("new", 5)
    assert (row.last_run, row.last_exit_code, row.last_error) == (6, 2, "broken")
    store.writer.write([("n", None, [sample(7, "well")])], now=10.0)
    row = store.reader.latest_one("a", "n")
    assert row is not None
    assert (row.value, row.last_exit_code, row.last_error) == ('"well"', 0, "")


def test_values_come_back_as_they_went(store: Store) -> None:
    values = [0, -1.5, 1e300, "text", 'quo"te', "\x00", "ü", True, None, [1, {"a": []}], {"k": 2}]
    store.writer.write([("n", None, [sample(i, value) for i, value in enumerate(values)])], now=100.0)
    rows, _ = store.reader.history(["a"], ["n"], 0, 100, 100)
    assert [json.loads(row.value) for row in rows] == values


def test_history_is_a_window_newest_kept_oldest_first(store: Store) -> None:
    store.writer.write([("n", None, [sample(t, t) for t in range(10)]), ("m", None, [sample(5, "m")])], now=100.0)
    rows, truncated = store.reader.history(["a"], ["n"], 2, 7, 100)
    assert [row.time for row in rows] == [2, 3, 4, 5, 6, 7] and not truncated
    rows, truncated = store.reader.history(["a"], [], 2, 7, 3)
    assert [row.time for row in rows] == [5, 6, 7] and truncated
    assert store.reader.history(["b"], [], 0, 100, 3) == ([], False)


def test_retention_drops_history_and_keeps_last_values(store: Store) -> None:
    for t in range(10):
        store.writer.write([("n", None, [sample(t, t)])], now=float(t))
    assert forget_before(store, 8) == 8
    assert count_samples(store) == 2
    assert forget_before(store, 1000) == 2
    row = store.reader.latest_one("a", "n")
    assert row is not None and row.value == "9"


def test_registrations(store: Store) -> None:
    first = Registration(name="a", program="cpu_free", labels={"rack": "1"}, replicas=2)
    store.registry.add_registration(first)
    with pytest.raises(DuplicateRegistration):
        store.registry.add_registration(first)
    changed = first.model_copy(update={"interval_s": 1.0})
    assert store.registry.update_registration(changed)
    assert store.registry.registration("a") == changed
    assert store.registry.registrations() == [changed]
    assert store.registry.remove_registration("a") and not store.registry.remove_registration("a")
    assert not store.registry.update_registration(first) and store.registry.registration("a") is None


def test_agents(store: Store) -> None:
    store.registry.put_agent("n", {"gpu": "yes"}, ["cpu_free"], 5.0)
    store.registry.touch_agents([AgentRow("n", {}, [], ["a"], 3, 6.0), AgentRow("m", {}, [], [], 0, 6.0)])
    (agent,) = store.registry.agents()
    assert (agent.labels, agent.running, agent.buffered, agent.last_seen) == ({"gpu": "yes"}, ["a"], 3, 6.0)
    store.registry.put_agent("n", {}, [], 7.0)
    assert store.registry.agents()[0].labels == {}
    assert store.registry.remove_agent("n") and not store.registry.remove_agent("n")


def test_tokens_are_stored_as_digests(store: Store) -> None:
    secret = new_token(store, Role.AGENT, node="n")
    assert all(secret not in str(row) for row in store.registry.tokens())
    book = TokenBook(store, cache_s=0)
    who = book.identify(secret)
    assert who is not None and who.may_act_for("n") and not who.may_act_for("m")
    assert book.identify(secret + "x") is None
    assert store.registry.remove_token(store.registry.tokens()[0].digest[:12]) == 1
    assert book.identify(secret) is None
    with pytest.raises(ValueError, match="only an agent's token is bound to a node"):
        new_token(store, Role.READER, node="n")


def test_writers_from_many_threads_lose_nothing(store: Store) -> None:
    failures: list[Exception] = []

    def write(thread: int) -> None:
        try:
            for i in range(10):
                batch = [sample(time.time(), i, name=name) for name in "abcde"]
                store.writer.write([(f"n{(thread + i) % 3}", None, batch)], time.time())
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert count_samples(store) == 4 * 10 * 5


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nonsense", "not a database URL"),
        ("mysql://u@h/d", "mysql is not supported"),
        ("sqlite://", "needs a file"),
    ],
)
def test_wrong_database_urls(url: str, message: str) -> None:
    with pytest.raises((ValueError, ModuleNotFoundError), match=message):
        Store(url)
