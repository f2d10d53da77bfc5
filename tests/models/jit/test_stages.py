"""Every stage of P2 has a program, and duals are the savings of changed ports or sizes, by SciPy's linear programs."""

from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linprog

from flowlex.instances import generate
from flowlex.models.jit.model import JitBandwidth
from flowlex.models.jit.solution import JitSolution
from flowlex.models.jit.transfer_slot_grid import Grid
from flowlex.models.model_base import ModelError


def goals(grid: Grid, slots: int, load: str, room: np.ndarray, units: np.ndarray) -> list[float]:
    """Least lateness, then the loads at every level from the highest down, each with those before it fixed.

    One variable per transfer and slot from its start, then one per load and level; ``room`` is (ports, slots).
    """
    machines = len(grid.out_units)
    f, t = (a.ravel() for a in np.meshgrid(np.arange(grid.count), np.arange(slots), indexing="ij"))
    kept = t >= grid.start[f]
    f, t = f[kept], t[kept]
    ports = [grid.sender[f] * slots + t, (grid.receiver[f] + machines) * slots + t]
    loads = ports if load == "port" else [grid.pair[f] * slots + t]
    kinds = 2 * machines if load == "port" else int(grid.pair.max()) + 1
    top = int(max(grid.out_units.max(), grid.in_units.max()))
    rates, pieces = len(f), kinds * slots
    ones, columns = np.ones(rates), np.arange(rates)

    def wide(matrix: Any) -> Any:
        return sparse.hstack([matrix, sparse.csr_array((matrix.shape[0], pieces * top))])

    port = sum(sparse.csr_array((ones, (rows, columns)), shape=(2 * machines * slots, rates)) for rows in ports)
    load_of = sum(sparse.csr_array((ones, (rows, columns)), shape=(pieces, rates)) for rows in loads)
    link = sparse.hstack([load_of, *[-sparse.eye_array(pieces)] * top])
    size = wide(sparse.csr_array((ones, (f, columns)), shape=(grid.count, rates)))
    equal, right = sparse.vstack([size, link]), np.concatenate([units, np.zeros(pieces)])
    less, most = [wide(port)], [room.ravel()]
    late = np.concatenate([np.maximum(t + 1 - grid.due[f], 0), np.zeros(pieces * top)])
    costs = [late]
    for level in range(top, 0, -1):
        cost = np.zeros(rates + pieces * top)
        cost[rates + (level - 1) * pieces :][:pieces] = 1
        costs.append(cost)
    bounds = [(0, None)] * rates + [(0, 1)] * (pieces * top)
    found = []
    for cost in costs:
        answer = linprog(cost, sparse.vstack(less), np.concatenate(most), equal, right, bounds)
        assert answer.status == 0, answer.message
        found.append(answer.fun)
        less.append(sparse.csr_array(cost[None, :]))
        most.append(np.array([answer.fun + 1e-9]))
    return found


def first_goal(solution: JitSolution, name: str, label: str, top: int) -> int:
    """Return the index of the first goal with a dual for the given row."""
    names = [machine.name for machine in solution.grid.instance.machines]
    for level in (-1, *range(top, 0, -1)):
        for part in solution.plan_parts:
            for proof in part.proofs:
                if proof.level != level:
                    continue
                if name == "size":
                    own = [solution.grid.instance.transfer_names[k] for k in part.transfers]
                    priced = label in own and bool(proof.lam[own.index(label)])
                else:
                    machine, slot = label.split("..")[0].rsplit(",", 1)
                    unit = names.index(machine) + len(names) * (name == "ingress")
                    p = proof.port
                    priced = bool(
                        ((p.unit == unit) & (p.begin <= int(slot)) & (p.end > int(slot)) & (p.price > 0)).any()
                    )
                if priced:
                    return 0 if level == -1 else top - level + 1
    raise AssertionError(f"no goal prices {name} {label}")


@pytest.mark.parametrize(
    ("seed", "options"),
    [
        (22, {"load": "port"}),
        (3, {"load": "pair"}),
        (5, {"load": "port", "presolve": False}),
        (8, {"load": "pair", "presolve": False}),
    ],
)
def test_duals_are_what_a_unit_saves(seed: int, options: dict[str, Any]) -> None:
    instance = generate("jit-random", seed=seed, machines=3, jobs=3, transfers=3, slots=3, capacity=3)
    solution = JitBandwidth(instance, share=1.0, **options).solve("highs")
    grid, load = solution.grid, solution.load
    slots, machines = int(max(solution.grid.stop.max(), solution.blocks.end.max())) + 2, len(grid.out_units)
    room = np.repeat(np.concatenate([grid.out_units, grid.in_units])[:, None], slots, axis=1).astype(float)
    base, top = goals(grid, slots, load, room, grid.units.astype(float)), int(room.max())
    names = [machine.name for machine in instance.machines]
    exact = 0
    for name, dual in solution.duals.items():
        for label, price in dual.to_dict().items():
            changed, units = room.copy(), grid.units.astype(float)
            if name == "size":
                units[[grid.name(k) for k in range(grid.count)].index(label)] -= 1
            else:
                machine, slot = label.split("..")[0].rsplit(",", 1)
                changed[names.index(machine) + machines * (name == "ingress"), int(slot)] += 1
            goal = first_goal(solution, name, label, top)
            new = goals(grid, slots, load, changed, units)
            assert new[:goal] == pytest.approx(base[:goal], abs=1e-5)
            saved = base[goal] - new[goal]
            assert -1e-5 <= saved <= abs(price) + 1e-5
            exact += abs(saved - abs(price)) < 1e-5
    assert exact > 0


def test_stages_that_do_not_exist_are_named() -> None:
    instance = generate("jit-figure4")
    with pytest.raises(ModelError, match="there is no stage 'level_9'; the stages are: lateness, level_4"):
        _ = JitBandwidth(instance, stage="level_9").formulation
    with pytest.raises(ModelError, match="no stage 'lateness'; the stages are: level_1"):
        _ = JitBandwidth(instance, lat="paper-job", windows="strict", stage="lateness").formulation
