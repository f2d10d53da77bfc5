"""The first check on a machine: processor seconds of `flowlex tu` with an empty cache of compiled loops, and again.

Each line is a process of its own. ``compiled`` says how many loops the first process had to compile; where that is 0,
the matrix was small enough for plain Python.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from scipy.io import mmwrite

from flowlex.validation.unimodularity import examples

#: Name, matrix: from two rows to what takes a second.
SIZES = (("network 2 x 3", 2, 3), ("network 100 x 300", 100, 300), ("network 1000 x 3000", 1000, 3000))
LARGE = (("network 6000 x 20000", 6000, 20_000),)


def rows(*, quick: bool = False) -> Iterator[dict[str, object]]:
    """One row per matrix: processor seconds with an empty cache and with what the first process left in it."""
    with tempfile.TemporaryDirectory() as folder:
        for name, height, width in SIZES if quick else (*SIZES, *LARGE):
            file, cache = Path(folder) / "matrix.mtx", Path(folder) / f"cache of {name}"
            mmwrite(file, examples.network(height, width).astype(int))
            cold = seconds(file, cache)
            compiled = len(list(cache.rglob("*.nbc")))
            warm = seconds(file, cache)
            yield {
                "matrix": name,
                "first, s": round(cold, 2),
                "again, s": round(warm, 2),
                "first / again": round(cold / warm, 2),
                "compiled": compiled,
            }


def seconds(file: Path, cache: Path) -> float:
    """Processor seconds of one `flowlex tu` whose compiled loops are kept in ``cache``."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    subprocess.run([sys.executable, "-m", "flowlex", "tu", str(file)], env=environment, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    for number, row in enumerate(rows()):
        if not number:
            print(" | ".join(row))
        print(" | ".join(str(value) for value in row.values()))
