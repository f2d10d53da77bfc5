"""Tokens and rights: who may register, write as a node, or read.

A token is a random secret; only its SHA-256 digest is stored. An *agent* token is bound to one node (unless created
for any) and can only register that node, fetch its work and write its data. A *reader* token reads. An *admin* token
registers, deletes, reads and creates tokens; it cannot write data, so that no node needs to hold one. Tokens may
expire; before that, the holder may exchange one for a new one.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from dataclasses import dataclass
from enum import StrEnum

from flowlex.systems.telemetry.registrations import TokenRow
from flowlex.systems.telemetry.service_clock import Clock
from flowlex.systems.telemetry.store import Store

#: A revoked token is refused after at most this long.
CACHE_S = 2.0
#: Seconds for which an exchanged token stays valid, so that a lost response locks nobody out.
GRACE_S = 600.0


class Role(StrEnum):
    """What a token may do."""

    ADMIN = "admin"
    AGENT = "agent"
    READER = "reader"


@dataclass(frozen=True)
class Identity:
    """The sender of a request: a role and, for a bound agent token, its node."""

    role: Role
    node: str | None = None
    digest: str = ""
    expires: float | None = None
    lasts: float | None = None

    def may_act_for(self, node: str) -> bool:
        """Return whether this identity may write as ``node``."""
        return self.role is Role.AGENT and self.node in (None, node)


def digest(token: str) -> str:
    """Return the stored digest of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def new_token(
    store: Store,
    role: Role,
    *,
    node: str | None = None,
    any_node: bool = False,
    label: str = "",
    lasts_s: float | None = None,
) -> str:
    """Create a token, store its digest, and return the secret, which cannot be read again.

    An agent's token is for one node or ``any_node``; other roles have neither. It expires after ``lasts_s`` seconds.
    """
    if (node is not None or any_node) and role is not Role.AGENT:
        raise ValueError(f"only an agent's token is bound to a node; leave the node out for {role}")
    if role is Role.AGENT and (node is None) == (not any_node):
        raise ValueError("an agent's token needs its node; or say that it may act for any node")
    token, row = _made(role.value, node, label, lasts_s)
    store.registry.add_token(row)
    return token


def _made(role: str, node: str | None, label: str, lasts_s: float | None) -> tuple[str, TokenRow]:
    """Return a new secret and its row for storage."""
    now, token = time.time(), f"flx_{secrets.token_urlsafe(32)}"
    ends = None if lasts_s is None else now + lasts_s
    return token, TokenRow(digest(token), role, node, label, now, ends, lasts_s)


def rotated(store: Store, old: str) -> tuple[str, float | None]:
    """Exchange a token, by its digest, for one with the same rights and duration; return the secret and its end."""
    row = next((row for row in store.registry.tokens() if row.digest == old), None)
    if row is None:
        raise ValueError("the token is revoked")
    token, successor = _made(row.role, row.node, row.label, row.lasts)
    ends = successor.created + GRACE_S
    store.registry.replace_token(old, successor, expires=ends if row.expires is None else min(row.expires, ends))
    return token, successor.expires


class TokenBook:
    """The stored tokens, read again when they are older than ``cache_s``."""

    def __init__(self, store: Store, clock: Clock | None = None, *, cache_s: float = CACHE_S) -> None:
        self._store = store
        self._cache_s = cache_s
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[str, Identity] = {}
        self._read_at = float("-inf")

    @property
    def fresh(self) -> bool:
        """Whether the tokens were read within ``cache_s``."""
        return time.monotonic() - self._read_at < self._cache_s

    def refresh(self, *, force: bool = False) -> None:
        """Read the tokens unless another thread just did."""
        with self._lock:
            if force or not self.fresh:
                rows = self._store.registry.tokens()
                self._known = {
                    row.digest: Identity(Role(row.role), row.node, row.digest, row.expires, row.lasts) for row in rows
                }
                self._read_at = time.monotonic()

    def identify(self, token: str) -> Identity | None:
        """Return whose token this is, or None when it is unknown, revoked or has ended."""
        if not self.fresh:
            self.refresh()
        known = self._known.get(digest(token))
        if known is None or known.expires is None:
            return known
        # The end was set by the wall clock, so it counts; a step back of it must not extend the token.
        now = time.time() if self._clock is None else max(time.time(), self._clock.now())
        return known if now < known.expires else None
