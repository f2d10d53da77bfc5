"""The nodes known to the service: which are alive, and which commands they run.

Kept in memory, so that a heartbeat costs no transaction: heartbeats are stored together, once a second. Changes by
other servers on the same database are read every few seconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

from flowlex.systems.telemetry.command_assignments import Plan, assignments_of
from flowlex.systems.telemetry.registrations import AgentRow
from flowlex.systems.telemetry.request_documents import AgentHello, Assignments, Heartbeat, Registration
from flowlex.systems.telemetry.service_clock import Clock
from flowlex.systems.telemetry.store import Store

#: Age in seconds after which data are read from the database again.
FRESH_S = 3.0


class Roster:
    """Nodes and registrations; may be used from any thread."""

    def __init__(self, store: Store, clock: Clock, alive_s: float) -> None:
        self._store = store
        self._clock = clock
        self._alive_s = alive_s
        self._lock = threading.RLock()
        self._agents: dict[str, AgentRow] = {}
        self._beaten: set[str] = set()
        self._plan = Plan([])
        self._read_at = float("-inf")

    def alive(self, agent: AgentRow) -> bool:
        """Return whether a node's last heartbeat is recent."""
        return self._clock.now() - agent.last_seen <= self._alive_s

    def refresh(self, *, force: bool = False) -> None:
        """Read nodes and registrations again if the known ones are old."""
        if not force and time.monotonic() - self._read_at < FRESH_S:
            return
        with self._lock:
            stored = {agent.node: agent for agent in self._store.registry.agents()}
            registrations = self._store.registry.registrations()
            for node, known in self._agents.items():
                if node in stored and known.last_seen > stored[node].last_seen:
                    said = stored[node]
                    stored[node] = replace(known, labels=said.labels, programs=said.programs)
            self._agents = stored
            self._plan = Plan(registrations, filter(self.alive, stored.values()))
            self._read_at = time.monotonic()

    def agents(self) -> list[AgentRow]:
        """Return all nodes by name."""
        self.refresh()
        with self._lock:
            return [self._agents[node] for node in sorted(self._agents)]

    def plan(self) -> Plan:
        """Return the assignment of registrations to nodes."""
        self.refresh()
        return self._plan

    def introduce(self, node: str, hello: AgentHello) -> None:
        """Store a node's labels and programs; it is alive from now on."""
        now = self._clock.now()
        self._store.registry.put_agent(node, hello.labels, hello.programs, now)
        with self._lock:
            old = self._agents.get(node)
            running, buffered = (old.running, old.buffered) if old else ([], 0)
            agent = AgentRow(node, dict(hello.labels), list(hello.programs), running, buffered, now)
            self._agents[node] = agent
            self._plan.join(agent)

    def beat(self, node: str, beat: Heartbeat) -> bool:
        """Record a heartbeat, to be stored with the next `flush`; return False if the node is unknown."""
        with self._lock:
            known = self._agents.get(node)
            if known is None:
                return False
            was_alive = self.alive(known)
            now = self._clock.now()
            agent = replace(known, running=list(beat.running), buffered=beat.buffered, last_seen=now)
            self._agents[node] = agent
            self._beaten.add(node)
            if not was_alive:
                self._plan.join(agent)
            return True

    def flush(self) -> None:
        """Store the heartbeats since the last flush, and remove silent nodes from the assignment."""
        with self._lock:
            beaten = [self._agents[node] for node in self._beaten if node in self._agents]
            self._beaten.clear()
            for agent in self._agents.values():
                if not self.alive(agent):
                    self._plan.leave(agent.node)
        self._store.registry.touch_agents(beaten)

    def forget(self, node: str) -> bool:
        """Forget a node; False when it is not known."""
        known = self._store.registry.remove_agent(node)
        with self._lock:
            self._agents.pop(node, None)
            self._plan.leave(node)
        return known

    def work_of(self, node: str) -> Assignments:
        """Return what one node should run."""
        with self._lock:
            return assignments_of(self._plan.work_of(node))

    def doubts(self, registration: Registration) -> list[str]:
        """Return reasons, as sentences, why a registration may never have a value."""
        plan = self.plan()
        with self._lock:
            found = []
            if not plan.has_program(registration.program):
                found.append(f"no living node has the program {registration.program}")
            elif not plan.nodes_of(registration.name):
                found.append("no living node with this program is named and carries the labels")
        known = {known.name for known in self._store.registry.registrations()} | self._store.reader.stored_names(
            registration.inputs
        )
        return found + [
            f"the input {name} is neither registered nor stored" for name in registration.inputs if name not in known
        ]

    def change(self, function: Callable[[], bool | None]) -> bool | None:
        """Change the registrations in the store, then refresh."""
        changed = function()
        self.refresh(force=True)
        return changed
