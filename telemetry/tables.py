"""The tables of the service.

The paper's ``t_DP`` is ``registration`` here, its ``t_Data`` is ``latest``; ``sample`` adds the history. Values are
stored as JSON text.
"""

from __future__ import annotations

import sqlalchemy as sa

__all__ = ["AGENT", "LATEST", "META", "REGISTRATION", "SAMPLE", "TOKEN"]

META = sa.MetaData()

REGISTRATION = sa.Table(
    "registration",
    META,
    sa.Column("name", sa.String(100), primary_key=True),
    sa.Column("document", sa.Text, nullable=False),
)
AGENT = sa.Table(
    "agent",
    META,
    sa.Column("node", sa.String(100), primary_key=True),
    sa.Column("labels", sa.Text, nullable=False),
    sa.Column("programs", sa.Text, nullable=False),
    sa.Column("running", sa.Text, nullable=False),
    sa.Column("buffered", sa.BigInteger, nullable=False),
    sa.Column("last_seen", sa.Double, nullable=False),
)
TOKEN = sa.Table(
    "token",
    META,
    sa.Column("digest", sa.String(64), primary_key=True),
    sa.Column("role", sa.String(10), nullable=False),
    sa.Column("node", sa.String(100)),
    sa.Column("label", sa.String(100), nullable=False),
    sa.Column("created", sa.Double, nullable=False),
)
SAMPLE = sa.Table(
    "sample",
    META,
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
    sa.Index("sample_history", "name", "node", "time"),
    sa.Index("sample_time", "time"),
)
LATEST = sa.Table(
    "latest",
    META,
    sa.Column("name", sa.String(100), primary_key=True),
    sa.Column("node", sa.String(100), primary_key=True),
    # The last good value; null until there is one.
    sa.Column("value", sa.Text),
    sa.Column("unit", sa.String(40)),
    sa.Column("time", sa.Double),
    # The last run, good or failed.
    sa.Column("last_run", sa.Double, nullable=False),
    sa.Column("last_exit_code", sa.Integer, nullable=False),
    sa.Column("last_error", sa.Text, nullable=False),
)
