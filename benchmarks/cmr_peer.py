"""Time CMR in a separate process: reads matrices as JSON lines, writes verdicts and processor seconds as JSON lines.

Run with an interpreter that has passagemath-cmr; it does not import flowlex.
"""

from __future__ import annotations

import json
import sys
import time

#: On some inputs CMR answers "User input error"; another setting often helps.
SETTINGS: tuple[dict[str, object], ...] = (
    {},
    {"decompose_strategy": "delta_pivot"},
    {"use_direct_graphicness_test": False},
    {"series_parallel_ok": False},
)


def main() -> None:
    from sage.all__sagemath_modules import ZZ, MatrixSpace
    from sage.matrix.matrix_cmr_sparse import Matrix_cmr_chr_sparse

    for line in sys.stdin:
        question = json.loads(line)
        rows, columns = question["shape"]
        entries = {(row, column): value for row, column, value in question["entries"]}
        held = Matrix_cmr_chr_sparse(MatrixSpace(ZZ, rows, columns, sparse=True), entries)
        start = time.process_time()
        for settings in SETTINGS:
            try:
                answer = bool(held.is_totally_unimodular(time_limit=question["seconds"], **settings))
                reason = ""
                break
            except Exception as error:
                answer, reason = None, f"{type(error).__name__}: {error}"
        seconds = time.process_time() - start
        print(json.dumps({"tu": answer, "seconds": seconds, "reason": reason}), flush=True)


if __name__ == "__main__":
    main()
