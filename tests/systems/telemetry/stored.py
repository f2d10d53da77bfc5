"""Counts of stored samples, to check that none is lost or duplicated."""

import sqlalchemy as sa

from flowlex.systems.telemetry.database_tables import SAMPLE, SOURCE
from flowlex.systems.telemetry.store import Store

__all__ = ["count_samples", "forget_before", "sequence_numbers"]


def count_samples(store: Store) -> int:
    """Return the number of samples in the history."""
    with store.database.read() as connection:
        return connection.scalar(sa.select(sa.func.count()).select_from(SAMPLE)) or 0


def sequence_numbers(store: Store, source: str) -> set[int]:
    """Return the sequence numbers of samples from sources with this prefix."""
    ids = sa.select(SOURCE.c.id).where(SOURCE.c.source.startswith(source, autoescape=True))
    with store.database.read() as connection:
        return set(connection.scalars(sa.select(SAMPLE.c.seq).where(SAMPLE.c.source.in_(ids))))


def forget_before(store: Store, arrived: float) -> int:
    """Delete history that arrived before a time, as upkeep does in steps; return the number of deleted samples."""
    return sum(iter(lambda: store.upkeep.forget_some(arrived), 0))
