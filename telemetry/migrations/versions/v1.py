"""The schema of release 0.1.0.

An empty database gets its tables from `flowlex.telemetry.tables` and the number of the newest version, so that this
step has nothing to do. Later versions change databases of the one before.
"""

from __future__ import annotations

revision = "1"
down_revision = None


def upgrade() -> None:
    """Nothing: see above."""
