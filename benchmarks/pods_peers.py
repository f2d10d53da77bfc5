"""A program over pods and nodes in an MPS file, solved by OR-Tools CP-SAT or by plain HiGHS, in a process of its own.

Run as ``python benchmarks/pods_peers.py FILE.mps SECONDS cp-sat|highs``; prints JSON: answer, bound, seconds.
"""

from __future__ import annotations

import json
import sys
import time


def cp_sat(path: str, seconds: float) -> tuple[float | None, float | None]:
    """Answer and bound of CP-SAT, which scales the coefficients to integers."""
    from ortools.linear_solver.python import model_builder

    model = model_builder.Model()
    if not model.import_from_mps_file(path):
        raise ValueError(f"{path} is not read")
    solver = model_builder.Solver("sat")
    solver.set_time_limit_in_seconds(seconds)
    solver.set_solver_specific_parameters("mip_var_scaling:10000")  # else continuous variables become whole numbers
    status = solver.solve(model)
    found = status in (model_builder.SolveStatus.OPTIMAL, model_builder.SolveStatus.FEASIBLE)
    return (solver.objective_value if found else None), solver.best_objective_bound


def highs(path: str, seconds: float) -> tuple[float | None, float | None]:
    """Answer and bound of HiGHS with its defaults."""
    import highspy

    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("time_limit", seconds)
    solver.readModel(path)
    solver.run()
    info = solver.getInfo()
    found = info.primal_solution_status == 2
    return (info.objective_function_value if found else None), info.mip_dual_bound


if __name__ == "__main__":
    started = time.perf_counter()
    answer, bound = {"cp-sat": cp_sat, "highs": highs}[sys.argv[3]](sys.argv[1], float(sys.argv[2]))
    print(json.dumps({"answer": answer, "bound": bound, "seconds": time.perf_counter() - started}))
