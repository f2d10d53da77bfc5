"""Runs CMR in a process of its own: one matrix on standard input, one answer on standard output.

A script, not a module of the package: it is started by path with the interpreter that has passagemath-cmr, and
imports nothing of ours. Importing Sage replaces signal handlers and CMR leaks memory, so it must not live in
the caller's process.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def main() -> None:
    """Read the question, print the answer; problems of CMR's are reported in the answer."""
    question = json.load(sys.stdin)
    try:
        answer = decide(question)
    except Exception as error:  # a report to the parent, whatever CMR raised
        answer = {"status": "error", "reason": f"{type(error).__name__}: {error}"}
    json.dump(answer, sys.stdout)


def decide(question: dict[str, Any]) -> dict[str, Any]:
    """Ask CMR; the decomposition comes back as nested lists of the labels of its nodes."""
    from sage.all__sagemath_modules import ZZ, MatrixSpace
    from sage.matrix.matrix_cmr_sparse import Matrix_cmr_chr_sparse

    rows, columns = question["shape"]
    entries = {(row, column): value for row, column, value in question["entries"]}
    held = Matrix_cmr_chr_sparse(MatrixSpace(ZZ, rows, columns, sparse=True), entries)
    tu, proof = held.is_totally_unimodular(
        certificate=True,
        time_limit=float(question["seconds"]),
        row_keys=[f"r{row}" for row in range(rows)],
        column_keys=[f"c{column}" for column in range(columns)],
        **question["settings"],
    )
    if not tu:
        _, submatrix = proof
        if submatrix is None:
            return {"status": "not tu", "rows": None, "columns": None}
        return {
            "status": "not tu",
            "rows": [int(str(row).lstrip("r")) for row in submatrix[0]],
            "columns": [int(str(column).lstrip("c")) for column in submatrix[1]],
        }
    return {"status": "tu", "tree": describe(proof)}


def describe(node: Any) -> dict[str, Any]:
    """A node of the decomposition as plain data."""
    try:
        children = [describe(child) for child in node.child_nodes()]
    except ValueError:  # "Child 1 does not have parents columns": CMR cannot say where its own child comes from
        children = []
    keys = [*(node.row_keys() or ()), *(node.column_keys() or ())]
    return {
        "kind": type(node).__name__.removesuffix("Node"),
        "labels": [key for key in keys if isinstance(key, str)],
        "children": children,
    }


if __name__ == "__main__":
    main()
