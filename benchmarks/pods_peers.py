"""Solve a program over pods and nodes in an MPS file by OR-Tools CP-SAT or plain HiGHS (see `peers`).

Each returns the values of the columns in order (None without an answer), and a bound.
"""

from __future__ import annotations

from collections.abc import Callable

Answer = tuple[list[float] | None, float | None]


def cp_sat(path: str, seconds: float) -> Callable[[], Answer]:
    """Prepare CP-SAT, which scales the coefficients to integers; its bound is for the scaled program."""
    from ortools.linear_solver.python import model_builder

    def run() -> Answer:
        model = model_builder.Model()
        if not model.import_from_mps_file(path):
            raise ValueError(f"{path} is not read")
        solver = model_builder.Solver("sat")
        solver.set_time_limit_in_seconds(seconds)
        # The largest load has no upper bound; without the second option it is not scaled and rounded to whole percents.
        solver.set_solver_specific_parameters("mip_var_scaling:10000 mip_scale_large_domain:true")
        if solver.solve(model) not in (model_builder.SolveStatus.OPTIMAL, model_builder.SolveStatus.FEASIBLE):
            return None, None
        return [solver.value(model.var_from_index(k)) for k in range(model.num_variables)], solver.best_objective_bound

    return run


def highs(path: str, seconds: float) -> Callable[[], Answer]:
    """Prepare HiGHS with its defaults."""
    import highspy

    def run() -> Answer:
        solver = highspy.Highs()
        solver.setOptionValue("output_flag", False)
        solver.setOptionValue("time_limit", seconds)
        solver.readModel(path)
        solver.run()
        info = solver.getInfo()
        return list(solver.getSolution().col_value) if info.primal_solution_status == 2 else None, info.mip_dual_bound

    return run
