"""The tables of the service; a new database is created from them.

The paper's ``t_DP`` is ``registration`` here, its ``t_Data`` is ``series`` (one row per data name and node: the last
value); ``sample`` adds the history and ``rollup`` its minute and hour aggregates. Values are stored as JSON text.

There are two kinds of time: a sample's own ``time`` is read from the node's clock; ``arrived`` and ``sampled`` are read
from the service's clock, which is monotonic (see `service_clock`). Ages are computed from the latter only.
"""

from __future__ import annotations

import sqlalchemy as sa

META = sa.MetaData()
_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")

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
    sa.Column("expires", sa.Double),
    # Lifetime in seconds when created; an exchanged token ends earlier.
    sa.Column("lasts", sa.Double),
)
#: Sources that number samples: one opening of a journal on a node, or a named client. ``top`` is its highest number.
SOURCE = sa.Table(
    "source",
    META,
    sa.Column("id", _ID, primary_key=True),
    sa.Column("node", sa.String(100), nullable=False),
    sa.Column("source", sa.String(128), nullable=False),
    sa.Column("top", sa.BigInteger, nullable=False),
    sa.Column("seen", sa.Double, nullable=False),
    sa.UniqueConstraint("node", "source", name="source_once"),
    sqlite_autoincrement=True,
)
SERIES = sa.Table(
    "series",
    META,
    sa.Column("id", _ID, primary_key=True),
    sa.Column("name", sa.String(100), nullable=False),
    sa.Column("node", sa.String(100), nullable=False),
    # The last good value; null until there is one.
    sa.Column("value", sa.Text),
    sa.Column("unit", sa.String(40)),
    sa.Column("time", sa.Double),
    sa.Column("arrived", sa.Double),
    sa.Column("sampled", sa.Double),
    sa.Column("source", sa.BigInteger),
    # The last run, good or failed.
    sa.Column("run_time", sa.Double),
    sa.Column("run_sampled", sa.Double),
    sa.Column("run_source", sa.BigInteger),
    sa.Column("run_exit_code", sa.Integer),
    sa.Column("run_error", sa.Text),
    sa.UniqueConstraint("name", "node", name="series_once"),
    sa.Index("series_node", "node"),
    sqlite_autoincrement=True,
)
SAMPLE = sa.Table(
    "sample",
    META,
    # Numbers increase in order of arrival and are never reused: retention and rollup rely on this.
    sa.Column("id", _ID, primary_key=True),
    sa.Column("series", sa.BigInteger, sa.ForeignKey("series.id"), nullable=False),
    sa.Column("time", sa.Double, nullable=False),
    sa.Column("arrived", sa.Double, nullable=False),
    sa.Column("value", sa.Text, nullable=False),
    # The value when it is a number, for the aggregates.
    sa.Column("number", sa.Double),
    sa.Column("unit", sa.String(40), nullable=False),
    sa.Column("exit_code", sa.Integer, nullable=False),
    sa.Column("error", sa.Text, nullable=False),
    sa.Column("source", sa.BigInteger),
    sa.Column("seq", sa.BigInteger),
    sa.UniqueConstraint("source", "seq", name="sample_once"),
    sa.Index("sample_history", "series", "time"),
    sqlite_autoincrement=True,
)
#: Numeric samples of one series whose time lies in ``[start, start + step)`` seconds.
ROLLUP = sa.Table(
    "rollup",
    META,
    sa.Column("series", sa.BigInteger, sa.ForeignKey("series.id"), primary_key=True, autoincrement=False),
    sa.Column("step", sa.Integer, primary_key=True),
    sa.Column("start", sa.BigInteger, primary_key=True),
    sa.Column("count", sa.BigInteger, nullable=False),
    sa.Column("total", sa.Double, nullable=False),
    sa.Column("least", sa.Double, nullable=False),
    sa.Column("most", sa.Double, nullable=False),
    sa.Index("rollup_age", "step", "start"),
)
#: Reading of the service's clock, by boot of its machine.
CLOCK = sa.Table(
    "clock",
    META,
    sa.Column("boot", sa.String(64), primary_key=True),
    sa.Column("boot_s", sa.Double, nullable=False),
    sa.Column("time", sa.Double, nullable=False),
    sa.Column("unsure", sa.Double),
)
STATE = sa.Table(
    "state",
    META,
    sa.Column("name", sa.String(40), primary_key=True),
    sa.Column("number", sa.BigInteger, nullable=False),
)
#: The version of the schema, stored where alembic expects it, for later changes of these tables.
VERSION = sa.Table(
    "alembic_version",
    META,
    sa.Column("version_num", sa.String(32), nullable=False),
    sa.PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)
