"""Bounds with aggregated rows of similar groups: equal to those of all groups, proven by the certificate."""

from typing import Any

import numpy as np
import pytest

from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.solver_outcome import SolveOptions, Status
from flowlex.instances.generators import generate
from flowlex.instances.pods import PodInstance, fits_wishes
from flowlex.models.pods.methods import node_class_relaxation
from flowlex.models.pods.methods import row_aggregation as cells
from flowlex.models.pods.methods.balance import tangents
from flowlex.models.pods.model import PodPlacement
from flowlex.models.pods.problem.balance_measures import MEASURES


def unlike(nodes: int, pods: int, seed: int) -> PodInstance:
    """Return an instance without identical pods; every ninth runs on the first node and may move."""
    whole: Any = generate("pods-scale", nodes=nodes, pods=pods, seed=seed)
    rng = np.random.default_rng(seed)
    changed = []
    for k, (pod, part) in enumerate(zip(whole.pods, rng.uniform(0.5, 1.0, (pods, 2)).tolist(), strict=True)):
        sizes: dict[str, Any] = {"cpu_cores": pod.cpu_cores * part[0], "memory_gb": pod.memory_gb * part[1]}
        if k % 9 == 0 and not pod.wants_gpu and fits_wishes(pod, whole.nodes[0]):
            sizes |= {"node": whole.nodes[0].name, "move_cost": 1.0, "cpu_cores": 0.01, "memory_gb": 0.01}
        changed.append(pod.model_copy(update=sizes))
    return whole.model_copy(update={"pods": tuple(changed)})


@pytest.mark.parametrize(("nodes", "pods", "seed"), [(6, 40, 1), (4, 60, 2)])
def test_cells_prove_what_all_groups_prove(nodes: int, pods: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = PodPlacement(unlike(nodes, pods, seed), move_budget=2.0)
    found, options = model.solve("highs", max_steps=200), SolveOptions()
    admitted = model.levels.total(found.node >= 0)
    points = tangents(len(model.bounds.classes.count))
    told: list[list[float]] = []
    for groups in (10**9, 0):  # one program, then aggregated rows
        monkeypatch.setattr(node_class_relaxation, "_GROUPS", groups)
        most = [model.bounds.most(k, admitted[:k], options) for k in range(len(admitted))]
        even = [model.bounds.even(MEASURES[name], admitted, points, options) for name in MEASURES]
        told.append([each.bound for each in most if each] + [each[0].bound for each in even if each])
    assert len(told[0]) == len(told[1]) == len(admitted) + len(MEASURES)
    whole, parts = (np.array(each) for each in told)
    n = len(admitted)
    assert (parts[:n] >= whole[:n] - 1e-6).all() and (parts[n:] <= whole[n:] + 1e-6).all()  # never tighter
    np.testing.assert_allclose(parts, whole, rtol=1e-5, atol=1e-6)
    assert len(np.unique(model.bounds.cell)) < len(model.groups.count)


def test_bounds_over_cells_are_certified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_class_relaxation, "_GROUPS", 0)
    instance = unlike(12, 400, 5)
    solution = PodPlacement(instance, absolute_gap=0.01).solve("highs", gap=0.05, max_steps=2_000)
    assert solution.certificate is not None and solution.certificate.claim in ("bounded", "optimal")
    assert sum(most for _, _, most in solution.admitted.values()) < len(instance.pods)  # overload, proven


def test_cells_are_halved_where_they_have_no_answer() -> None:
    def program(room: float) -> LinearProgram:
        """Four pods of 1, 2, 3, 4 on two nodes of 7 and ``room``: complete cells do not fit."""
        size, group, kind = np.array([1.0, 2, 3, 4]), np.repeat(np.arange(4), 2), np.tile([0, 1], 4)
        lp = LinearProgram("halves")
        x = lp.variables("x", 8)
        lp.constrain("group", x.sum_by(group, 4), "==", 1.0)
        lp.constrain("room", (x * size[group]).sum_by(kind, 2), "<=", [7.0, room])
        lp.constrain("small", x[[1, 3]].sum(), "==", 2.0)  # the two smallest on the second
        lp.minimize(x[[0, 2, 4, 6]].sum())
        return lp

    choices = cells.Choices(
        np.arange(8), np.repeat(np.arange(4), 2), np.tile([0, 1], 4), np.arange(4), np.ones(4), np.zeros(4, bool)
    )
    start, size = np.zeros(4, np.int64), np.arange(4.0)
    found, cell = cells.solve_by_cells(program(5.0).arrays(), choices, start, size, SolveOptions())
    assert found.status is Status.OPTIMAL and found.objective == pytest.approx(4 / 3) and len(set(cell)) > 1
    failed, _ = cells.solve_by_cells(program(2.0).arrays(), choices, start, size, SolveOptions())
    assert failed.status is Status.INFEASIBLE
