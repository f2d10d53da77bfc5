"""Series and sources get numbers, samples their arrival; numbered samples are unique per node, not everywhere.

Arrival was not kept before: a sample counts as arrived at its own time, which no clock ahead could make later than
its arrival then.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "2"
down_revision = "1"

_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")

_COPY = """
INSERT INTO series (name, node, value, unit, time, arrived, sampled, run_time, run_sampled, run_exit_code, run_error)
SELECT name, node, value, unit, time, time, time, last_run, last_run, last_exit_code, last_error FROM latest;
INSERT INTO series (name, node)
SELECT DISTINCT name, node FROM sample_1 s
WHERE NOT EXISTS (SELECT 1 FROM series t WHERE t.name = s.name AND t.node = s.node);
INSERT INTO source (node, source, top, seen)
SELECT node, source, max(seq), max(time) FROM sample_1 WHERE seq IS NOT NULL GROUP BY node, source;
INSERT INTO sample (id, series, time, arrived, value, number, unit, exit_code, error, source, seq)
SELECT s.id, t.id, s.time, s.time, s.value, {number}, s.unit, s.exit_code, s.error, u.id, s.seq
FROM sample_1 s JOIN series t ON t.name = s.name AND t.node = s.node
LEFT JOIN source u ON u.node = s.node AND u.source = s.source ORDER BY s.id
"""
#: A value's JSON text as a number, or null.
_NUMBER = {
    "sqlite": "CASE WHEN json_type(s.value) IN ('integer', 'real') THEN CAST(s.value AS REAL) END",
    "postgresql": "CASE WHEN s.value ~ '^-?[0-9]+([.][0-9]+)?([eE][+-]?[0-9]+)?$' AND length(s.value) < 300"
    " THEN s.value::double precision END",
}


def upgrade() -> None:
    """Make the new tables and copy everything over."""
    op.add_column("token", sa.Column("expires", sa.Double))
    op.add_column("token", sa.Column("lasts", sa.Double))
    op.drop_index("sample_history", "sample")
    op.drop_index("sample_time", "sample")
    op.rename_table("sample", "sample_1")
    dialect = op.get_bind().dialect.name
    if dialect == "postgresql":  # constraints keep their names when a table is renamed
        op.execute("ALTER TABLE sample_1 DROP CONSTRAINT sample_once")
        op.execute("ALTER TABLE sample_1 RENAME CONSTRAINT sample_pkey TO sample_1_pkey")
        op.execute("ALTER SEQUENCE IF EXISTS sample_id_seq RENAME TO sample_1_id_seq")
    _create_tables()
    for statement in _COPY.format(number=_NUMBER[dialect]).split(";"):
        op.execute(statement.replace(":", r"\:"))
    op.drop_table("sample_1")
    op.drop_table("latest")
    if dialect == "postgresql":
        op.execute("SELECT setval('sample_id_seq', greatest((SELECT max(id) FROM sample), 1))")
    op.create_index("sample_history", "sample", ["series", "time"])
    op.create_index("series_node", "series", ["node"])


def _create_tables() -> None:
    op.create_table(
        "source",
        sa.Column("id", _ID, primary_key=True),
        sa.Column("node", sa.String(100), nullable=False),
        sa.Column("source", sa.String(128), nullable=False),
        sa.Column("top", sa.BigInteger, nullable=False),
        sa.Column("seen", sa.Double, nullable=False),
        sa.UniqueConstraint("node", "source", name="source_once"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "series",
        sa.Column("id", _ID, primary_key=True),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("node", sa.String(100), nullable=False),
        sa.Column("value", sa.Text),
        sa.Column("unit", sa.String(40)),
        sa.Column("time", sa.Double),
        sa.Column("arrived", sa.Double),
        sa.Column("sampled", sa.Double),
        sa.Column("source", sa.BigInteger),
        sa.Column("run_time", sa.Double),
        sa.Column("run_sampled", sa.Double),
        sa.Column("run_source", sa.BigInteger),
        sa.Column("run_exit_code", sa.Integer),
        sa.Column("run_error", sa.Text),
        sa.UniqueConstraint("name", "node", name="series_once"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "sample",
        sa.Column("id", _ID, primary_key=True),
        sa.Column("series", sa.BigInteger, sa.ForeignKey("series.id"), nullable=False),
        sa.Column("time", sa.Double, nullable=False),
        sa.Column("arrived", sa.Double, nullable=False),
        sa.Column("value", sa.Text, nullable=False),
        sa.Column("number", sa.Double),
        sa.Column("unit", sa.String(40), nullable=False),
        sa.Column("exit_code", sa.Integer, nullable=False),
        sa.Column("error", sa.Text, nullable=False),
        sa.Column("source", sa.BigInteger),
        sa.Column("seq", sa.BigInteger),
        sa.UniqueConstraint("source", "seq", name="sample_once"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "clock",
        sa.Column("boot", sa.String(64), primary_key=True),
        sa.Column("boot_s", sa.Double, nullable=False),
        sa.Column("time", sa.Double, nullable=False),
        sa.Column("unsure", sa.Double),
    )
