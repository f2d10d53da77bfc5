"""A program over pods and nodes in an MPS file, solved by OR-Tools CP-SAT or by plain HiGHS, in a process of its own.

Run as ``python benchmarks/pods_peers.py FILE.mps SECONDS cp-sat|highs``; prints JSON: values of the columns, in order
(null without an answer), bound, seconds.
"""

from __future__ import annotations

import json
import sys
import time


def cp_sat(path: str, seconds: float) -> tuple[list[float] | None, float | None]:
    """Values and bound of CP-SAT, which scales the coefficients to integers; the bound is that of what it scaled."""
    from ortools.linear_solver.python import model_builder

    model = model_builder.Model()
    if not model.import_from_mps_file(path):
        raise ValueError(f"{path} is not read")
    solver = model_builder.Solver("sat")
    solver.set_time_limit_in_seconds(seconds)
    # The largest load has no upper bound: without the second, it is not scaled and becomes a whole number of percent.
    solver.set_solver_specific_parameters("mip_var_scaling:10000 mip_scale_large_domain:true")
    status = solver.solve(model)
    if status not in (model_builder.SolveStatus.OPTIMAL, model_builder.SolveStatus.FEASIBLE):
        return None, None
    return [solver.value(model.var_from_index(k)) for k in range(model.num_variables)], solver.best_objective_bound


def highs(path: str, seconds: float) -> tuple[list[float] | None, float | None]:
    """Values and bound of HiGHS with its defaults."""
    import highspy

    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("time_limit", seconds)
    solver.readModel(path)
    solver.run()
    info = solver.getInfo()
    return (list(solver.getSolution().col_value) if info.primal_solution_status == 2 else None), info.mip_dual_bound


if __name__ == "__main__":
    started = time.perf_counter()
    values, bound = {"cp-sat": cp_sat, "highs": highs}[sys.argv[3]](sys.argv[1], float(sys.argv[2]))
    print(json.dumps({"values": values, "bound": bound, "seconds": time.perf_counter() - started}))
