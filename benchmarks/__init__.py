"""Comparisons with peers: ``python -m benchmarks [NAME ...] [--quick] [--write]``.

Every module here that has ``tables() -> Tables`` (title, rows) is a benchmark.
"""

Row = dict[str, object]
Tables = list[tuple[str, list[Row]]]
