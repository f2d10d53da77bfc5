"""The schema as it was before it had versions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "1"
down_revision = None


def upgrade() -> None:
    """Make the first tables."""
    op.create_table(
        "registration",
        sa.Column("name", sa.String(100), primary_key=True),
        sa.Column("document", sa.Text, nullable=False),
    )
    op.create_table(
        "agent",
        sa.Column("node", sa.String(100), primary_key=True),
        sa.Column("labels", sa.Text, nullable=False),
        sa.Column("programs", sa.Text, nullable=False),
        sa.Column("running", sa.Text, nullable=False),
        sa.Column("buffered", sa.BigInteger, nullable=False),
        sa.Column("last_seen", sa.Double, nullable=False),
    )
    op.create_table(
        "token",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("role", sa.String(10), nullable=False),
        sa.Column("node", sa.String(100)),
        sa.Column("label", sa.String(100), nullable=False),
        sa.Column("created", sa.Double, nullable=False),
    )
    op.create_table(
        "sample",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("node", sa.String(100), nullable=False),
        sa.Column("time", sa.Double, nullable=False),
        sa.Column("value", sa.Text, nullable=False),
        sa.Column("unit", sa.String(40), nullable=False),
        sa.Column("exit_code", sa.Integer, nullable=False),
        sa.Column("error", sa.Text, nullable=False),
        sa.Column("source", sa.String(128)),
        sa.Column("seq", sa.BigInteger),
        sa.UniqueConstraint("source", "seq", name="sample_once"),
    )
    op.create_index("sample_history", "sample", ["name", "node", "time"])
    op.create_index("sample_time", "sample", ["time"])
    op.create_table(
        "latest",
        sa.Column("name", sa.String(100), primary_key=True),
        sa.Column("node", sa.String(100), primary_key=True),
        sa.Column("value", sa.Text),
        sa.Column("unit", sa.String(40)),
        sa.Column("time", sa.Double),
        sa.Column("last_run", sa.Double, nullable=False),
        sa.Column("last_exit_code", sa.Integer, nullable=False),
        sa.Column("last_error", sa.Text, nullable=False),
    )
