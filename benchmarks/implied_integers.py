"""Implied integers: the number detected in textbook models, and the effect on HiGHS.

SCIP's count is that of its presolver `implint` alone (off by default; here with `convertintegers`, and without the
other presolvers, which would fix columns and thereby hide them). It needs pyscipopt in `FLOWLEX_SCIP_PYTHON` or in this
interpreter; the models are passed as MPS files.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import highspy
import numpy as np

from benchmarks import Row, Tables
from benchmarks.textbook_models import MODELS
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.program_files import write_program
from flowlex.instances.generators.registry import generate
from flowlex.models.registry import model_for
from flowlex.validation.unimodularity.implied_integers.integrality_proof import ImpliedIntegers
from flowlex.validation.unimodularity.implied_integers.search import implied_integers
from flowlex.validation.unimodularity.matrix_adapters import matrix_of
from flowlex.validation.unimodularity.named_matrix import NamedMatrix

#: Sizes that take HiGHS measurable time.
LARGER: dict[str, dict[str, int]] = {
    "fixed_charge": {"plants": 40, "sites": 60},
    "facility_location": {"customers": 60, "sites": 30},
    "capacitated_facility": {"customers": 40, "sites": 25},
    "lot_sizing": {"periods": 60},
    "assignment": {"size": 60},
    "transportation": {"plants": 40, "sites": 60},
    "network_design": {"nodes": 20, "arcs": 80, "goods": 4},
    "set_cover": {"rows": 60, "columns": 80},
    "knapsack": {"items": 60},
    "shift_scheduling": {"hours": 168},
    "generalised_assignment": {"agents": 6, "jobs": 30},
    "unit_commitment": {"units": 12, "hours": 24},
    "fixed_charge_transport": {"plants": 8, "sites": 10},
    "capacitated_lot_sizing": {"items": 6, "periods": 12},
}

#: Sizes at which HiGHS branches; each with `SEEDS`.
HARD: dict[str, dict[str, int]] = {
    "fixed_charge_transport": {"plants": 11, "sites": 13},
    "capacitated_facility": {"customers": 60, "sites": 40},
    "network_design": {"nodes": 12, "arcs": 48, "goods": 8},
    "capacitated_lot_sizing": {"items": 8, "periods": 12},
    "unit_commitment": {"units": 16, "hours": 24},
}
SEEDS = range(3)

#: Generators of instances of our own models.
OURS = (
    "kubeflow-testbed",
    "pods-scale",
    "gpu-testbed",
    "flow-testbed",
    "inference-cluster",
    "network-random",
    "jit-random",
    "gavel-like",
)

#: Time limit of one run of HiGHS, in seconds.
LIMIT_S = 20.0


def tables(*, quick: bool = False) -> Tables:
    """Textbook models, hard ones, our own."""
    implied_integers(MODELS["fixed_charge"]())  # compile the loops before anything is timed
    rows = [compare(name, make(**({} if quick else LARGER[name]))) for name, make in MODELS.items()]
    found = [("Implied integers: what is found, and what HiGHS gains without the declarations", rows)]
    if quick:
        return found
    hard = [totals(name, size) for name, size in HARD.items()]
    return [
        *found,
        (f"The same where HiGHS branches: sums over {len(SEEDS)} seeds, at most {LIMIT_S:.0f} s a run", hard),
        ("Our own models, every column declared integer", [ours(name) for name in OURS]),
    ]


def totals(name: str, size: dict[str, int]) -> Row:
    """Sums over seeds."""
    rows = [compare(name, MODELS[name](**size, seed=seed)) for seed in SEEDS]
    sums = {
        key: round(sum(float(str(row[key])) for row in rows), 2)
        for key in ("HiGHS s", "without s", "HiGHS nodes", "without nodes")
    }
    return {
        "model": f"{name} {' x '.join(map(str, size.values()))}",
        "integers": rows[0]["integers"],
        "dropped": rows[0]["dropped"],
        "SCIP implied": rows[0]["SCIP implied"],
        **sums,
        "fewer nodes": sum(int(str(row["without nodes"])) < int(str(row["HiGHS nodes"])) for row in rows),
        "quicker": sum(float(str(row["without s"])) < float(str(row["HiGHS s"])) for row in rows),
        "same optimum": all(row["same optimum"] for row in rows),
    }


def ours(name: str) -> Row:
    """Declare every column of one of our models integer; return the row of detected implied integers."""
    formulation = model_for(generate(name)).formulation
    named = matrix_of(formulation)
    assert named.program is not None
    declared = int(named.program.integer.sum())
    every = replace(named, program=replace(named.program, integer=np.ones(named.shape[1], dtype=bool)))
    start = time.process_time()
    found = implied_integers(every)
    return {
        "instance": name,
        "columns": named.shape[1],
        "declared by the model": declared,
        "dropped of all": len(found.dropped),
        "verified": found.verify(every),
        "cpu s": round(time.process_time() - start, 3),
        "kept": ", ".join(sorted({n.partition("[")[0] for n in _kept(every, found)})) or "-",
    }


def _kept(named: NamedMatrix, found: ImpliedIntegers) -> tuple[str, ...]:
    return named.names_of_columns(np.setdiff1d(np.arange(named.shape[1]), found.dropped).tolist())


def compare(name: str, program: LinearProgram) -> Row:
    """Detect implied integers; run HiGHS with and without the declarations."""
    start = time.process_time()
    found = implied_integers(program)
    seconds = time.process_time() - start
    full, rest = run_highs(program, ()), run_highs(program, found.dropped)
    return {
        "model": name,
        "integers": found.declared,
        "dropped": len(found.dropped),
        "verified": found.verify(program),
        "cpu s": round(seconds, 3),
        "SCIP implied": scip_count(program),
        "HiGHS s": full["seconds"],
        "without s": rest["seconds"],
        "HiGHS nodes": full["nodes"],
        "without nodes": rest["nodes"],
        "same optimum": abs(float(full["objective"]) - float(rest["objective"])) <= 1e-6 * (1 + abs(full["objective"])),
    }


def run_highs(program: LinearProgram, dropped: tuple[int, ...]) -> dict[str, float]:
    """Solve with HiGHS, with columns ``dropped`` continuous."""
    from flowlex.formulations.engines.highs import pass_model

    solver = highspy.Highs()
    for option, value in (("log_to_console", False), ("time_limit", LIMIT_S), ("threads", 1), ("mip_rel_gap", 0.0)):
        solver.setOptionValue(option, value)
    pass_model(solver, program.arrays())
    for column in dropped:
        solver.changeColIntegrality(column, highspy.HighsVarType.kContinuous)
    start = time.process_time()
    solver.run()
    info = solver.getInfo()
    return {
        "seconds": round(time.process_time() - start, 2),
        "nodes": max(0, int(info.mip_node_count)),
        "objective": float(info.objective_function_value),
    }


_SCIP = """
import sys
from pyscipopt import Model, SCIP_PARAMSETTING
model = Model()
model.hideOutput()
model.readProblem(sys.argv[1])
model.setPresolve(SCIP_PARAMSETTING.OFF)
for name, value in (("maxrounds", -1), ("implint/maxrounds", -1), ("implint/convertintegers", True)):
    model.setParam(f"presolving/{name}", value)
model.presolve()
print(sum(v.isImpliedIntegral() for v in model.getVars(transformed=True)))
"""


def scip_count(program: LinearProgram) -> object:
    """Columns that SCIP's presolving calls implied integers; "-" without pyscipopt."""
    python = os.environ.get("FLOWLEX_SCIP_PYTHON") or (sys.executable if find_spec("pyscipopt") else None)
    if python is None:
        return "-"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.mps"
        write_program(program.named(), path)
        done = subprocess.run([python, "-c", _SCIP, str(path)], capture_output=True, text=True, timeout=120)
    return int(done.stdout) if done.returncode == 0 else "-"
