"""Total unimodularity compared with CMR on the same matrices, with all our proofs verified.

CMR runs if `FLOWLEX_CMR_PYTHON` (or this interpreter) has passagemath-cmr, in separate processes that are killed at the
time limit; its time is that of the test alone, without importing Sage or building the matrix. All times are processor
seconds; ours exclude the compilation of loops.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks import Row, Tables
from flowlex.validation.unimodularity import examples
from flowlex.validation.unimodularity.check import check

#: Time limit of CMR for one matrix, in seconds.
LIMIT = 20.0


def tables(*, quick: bool = False) -> Tables:
    """All tables: title and rows; ``quick`` takes small matrices only."""
    check(examples.jit_matrix(examples.LEMMA_3_FLOWS, 3))  # compile the loops before anything is timed
    check(examples.network(20, 40))
    check(examples.two_sum(examples.r10(), examples.r10()), method="sums")
    check(examples.graphic_and_cographic(12, 22))
    if quick:
        return [("Agreement with CMR on random matrices", agreement_rows(20))]
    return [
        ("Large matrices: flowlex against CMR", [compare(name, matrix) for name, matrix in large()]),
        ("3-sums of a graphic and a cographic part: flowlex against CMR", sum_rows()),
        ("JIT matrices (full windows): flowlex against CMR", jit_rows()),
        ("Agreement with CMR on random matrices", agreement_rows()),
    ]


def large() -> list[tuple[str, sp.csc_array]]:
    """Matrices of several families, up to 5 000 x 20 000, and networks with 10 000 rows."""
    shuffle = np.random.default_rng(0).permutation(5000)
    interval = examples.interval(5000, 20000)
    net = examples.network(5000, 20000)
    mixed = sp.csc_array(interval.tocsr()[shuffle])
    mixed.sort_indices()
    return [
        ("incidence 5 000 x 20 000", examples.incidence(5000, 20000)),
        ("incidence 10 000 x 220 000", examples.incidence(10_000, 220_000)),
        ("interval", interval),
        ("interval, rows shuffled", mixed),
        ("network", net),
        ("network, transposed", sp.csc_array(net.T)),
        ("star of 1 000 two-edge legs", examples.star(1000, 2, 4000)),
        ("star of 1 000 two-edge legs, transposed", sp.csc_array(examples.star(1000, 2, 4000).T)),
        ("star of 500 ten-edge legs", examples.star(500, 10, 20000)),
        ("network 10 000 x 220 000", examples.network(10_000, 220_000, seed=1)),
        ("interval, one gapped column", examples.with_gap(interval)),
        ("network, one sign flipped", flipped(net)),
    ]


def sum_rows() -> list[Row]:
    """Rows of Seymour's 3-sums, which are neither network matrices nor their transposes."""
    sizes = ((12, 22), (40, 80), (80, 80), (160, 160))
    return [compare(f"3-sum {2 * m} x {2 * n}", examples.graphic_and_cographic(m, n)) for m, n in sizes]


def flipped(matrix: sp.csc_array) -> sp.csc_array:
    """Return the matrix with one sign changed in its longest column."""
    spoilt = matrix.copy()
    longest = int(np.argmax(np.diff(spoilt.indptr)))
    middle = int(spoilt.indptr[longest] + spoilt.indptr[longest + 1]) // 2
    spoilt.data[middle] = -spoilt.data[middle]
    return spoilt


def compare(name: str, matrix: sp.csc_array) -> Row:
    """One matrix: our verdict, its verification, CMR's verdict."""
    start = time.process_time()
    verdict = check(matrix)
    ours = time.process_time() - start
    start = time.process_time()
    verified = verdict.verify(matrix)
    proof = time.process_time() - start
    theirs = ask([matrix])[0]
    return {
        "matrix": name,
        "size": f"{matrix.shape[0]} x {matrix.shape[1]}",
        "nonzeros": matrix.nnz,
        "flowlex": verdict.answer.value,
        "by": verdict.method,
        "cpu s": round(ours, 3),
        "verified": verified,
        "verify cpu s": round(proof, 3),
        "CMR": theirs["verdict"],
        "CMR cpu s": theirs["s"],
        "times CMR": round(ours / theirs["s"], 2) if isinstance(theirs["s"], float) and theirs["s"] else "-",
        "agree": theirs["verdict"] == verdict.answer.value if theirs["verdict"] in ("tu", "not_tu") else "-",
    }


