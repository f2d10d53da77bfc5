"""Tokens and rights: who may register, write as a node, or read.

A token is a random secret; only its SHA-256 digest is stored. An *agent* token may be bound to one node and
can register that node, fetch its work and write its data, nothing else. A *reader* token reads. An *admin*
token may do everything.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from dataclasses import dataclass
from enum import StrEnum

from flowlex.telemetry.store import Store, TokenRow

__all__ = ["Identity", "Role", "TokenBook", "digest", "new_token"]

#: A revoked token is refused after at most this long.
CACHE_S = 2.0


class Role(StrEnum):
    """What a token may do."""

    ADMIN = "admin"
    AGENT = "agent"
    READER = "reader"


@dataclass(frozen=True)
class Identity:
    """Who a request comes from: a role and, for an agent's token that is bound, its node."""

    role: Role
    node: str | None = None

    def may_act_for(self, node: str) -> bool:
        """Say whether this identity may write as ``node``."""
        if self.role is Role.ADMIN:
            return True
        return self.role is Role.AGENT and self.node in (None, node)


def digest(token: str) -> str:
    """Return what is stored of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def new_token(store: Store, role: Role, *, node: str | None = None, label: str = "") -> str:
    """Make a token, store its digest, and return the secret, which cannot be read again.

    Raises
    ------
    ValueError
        A node is given for a role that is not an agent's.
    """
    if node is not None and role is not Role.AGENT:
        raise ValueError(f"only an agent's token is bound to a node; leave the node out for {role}")
    token = f"flx_{secrets.token_urlsafe(32)}"
    store.add_token(TokenRow(digest(token), role.value, node, label, time.time()))
    return token


class TokenBook:
    """The stored tokens, read again when they are older than `CACHE_S`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._known: dict[str, Identity] = {}
        self._read_at = float("-inf")

    @property
    def fresh(self) -> bool:
        """Whether the tokens were read not long ago."""
        return time.monotonic() - self._read_at <= CACHE_S

    def refresh(self) -> None:
        """Read the tokens unless another thread just did."""
        with self._lock:
            if not self.fresh:
                known = {row.digest: Identity(Role(row.role), row.node) for row in self._store.tokens()}
                self._known, self._read_at = known, time.monotonic()

    def identify(self, token: str) -> Identity | None:
        """Return whose token this is, or None."""
        if not self.fresh:
            self.refresh()
        return self._known.get(digest(token))
