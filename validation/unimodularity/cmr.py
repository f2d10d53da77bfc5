"""Step 7: CMR's Seymour decomposition, through the optional extra ``tu`` (passagemath-cmr, GPL), out of process.

Importing Sage replaces signal handlers, CMR leaks, can run for minutes, and at its own time limit throws away
what it knows. So every question starts a process of its own (`cmr_worker`), which is killed when time is up.
What comes back is never believed as such: a witness goes through the exact determinant, and a decomposition
only tells where to split (`separation_from`): the operands are built and settled by our own steps, so that the
certificate is ours and `verify` needs no CMR. Where that fails the certificate says ``cmr``, and verifying it
means asking CMR again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from flowlex.validation.unimodularity.sums import Separation, separation_of

__all__ = ["CmrAnswer", "ask_cmr", "cmr_python", "read_answer", "separation_from"]

#: Names another interpreter that has passagemath-cmr (its 780 MB need not be in this environment).
VARIABLE = "FLOWLEX_CMR_PYTHON"

#: Tried in turn when CMR refuses an input or cannot describe its decomposition.
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"decompose_strategy": "delta_pivot"},
    {"decompose_strategy": "y_three", "use_direct_graphicness_test": False},
)

#: Seconds that starting Python and importing Sage may take on top of the limit.
START_UP = 15.0


@dataclass(frozen=True)
class CmrAnswer:
    """What CMR said.

    Attributes
    ----------
    status
        ``"tu"``, ``"not tu"``, ``"missing"`` (no passagemath-cmr), ``"time limit"`` or ``"error"``.
    witness
        Rows and columns of a violating submatrix (unverified).
    tree
        The decomposition: ``kind``, ``labels`` (``r3``, ``c7``: original rows and columns), ``children``.
    reason
        Of an error.
    """

    status: str
    witness: tuple[list[int], list[int]] | None = None
    tree: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""


def cmr_python() -> str | None:
    """The interpreter that can import CMR: the one named in the environment, this one, or None."""
    named = os.environ.get(VARIABLE)
    if named:
        return named
    return sys.executable if find_spec("passagemath_cmr") is not None else None


def ask_cmr(matrix: sp.csc_array, *, seconds: float = 60.0, start_up_s: float = START_UP) -> CmrAnswer:
    """Ask CMR about a {-1, 0, 1} matrix, in a process that is killed after ``seconds`` plus ``start_up_s``."""
    python = cmr_python()
    if python is None:
        return CmrAnswer("missing", reason="passagemath-cmr is not installed; pip install 'flowlex[tu]'")
    entries = matrix.tocoo()
    question = {
        "shape": [int(side) for side in matrix.shape],
        "entries": np.stack([entries.row, entries.col, entries.data], axis=1).astype(int).tolist(),
        "seconds": 10 * seconds,
    }
    answer = CmrAnswer("error", reason="not asked")
    for settings in SETTINGS:
        answer = _once(python, {**question, "settings": settings}, seconds + start_up_s)
        if answer.status != "error":
            break
    return answer


def _once(python: str, question: dict[str, Any], seconds: float) -> CmrAnswer:
    worker = Path(__file__).with_name("cmr_worker.py")
    try:
        process = subprocess.run(
            [python, str(worker)], input=json.dumps(question), capture_output=True, text=True, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        return CmrAnswer("time limit", reason=f"killed after {seconds:.0f} s")
    except OSError as error:
        return CmrAnswer("missing", reason=f"{python}: {error.strerror or error}")
    if process.returncode != 0:
        last = (process.stderr.strip().splitlines() or ["no message"])[-1]
        return CmrAnswer("error", reason=f"exit code {process.returncode}: {last}")
    return read_answer(process.stdout)


def read_answer(text: str) -> CmrAnswer:
    """Translate the worker's answer."""
    try:
        answer = json.loads(text)
        status = answer["status"]
        if status == "not tu":
            rows, columns = answer["rows"], answer["columns"]
            return CmrAnswer("not tu", None if rows is None else (list(rows), list(columns)))
        if status == "tu":
            return CmrAnswer("tu", tree=answer["tree"])
        return CmrAnswer("error", reason=str(answer["reason"]))
    except (ValueError, KeyError, TypeError) as error:
        return CmrAnswer("error", reason=f"unreadable answer ({error})")


def separation_from(matrix: sp.csc_array, tree: Mapping[str, Any]) -> Separation | None:
    """Find in a decomposition a split of the rows and columns that is a 2- or 3-sum of this matrix.

    The first node with two children is looked at. Labels in both children are connecting elements; every way
    to share them out is tried.
    """
    while len(tree.get("children", [])) == 1:
        tree = tree["children"][0]
    children = tree.get("children", [])
    if len(children) != 2:
        return None
    one, two = (_originals(child) for child in children)
    shared = sorted(one & two)
    rows = int(matrix.shape[0])
    best: Separation | None = None
    for choice in product((False, True), repeat=min(len(shared), 8)):
        inside = (one - two) | {label for label, take in zip(shared, choice, strict=False) if take}
        flags = np.zeros(sum(matrix.shape), dtype=bool)
        for label in inside:
            flags[int(label[1:]) + (rows if label[0] == "c" else 0)] = True
        split = separation_of(matrix, flags[:rows], flags[rows:])
        if split is not None and split.other_row < 0:
            return split  # a 2-sum goes first: the operands of a 3-sum need not be minors unless there is none
        best = best or split
    return best


def _originals(tree: Mapping[str, Any]) -> set[str]:
    return {label for label in tree["labels"] if label[:1] in "rc" and label[1:].isdigit()}