def jit_rows() -> list[Row]:
    """Rows of JIT matrices with 10 to 200 transfers and 4 to 20 slots, on few and on many machines."""
    rows = []
    for transfers in (10, 20, 50, 100, 200):
        for slots in (4, 10, 20):
            for machines in (max(2, transfers // 5), transfers):
                flows = examples.random_flows(transfers, machines, seed=transfers + slots)
                rows.append(
                    compare(
                        f"{transfers} transfers, {slots} slots, {machines} machines", examples.jit_matrix(flows, slots)
                    )
                )
    return rows


def agreement_rows(count: int = 1000) -> list[Row]:
    """Count the agreeing verdicts on small random matrices of several kinds."""
    rows = []
    for name, matrices in random_matrices(count).items():
        start = time.process_time()
        verdicts = [check(matrix) for matrix in matrices]
        ours = time.process_time() - start
        theirs = ask(matrices)
        known = [(v, t) for v, t in zip(verdicts, theirs, strict=True) if t["verdict"] in ("tu", "not_tu")]
        rows.append(
            {
                "kind": name,
                "matrices": len(matrices),
                "tu": sum(v.is_tu for v in verdicts),
                "undecided": sum(v.answer.value == "undecided" for v in verdicts),
                "verified": sum(v.verify(m) for v, m in zip(verdicts, matrices, strict=True)),
                "cpu ms each": round(1000 * ours / len(matrices), 2),
                "CMR cpu ms each": round(1000 * statistics.mean(t["s"] for _, t in known), 2) if known else "-",
                "compared": len(known),
                "agree": sum(v.answer.value == t["verdict"] for v, t in known),
            }
        )
    return rows


def random_matrices(count: int, seed: int = 0) -> dict[str, list[np.ndarray]]:
    """Sparse random signs, JIT matrices, and network matrices of which every other one has one wrong entry."""
    generator = np.random.default_rng(seed)
    signs = [generator.choice([-1, 0, 1], size=generator.integers(3, 13, 2), p=[0.15, 0.7, 0.15]) for _ in range(count)]
    jit = [
        examples.jit_matrix(
            examples.random_flows(int(generator.integers(2, 9)), 4, seed=k), int(generator.integers(2, 5))
        ).toarray()
        for k in range(count)
    ]
    networks = []
    for k in range(count):
        dense = examples.network(8, 14, seed=k).toarray()
        if k % 2:
            row, column = generator.integers(8), generator.integers(14)
            dense[row, column] = (dense[row, column] + 2) % 3 - 1
        networks.append(dense)
    return {"random signs": signs, "JIT": jit, "network, half of them spoilt": networks}


def cmr_python() -> str | None:
    """Return the interpreter with CMR: `FLOWLEX_CMR_PYTHON`, this one, or None."""
    here = sys.executable if find_spec("passagemath_cmr") is not None else None
    return os.environ.get("FLOWLEX_CMR_PYTHON") or here


def ask(matrices: Sequence[Any]) -> list[dict[str, Any]]:
    """Test matrices with CMR in one process; report time-outs and errors of matrices on which it is killed or fails."""
    python = cmr_python()
    if python is None:
        return [{"verdict": "-", "s": "-"} for _ in matrices]
    lines = []
    for matrix in matrices:
        coo = sp.coo_array(matrix)
        entries = np.stack([coo.row, coo.col, coo.data], axis=1).astype(int).tolist()
        lines.append(json.dumps({"shape": [int(s) for s in coo.shape], "entries": entries, "seconds": 10 * LIMIT}))
    command = [python, str(Path(__file__).with_name("cmr_peer.py"))]
    limit = LIMIT + 12 if len(lines) == 1 else 600.0
    try:
        done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, timeout=limit)
        output = done.stdout
    except subprocess.TimeoutExpired as late:
        output = late.stdout.decode() if isinstance(late.stdout, bytes) else (late.stdout or "")
    answers = []
    for line in output.splitlines():
        answer = json.loads(line)
        verdict = {True: "tu", False: "not_tu", None: "error"}[answer["tu"]]
        answers.append({"verdict": verdict, "s": round(answer["seconds"], 4)})
    return answers + [{"verdict": "time-out", "s": f"> {LIMIT:.0f}"}] * (len(lines) - len(answers))
