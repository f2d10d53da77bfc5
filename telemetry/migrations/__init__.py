"""Versions of the schema, for alembic; `migrate` in ``database`` runs them."""
