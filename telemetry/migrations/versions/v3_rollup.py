"""Minute and hour aggregates of numeric samples."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "3"
down_revision = "2"


def upgrade() -> None:
    """Make the tables; the service fills them from the samples that are there."""
    op.create_table(
        "rollup",
        sa.Column("series", sa.BigInteger, sa.ForeignKey("series.id"), primary_key=True, autoincrement=False),
        sa.Column("step", sa.Integer, primary_key=True),
        sa.Column("start", sa.BigInteger, primary_key=True),
        sa.Column("count", sa.BigInteger, nullable=False),
        sa.Column("total", sa.Double, nullable=False),
        sa.Column("least", sa.Double, nullable=False),
        sa.Column("most", sa.Double, nullable=False),
    )
    op.create_index("rollup_age", "rollup", ["step", "start"])
    op.create_table(
        "state",
        sa.Column("name", sa.String(40), primary_key=True),
        sa.Column("number", sa.BigInteger, nullable=False),
    )
