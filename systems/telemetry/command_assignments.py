"""Assignment of commands to nodes: registrations matched with the nodes that are alive."""

from __future__ import annotations

import hashlib
from bisect import bisect_left, insort
from collections.abc import Iterable

from flowlex.systems.telemetry.registrations import AgentRow
from flowlex.systems.telemetry.request_documents import Assignment, Assignments, Registration


class Plan:
    """The nodes of each registration.

    A registration is assigned to the nodes it names (all, if it names none) that have its labels and its program. With
    ``replicas``, the nodes with the highest rendezvous hash are chosen, so a node that joins or leaves moves only its
    own slots. A node that joins costs time in the number of registrations, not of nodes.
    """

    def __init__(self, registrations: Iterable[Registration], alive: Iterable[AgentRow] = ()) -> None:
        self._registrations = sorted(registrations, key=lambda registration: registration.name)
        #: For each registration that bounds its nodes: those that fit, best first.
        self._ranked: dict[str, list[tuple[bytes, str]]] = {
            r.name: [] for r in self._registrations if r.replicas is not None
        }
        self._alive: dict[str, AgentRow] = {}
        for agent in alive:
            self.join(agent)

    def join(self, agent: AgentRow) -> None:
        """Add a node, or update its labels and programs."""
        if agent.node in self._alive:
            self.leave(agent.node)
        self._alive[agent.node] = agent
        for registration in self._fitting(agent):
            if registration.name in self._ranked:
                insort(self._ranked[registration.name], _rank(registration.name, agent.node))

    def leave(self, node: str) -> None:
        """Remove a node."""
        agent = self._alive.pop(node, None)
        if agent is None:
            return
        for registration in self._fitting(agent):
            ranked = self._ranked.get(registration.name)
            if ranked is not None:
                del ranked[bisect_left(ranked, _rank(registration.name, node))]

    def work_of(self, node: str) -> list[Registration]:
        """Return the registrations that a node should run; none if it is not alive."""
        agent = self._alive.get(node)
        return [] if agent is None else [r for r in self._fitting(agent) if self._chosen(r, node)]

    def nodes_of(self, name: str) -> list[str]:
        """Return the living nodes that should run the registration of that name."""
        meant = [registration for registration in self._registrations if registration.name == name]
        return sorted(
            agent.node
            for registration in meant
            for agent in self._alive.values()
            if _fits(registration, agent) and self._chosen(registration, agent.node)
        )

    def has_program(self, program: str) -> bool:
        """Whether a living node has a program."""
        return any(program in agent.programs for agent in self._alive.values())

    def _fitting(self, agent: AgentRow) -> list[Registration]:
        return [registration for registration in self._registrations if _fits(registration, agent)]

    def _chosen(self, registration: Registration, node: str) -> bool:
        ranked = self._ranked.get(registration.name)
        return ranked is None or bisect_left(ranked, _rank(registration.name, node)) < (registration.replicas or 0)


def assignments_of(registrations: Iterable[Registration]) -> Assignments:
    """Return a node's work as the document its agent reads, with a revision that changes when it does."""
    run = [
        Assignment.model_validate(r.model_dump(include=set(Assignment.model_fields)))
        for r in sorted(registrations, key=lambda registration: registration.name)
    ]
    text = "\n".join(assignment.model_dump_json() for assignment in run)
    return Assignments(revision=hashlib.sha256(text.encode()).hexdigest()[:16], run=run)


def _fits(registration: Registration, agent: AgentRow) -> bool:
    return (
        registration.program in agent.programs
        and (not registration.nodes or agent.node in registration.nodes)
        and registration.labels.items() <= agent.labels.items()
    )


def _rank(name: str, node: str) -> tuple[bytes, str]:
    return hashlib.sha256(f"{name}\n{node}".encode()).digest(), node
