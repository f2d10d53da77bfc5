"""The agent of one node: runs its assignments, stores the results on disk, delivers them when it can.

Three kinds of threads: one per slot runs its command at its interval and appends to the journal; one
delivers the journal; the main one sends heartbeats and follows the assignments. None waits for another, so an
unreachable server or a hanging command delays nothing else.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flowlex.systems.telemetry.agent_buffer import Journal
from flowlex.systems.telemetry.command_runner import SHIPPED, allowed_programs, run_command
from flowlex.systems.telemetry.http_client import Backoff, Refused, TelemetryClient, Unreachable, replace_token
from flowlex.systems.telemetry.request_documents import AgentHello, Assignment, Assignments, Heartbeat, Sample

_LOG = logging.getLogger(__name__)


class JournalInUse(Exception):
    """Another agent uses the same journal."""


@dataclass(frozen=True)
class AgentSettings:
    """Settings of an agent."""

    # the allow-list: only executables in these folders are ever run; the first that has a name wins
    folders: Sequence[Path] = (SHIPPED,)
    labels: Mapping[str, str] = field(default_factory=dict)
    # environment of every command (nothing else of the agent's environment is passed on)
    environment: Mapping[str, str] = field(default_factory=dict)
    heartbeat_s: float = 5.0
    max_slots: int = 100  # assignments beyond this many are not run, and a warning says so
    # at this many undelivered samples the slots pause, so that no collected sample is lost
    max_buffered: int = 1_000_000
    most_backoff_s: float = 30.0
    # file with only this agent's token: read again when the token is refused, and rewritten when the token is exchanged
    # in the last quarter of its life; None: neither
    token_file: Path | None = None
    batch: int = 500


class Agent:
    """One node's agent; `run` works until ``stop`` is set. Raises `JournalInUse` if another agent holds the buffer."""

    def __init__(
        self, node: str, client: TelemetryClient, journal_path: Path, settings: AgentSettings | None = None
    ) -> None:
        self.node = node
        self.settings: AgentSettings = settings or AgentSettings()
        self.stop: threading.Event = threading.Event()
        self._client = client
        journal_path.parent.mkdir(parents=True, exist_ok=True)
        self._lock_file = journal_path.with_name(journal_path.name + ".lock").open("w")
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock_file.close()
            raise JournalInUse(f"another agent uses {journal_path}; give each node its own journal") from error
        try:
            self.journal: Journal = Journal(journal_path, node)
        except BaseException:
            self._lock_file.close()
            raise
        self._collected = threading.Event()
        self._slots: dict[str, _Slot] = {}
        self._revision = ""
        self._programs: list[str] = []
        self._ask_token_at = float("-inf")

    def run(self) -> None:
        """Work until ``stop`` is set, then make one attempt to deliver the rest."""
        remembered = self.journal.recall("assignments")
        if remembered is not None:  # an unreachable server does not stop collecting
            self._follow(Assignments.model_validate_json(remembered))
        sender = threading.Thread(target=self._deliver, name="delivery", daemon=True)
        sender.start()
        self._keep_in_touch()
        for slot in self._slots.values():
            slot.end.set()
        for slot in self._slots.values():
            slot.join()
        self._collected.set()
        sender.join()
        self.journal.close()
        self._lock_file.close()

    def _keep_in_touch(self) -> None:
        """Send heartbeats and follow the assignments until ``stop`` is set."""
        backoff = Backoff(most_s=self.settings.most_backoff_s)
        known = False
        while not self.stop.is_set():
            try:
                known = self._beat(known)
                self._renew_token()
                backoff.reset()
                wait = self.settings.heartbeat_s
            except Unreachable as error:
                _LOG.warning("%s; %d samples wait", error, len(self.journal))
                wait = max(error.wait_s, backoff.next())
            except Refused as error:
                known = known and error.status != 404  # the service forgot the node: introduce it again
                _LOG.warning("the service refuses this agent: %s", error)
                if error.status == 401 and self.settings.token_file is not None:
                    with contextlib.suppress(OSError):
                        self._client.use_token(self.settings.token_file.read_text().strip())
                wait = backoff.next()
            except Exception:  # such as a full disk: the journal may have room again
                _LOG.exception("a heartbeat failed")
                wait = backoff.next()
            self.stop.wait(wait)

    def _renew_token(self) -> None:
        """Exchange a token in the last quarter of its life; check once an hour, or more often for a short life."""
        path = self.settings.token_file
        if path is None or time.monotonic() < self._ask_token_at:
            return
        holder = self._client.whoami()
        if holder.ends_in_s is None or holder.lasts_s is None:
            self._ask_token_at = time.monotonic() + 3_600.0
            return
        if holder.ends_in_s < holder.lasts_s / 4:
            replace_token(path, self._client.rotate().token)
            _LOG.info("exchanged the token; %s holds the new one", path)
        self._ask_token_at = time.monotonic() + min(3_600.0, holder.lasts_s / 16)

    def _beat(self, known: bool) -> bool:
        """Send a heartbeat; return whether the service knows this node."""
        programs = allowed_programs(self.settings.folders)
        if not known or programs != self._programs:  # programs may change while the agent runs
            self._programs = programs
            hello = AgentHello(labels=dict(self.settings.labels), programs=programs)
            self._follow(self._client.introduce(self.node, hello))
            return True
        beat = Heartbeat(running=sorted(self._slots)[:1000], buffered=len(self.journal))
        if self._client.heartbeat(self.node, beat) != self._revision:
            self._follow(self._client.assignments(self.node))
        return True

    def _follow(self, work: Assignments) -> None:
        """Start, stop and change slots to match the assignments."""
        wanted = {assignment.name: assignment for assignment in work.run[: self.settings.max_slots]}
        if len(work.run) > len(wanted):
            _LOG.warning("%d assignments, %d slots; the rest is not run", len(work.run), len(wanted))
        for name in [name for name in self._slots if name not in wanted]:
            self._slots.pop(name).end.set()
            _LOG.info("stopped %s", name)
        for name, assignment in wanted.items():
            slot = self._slots.get(name)
            if slot is None:
                self._slots[name] = slot = _Slot(self, assignment)
                slot.start()
                _LOG.info("started %s every %g s", name, assignment.interval_s)
            elif slot.assignment != assignment:
                slot.change(assignment)
                _LOG.info("changed %s, every %g s", name, assignment.interval_s)
        self._revision = work.revision
        self.journal.remember("assignments", work.model_dump_json())

    # Collecting

    def collect(self, assignment: Assignment, cancel: threading.Event | None = None) -> Sample | None:
        """Run an assignment once and store the result on disk; return None if there is nothing to record."""
        if len(self.journal) >= self.settings.max_buffered:
            _LOG.error("%d samples wait for the service; %s pauses", len(self.journal), assignment.name)
            return None
        stdin = b""
        if assignment.kind == "processor":
            try:
                stdin = self._client.inputs(self.node, assignment.name).model_dump_json().encode()
            except (Unreachable, Refused) as error:
                _LOG.info("processor %s has no input: %s", assignment.name, error)
                return None
        now = time.time()
        run = run_command(
            [assignment.program, *(part.replace("{node}", self.node) for part in assignment.arguments)],
            self.settings.folders,
            timeout_s=assignment.timeout_s,
            stdin=stdin,
            environment={"FLOWLEX_NODE": self.node, **self.settings.environment},
            cancel=cancel,
        )
        if run is None:
            return None
        sample = Sample(
            name=assignment.name,
            time=now,
            value=run.value,
            unit=assignment.unit,
            exit_code=run.exit_code,
            error=run.error,
        )
        self.journal.append(sample)
        self._collected.set()
        return sample

    # Delivery

    def _deliver(self) -> None:
        backoff = Backoff(most_s=self.settings.most_backoff_s)
        while True:
            stopping = self.stop.is_set() and self._collected.is_set()
            self._collected.clear()
            try:
                self.deliver_once()
                backoff.reset()
                if self.stop.is_set():
                    return
                self._collected.wait(1.0)
            except Exception as error:  # such as a full disk: the journal may have room again
                if stopping or self.stop.is_set():
                    return  # the journal keeps it for the next start
                unexpected = not isinstance(error, (Unreachable, Refused))
                _LOG.warning("delivery failed: %s; %d samples wait", error, len(self.journal), exc_info=unexpected)
                self.stop.wait(max(getattr(error, "wait_s", 0.0), backoff.next()))

    def deliver_once(self) -> int:
        """Send all waiting samples; return how many the service acknowledged. Others stay in the journal."""
        sent = 0
        while True:
            source, samples = self.journal.oldest(self.settings.batch)
            if not samples:
                return sent
            sent += self._send(source, samples)

    def _send(self, source: str, samples: list[Sample]) -> int:
        try:
            answer = self._client.write(self.node, samples, source)
        except Refused as error:
            if error.reason == "conflict":  # a copy of this journal has used these numbers
                _LOG.error("%s; what waits is sent again under new numbers", error)
                self.journal.renumber(source)
                return 0
            if error.status not in (400, 413, 422):
                raise
            if len(samples) > 1:  # find the sample that the service refuses
                half = len(samples) // 2
                return self._send(source, samples[:half]) + self._send(source, samples[half:])
            _LOG.error("a sample of %s is refused and set aside: %s", samples[0].name, error)
            self.journal.set_aside(samples[0], str(error))
            return 0
        if answer.stored + answer.known != len(samples):
            said = f"{answer.stored} stored and {answer.known} known of {len(samples)} samples"
            raise Unreachable(f"the service acknowledged {said}; they stay here")
        self.journal.forget(samples)
        return len(samples)


class _Slot(threading.Thread):
    """Runs one assignment at its interval until ``end`` is set."""

    def __init__(self, agent: Agent, assignment: Assignment) -> None:
        super().__init__(name=f"slot-{assignment.name}", daemon=True)
        self.assignment = assignment
        self.end = threading.Event()
        self._agent = agent
        self._changed = threading.Event()

    def change(self, assignment: Assignment) -> None:
        """Continue with another command or interval."""
        self.assignment = assignment
        self._changed.set()

    def run(self) -> None:
        due = time.monotonic()
        while not self.end.wait(max(0.0, due - time.monotonic())):
            try:
                self._agent.collect(self.assignment, self.end)
            except Exception:  # a slot survives any failure of a run
                _LOG.exception("run of %s failed", self.assignment.name)
            # Missed runs are skipped.
            due = max(due + self.assignment.interval_s, time.monotonic())
            while not self.end.is_set() and (left := due - time.monotonic()) > 0:
                if self._changed.wait(min(left, 0.5)):
                    self._changed.clear()
                    due = min(due, time.monotonic() + self.assignment.interval_s)
