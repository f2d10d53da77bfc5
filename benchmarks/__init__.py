"""Comparisons with peers: ``python -m benchmarks [NAME ...] [--quick] [--write]``.

Every module here that has ``tables() -> list[tuple[str, list[dict[str, object]]]]`` (title, rows) is a benchmark.
"""
