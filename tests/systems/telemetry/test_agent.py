"""The agent with a server that starts, stops and refuses, and its journal of collected samples."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flowlex.systems.telemetry.agent_buffer import Journal
from flowlex.systems.telemetry.http_client import Backoff, Refused, TelemetryClient, Unreachable
from flowlex.systems.telemetry.node_agent import Agent, AgentSettings, JournalInUse
from flowlex.systems.telemetry.request_documents import AgentHello, Registration, Sample
from flowlex.systems.telemetry.store import Store
from tests.systems.telemetry.stored import count_samples, sequence_numbers

Eventually = Callable[..., None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "commands"
    folder.mkdir()
    for name, script in {"one": "echo 1", "bad": "exit 4", "sum": "cat", "hang": "sleep 60"}.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture
def agents(client: TelemetryClient, folder: Path, tmp_path: Path) -> Iterator[Callable[..., Agent]]:
    running: list[tuple[Agent, threading.Thread]] = []

    def start(node: str = "w1") -> Agent:
        settings = AgentSettings(folders=[folder], heartbeat_s=0.1, most_backoff_s=0.3)
        agent = Agent(node, client, tmp_path / f"{node}.db", settings)
        thread = threading.Thread(target=agent.run, daemon=True)
        thread.start()
        running.append((agent, thread))
        return agent

    yield start
    for agent, thread in running:
        agent.stop.set()
        thread.join(10)


def register(client: TelemetryClient, name: str, program: str, **more: Any) -> Registration:
    fields = {"interval_s": 0.1, "timeout_s": 1.0, **more}
    return client.add(Registration(name=name, program=program, **fields))


def values(client: TelemetryClient, name: str) -> list[Any]:
    return [sample.value for sample in client.history([name]).samples]


def stands_still(client: TelemetryClient, name: str) -> bool:
    """Whether no sample arrives within a second, which is ten intervals of these tests."""
    before = len(values(client, name))
    time.sleep(1)
    return len(values(client, name)) == before


def test_slots_start_change_and_stop(
    client: TelemetryClient, agents: Callable[..., Agent], eventually: Eventually
) -> None:
    register(client, "a", "one", unit="things")
    agents()
    eventually(lambda: len(values(client, "a")) >= 3)
    reading = client.last("a", "w1", max_age=5)
    assert (reading.value, reading.unit, reading.node, reading.last_exit_code) == (1, "things", "w1", 0)
    register(client, "b", "bad")
    eventually(lambda: any(s.exit_code == 4 for s in client.history(["b"]).samples))
    client.update(Registration(name="a", program="one", interval_s=3600))
    eventually(lambda: stands_still(client, "a"))
    client.remove("b")
    eventually(lambda: client.agents()[0].running == ["a"])


def test_a_hanging_command_delays_no_other(
    client: TelemetryClient, agents: Callable[..., Agent], eventually: Eventually
) -> None:
    register(client, "slow", "hang", timeout_s=60.0)
    register(client, "a", "one")
    agents()
    eventually(lambda: len(values(client, "a")) >= 5)
    started = time.monotonic()
    client.read(["a", "slow"], ["w1"])
    assert time.monotonic() - started < 50  # of 60 that it takes: a read never waits for a collection


def test_processors_turn_stored_data_into_better_data(
    client: TelemetryClient, agents: Callable[..., Agent], eventually: Eventually
) -> None:
    register(client, "a", "one")
    register(client, "p", "sum", kind="processor", inputs=["a"], window_s=60.0, interval_s=0.3)
    agents()
    eventually(lambda: any(v["last"].get("a", {}).get("value") == 1 for v in values(client, "p")))


def test_nothing_collected_is_lost_while_the_server_is_away(
    client: TelemetryClient, line: Any, agents: Callable[..., Agent], eventually: Eventually, sqlite_store: Store
) -> None:
    register(client, "a", "one")
    agent = agents()
    eventually(lambda: len(values(client, "a")) >= 2)
    line.cut = True
    eventually(lambda: len(agent.journal) >= 5)  # these are not acknowledged
    before = count_samples(sqlite_store)  # samples in flight may have arrived
    line.cut = False
    eventually(lambda: count_samples(sqlite_store) >= before + 4)
    numbers = sequence_numbers(sqlite_store, agent.journal.identity)
    assert numbers == set(range(1, max(numbers) + 1))


def test_a_lost_answer_doubles_nothing(
    client: TelemetryClient, line: Any, agents: Callable[..., Agent], eventually: Eventually, sqlite_store: Store
) -> None:
    line.lose_answers = 3
    register(client, "a", "one")
    agent = agents()
    eventually(lambda: line.lose_answers == 0 and count_samples(sqlite_store) >= 10)
    samples = client.history(["a"]).samples
    assert len({s.time for s in samples}) == len(samples)
    assert count_samples(sqlite_store) == len(sequence_numbers(sqlite_store, agent.journal.identity))


def test_a_forgotten_node_introduces_itself_again(
    client: TelemetryClient, agents: Callable[..., Agent], eventually: Eventually, sqlite_store: Store
) -> None:
    agents()
    eventually(lambda: len(client.agents()) == 1)
    sqlite_store.registry.remove_agent("w1")
    eventually(lambda: len(client.agents()) == 1)


def test_a_restarted_agent_collects_though_the_server_is_away(
    client: TelemetryClient, line: Any, agents: Callable[..., Agent], eventually: Eventually, tmp_path: Path
) -> None:
    register(client, "a", "one")
    first = agents()
    eventually(lambda: len(values(client, "a")) >= 1)
    with pytest.raises(JournalInUse, match="another agent uses"):
        agents()
    first.stop.set()
    line.cut = True
    again: list[Agent] = []

    def restarted() -> bool:
        try:
            again.append(agents())
        except JournalInUse:
            return False
        return True

    eventually(restarted)
    eventually(lambda: len(again[0].journal) >= 2)


def test_one_sample_that_is_refused_blocks_no_other(
    client: TelemetryClient, folder: Path, tmp_path: Path, sqlite_store: Store
) -> None:
    agent = Agent("w1", client, tmp_path / "j.db", AgentSettings(folders=[folder]))
    for i in range(10):
        agent.journal.append(Sample(name="a", time=1.0, value=i))
    agent.journal.append(Sample.model_construct(name="a", time=-5.0, value=0, unit="", exit_code=0, error=""))
    agent.journal.append(Sample(name="a", time=1.0, value="last"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sample, "model_validate_json", classmethod(_unchecked))
        assert agent.deliver_once() == 11
    assert count_samples(sqlite_store) == 11 and len(agent.journal) == 0
    ((number, reason),) = agent.journal.refused()
    assert number == 11 and "greater than or equal to 0" in reason


def _unchecked(cls: type[Sample], text: str) -> Sample:
    return Sample.model_construct(**json.loads(text))


def test_a_full_journal_pauses_and_drops_nothing(client: TelemetryClient, folder: Path, tmp_path: Path) -> None:
    settings = AgentSettings(folders=[folder], max_buffered=3)
    agent = Agent("w1", client, tmp_path / "j.db", settings)
    work = client.introduce("w1", AgentHello(programs=["one"]))
    assert work.run == []
    register(client, "a", "one")
    (assignment,) = client.introduce("w1", AgentHello(programs=["one"])).run
    collected = [agent.collect(assignment) for _ in range(5)]
    assert [sample is not None for sample in collected] == [True, True, True, False, False]
    assert len(agent.journal) == 3


def test_the_journal_survives_and_never_reuses_a_number(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db", "w1")
    for i in range(3):
        journal.append(Sample(name="a", time=1.0, value=i))
    journal.forget(journal.oldest(10)[1])
    assert len(journal) == 0
    again = Journal(tmp_path / "j.db", "w1")  # the first is not closed: as after kill -9
    assert again.identity == journal.identity and again.source != journal.source
    assert again.append(Sample(name="a", time=1.0, value="x")) == 4
    source, samples = again.oldest(10)
    assert source == again.source and [(s.seq, s.value) for s in samples] == [(4, "x")]


def test_batches_stay_small(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db", "w1")
    for _ in range(5):
        journal.append(Sample(name="a", time=1.0, value="x" * 1000))
    assert [len(journal.oldest(10, max_bytes=n)[1]) for n in (10, 2500, 100_000)] == [1, 2, 5]


def test_back_off_doubles_to_a_limit_and_starts_anew() -> None:
    backoff = Backoff(1.0, 8.0, seed=0)
    waits = [backoff.next() for _ in range(6)]
    for wait, most in zip(waits, [1, 2, 4, 8, 8, 8], strict=True):
        assert most / 2 <= wait <= most
    backoff.reset()
    assert backoff.next() <= 1


def test_client_errors_are_two_kinds(client: TelemetryClient, line: Any) -> None:
    with pytest.raises(Refused, match="nothing named a was ever written on node w1") as refusal:
        client.last("a", "w1")
    assert (refusal.value.status, refusal.value.reason) == (404, "unknown")
    line.cut = True
    with pytest.raises(Unreachable, match="does not answer: cut"):
        client.read()
    with pytest.raises(ValueError, match="give http://host:port"):
        TelemetryClient("localhost:80")
