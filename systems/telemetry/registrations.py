"""Registrations, agents and tokens in the database."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

import sqlalchemy as sa

from flowlex.systems.telemetry.database import Database
from flowlex.systems.telemetry.database_tables import AGENT, REGISTRATION, TOKEN
from flowlex.systems.telemetry.request_documents import Registration


class DuplicateRegistration(Exception):
    """The data name is registered already."""


@dataclass(frozen=True)
class TokenRow:
    """A stored token: the digest of its secret, its rights, and when it ends (None: never)."""

    digest: str
    role: str
    node: str | None
    label: str
    created: float
    expires: float | None = None
    lasts: float | None = None


@dataclass(frozen=True)
class AgentRow:
    """A node that has introduced itself."""

    node: str
    labels: dict[str, str]
    programs: list[str]
    running: list[str]
    buffered: int
    last_seen: float


_TOUCH = (
    sa.update(AGENT)
    .where(AGENT.c.node == sa.bindparam("of"))
    .values(running=sa.bindparam("now"), buffered=sa.bindparam("wait"), last_seen=sa.bindparam("at"))
)


class Registry:
    """Stored registrations, agents and tokens."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # Registrations

    def add_registration(self, registration: Registration) -> None:
        """Store a new registration, or raise `DuplicateRegistration`."""
        values = {"name": registration.name, "document": registration.model_dump_json()}
        if not self._database.change(self._database.insert(REGISTRATION).values(values).on_conflict_do_nothing()):
            raise DuplicateRegistration(registration.name)

    def update_registration(self, registration: Registration) -> bool:
        """Replace a registration; False when there is none of that name."""
        statement = sa.update(REGISTRATION).where(REGISTRATION.c.name == registration.name)
        return bool(self._database.change(statement.values(document=registration.model_dump_json())))

    def remove_registration(self, name: str) -> bool:
        """Remove a registration (its data stay); False when there is none of that name."""
        return bool(self._database.change(sa.delete(REGISTRATION).where(REGISTRATION.c.name == name)))

    def registration(self, name: str) -> Registration | None:
        """Return one registration or None."""
        with self._database.read() as connection:
            text = connection.scalar(sa.select(REGISTRATION.c.document).where(REGISTRATION.c.name == name))
        return None if text is None else Registration.model_validate_json(text)

    def registrations(self) -> list[Registration]:
        """Return all registrations by name."""
        with self._database.read() as connection:
            texts = connection.scalars(sa.select(REGISTRATION.c.document).order_by(REGISTRATION.c.name)).all()
        return [Registration.model_validate_json(text) for text in texts]

    # Agents

    def put_agent(self, node: str, labels: Mapping[str, str], programs: Sequence[str], now: float) -> None:
        """Store a node that introduces itself, or update its labels and programs."""
        said = {"labels": json.dumps(dict(labels)), "programs": json.dumps(list(programs)), "last_seen": now}
        values = {"node": node, "running": "[]", "buffered": 0, **said}
        self._database.change(
            self._database.insert(AGENT).values(values).on_conflict_do_update(index_elements=["node"], set_=said)
        )

    def touch_agents(self, beats: Iterable[AgentRow]) -> None:
        """Store the last heartbeats of nodes that have introduced themselves."""
        rows = [
            {"of": a.node, "now": json.dumps(a.running), "wait": a.buffered, "at": a.last_seen}
            for a in sorted(beats, key=lambda agent: agent.node)
        ]
        if rows:
            with self._database.write() as connection:
                connection.execute(_TOUCH, rows)

    def remove_agent(self, node: str) -> bool:
        """Forget a node (its data stay); False when it is not known."""
        return bool(self._database.change(sa.delete(AGENT).where(AGENT.c.node == node)))

    def agents(self) -> list[AgentRow]:
        """Return all nodes by name."""
        with self._database.read() as connection:
            rows = connection.execute(sa.select(AGENT).order_by(AGENT.c.node)).all()
        texts = ("labels", "programs", "running")
        return [AgentRow(**row._asdict() | {name: json.loads(getattr(row, name)) for name in texts}) for row in rows]

    # Tokens

    def add_token(self, row: TokenRow) -> None:
        """Store a token's digest."""
        self._database.change(sa.insert(TOKEN).values(asdict(row)))

    def replace_token(self, old: str, successor: TokenRow, *, expires: float) -> None:
        """Store a token's successor and let the old one end."""
        with self._database.write() as connection:
            connection.execute(sa.insert(TOKEN).values(asdict(successor)))
            ends = sa.update(TOKEN).where(TOKEN.c.digest == old).values(expires=expires)
            connection.execute(ends)

    def remove_token(self, prefix: str) -> int:
        """Revoke the tokens whose digest starts with ``prefix``; return how many."""
        return self._database.change(sa.delete(TOKEN).where(TOKEN.c.digest.startswith(prefix, autoescape=True)))

    def tokens(self) -> list[TokenRow]:
        """Return all tokens, oldest first."""
        with self._database.read() as connection:
            return [TokenRow(*row) for row in connection.execute(sa.select(TOKEN).order_by(TOKEN.c.created))]
