"""Which node runs what: registrations matched with the nodes that are alive."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from flowlex.telemetry.schemas import Assignment, Assignments, Registration
from flowlex.telemetry.store import AgentRow

__all__ = ["assign", "assignments_of"]


def assign(registrations: Sequence[Registration], alive: Sequence[AgentRow]) -> dict[str, list[Registration]]:
    """Return for each living node the registrations it should run.

    A registration goes to the nodes it names (all, when it names none) that carry its labels and whose
    command folder has its program. With ``replicas`` the nodes of highest rendezvous hash are taken, so a
    node that comes or goes moves only its own slots.
    """
    work: dict[str, list[Registration]] = {agent.node: [] for agent in alive}
    programs = {agent.node: set(agent.programs) for agent in alive}
    for registration in registrations:
        named = set(registration.nodes)
        fit = [
            agent.node
            for agent in alive
            if (not named or agent.node in named)
            and registration.labels.items() <= agent.labels.items()
            and registration.program in programs[agent.node]
        ]
        if registration.replicas is not None and len(fit) > registration.replicas:
            fit = sorted(fit, key=lambda node: _rank(registration.name, node))[: registration.replicas]
        for node in fit:
            work[node].append(registration)
    return work


def assignments_of(registrations: Sequence[Registration]) -> Assignments:
    """Return a node's work as the document its agent reads, with a revision that changes when it does."""
    run = [
        Assignment.model_validate(r.model_dump(include=set(Assignment.model_fields)))
        for r in sorted(registrations, key=lambda registration: registration.name)
    ]
    text = "\n".join(assignment.model_dump_json() for assignment in run)
    return Assignments(revision=hashlib.sha256(text.encode()).hexdigest()[:16], run=run)


def _rank(name: str, node: str) -> bytes:
    return hashlib.sha256(f"{name}\n{node}".encode()).digest()
