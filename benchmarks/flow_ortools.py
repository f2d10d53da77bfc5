"""OR-Tools from scratch on saved arrays, in a process of its own (ortools and highspy clash when loaded together).

Run as ``python benchmarks/flow_ortools.py FILE.npz REPEATS``; prints JSON: processor seconds of each repeat, the cost.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np


def main(path: str, repeats: int) -> None:
    from ortools.graph.python import min_cost_flow

    with np.load(path) as data:
        tail, head, capacity, cost, supply = (data[name] for name in ("tail", "head", "capacity", "cost", "supply"))
    seconds = []
    total = 0
    for _ in range(repeats):
        started = time.process_time()
        solver = min_cost_flow.SimpleMinCostFlow()
        arcs = solver.add_arcs_with_capacity_and_unit_cost(tail, head, capacity, cost)
        solver.set_nodes_supplies(np.arange(len(supply)), supply)
        if (status := solver.solve()) != solver.OPTIMAL:
            raise SystemExit(f"OR-Tools found no optimum: {status}")
        solver.flows(arcs)
        seconds.append(time.process_time() - started)
        total = solver.optimal_cost()
    print(json.dumps({"seconds": seconds, "cost": total}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
