"""What is stored, counted: to prove that nothing is lost or doubled."""

from __future__ import annotations

import sqlalchemy as sa

from flowlex.telemetry.database_tables import SAMPLE, SOURCE
from flowlex.telemetry.store import Store

__all__ = ["count_samples", "forget_before", "sequence_numbers"]


def count_samples(store: Store) -> int:
    """Samples in the history."""
    with store.database.read() as connection:
        return connection.scalar(sa.select(sa.func.count()).select_from(SAMPLE)) or 0


def sequence_numbers(store: Store, source: str) -> set[int]:
    """Numbered samples of the sources that begin so."""
    ids = sa.select(SOURCE.c.id).where(SOURCE.c.source.startswith(source, autoescape=True))
    with store.database.read() as connection:
        return set(connection.scalars(sa.select(SAMPLE.c.seq).where(SAMPLE.c.source.in_(ids))))


def forget_before(store: Store, arrived: float) -> int:
    """Drop the history that arrived before, as upkeep does step by step; how many samples went."""
    return sum(iter(lambda: store.upkeep.forget_some(arrived), 0))
