"""The interface of all models: checked options, equations stated once, consistent answers and refusals."""

import dataclasses
import json
import typing
from typing import Any

import numpy as np
import pulp
import pytest

from flowlex import Allocation, FlowScheduling, JitBandwidth, PodPlacement
from flowlex.formulations import EngineError, FlowNetwork
from flowlex.instances import generate
from flowlex.models import Dual, ModelError, model_for, solve
from flowlex.models.allocation.model import Policy
from flowlex.models.flow.goals import FairShares
from flowlex.models.model_options import options_of
from flowlex.models.problem import KEPT
from flowlex.models.registry import model_class, model_options
from tests.pulp_solver import solver_of_pulp

TINY = {
    "allocation": "gavel-like",
    "flow-scheduling": "flow-testbed",
    "gpu-assignment": "gpu-figure1",
    "jit-bandwidth": "jit-figure4",
    "load-partition": "inference-cluster",
    "min-cost-flow": "network-random",
    "pod-placement": "kubeflow-testbed",
}


def rows_of(model: Any) -> set[str]:
    """Names of the rows of a formulation; of a network: conservation at every node, and stated bounds of arcs."""
    formulation = model.formulation
    if isinstance(formulation, FlowNetwork):
        return {*formulation.node_blocks, *(formulation.arc_blocks.keys() & model.declared())}
    return {name for name, block in formulation.constraint_blocks.items() if block.count and not name.endswith(KEPT)}


def choices(kind: str) -> list[dict[str, str]]:
    """Yield no option, then each value of each option with an enumerated choice."""
    found: list[dict[str, str]] = [{}]
    for option in options_of(model_class(kind)):
        values = option.values.replace(" or ", ", ").split(", ")
        few = {"integer", "number", "text", "a function"}.isdisjoint(values) and "{" not in option.values
        found += [{option.name: value} for value in values if few and not value.startswith("list of")]
    return found


@pytest.mark.parametrize("kind", TINY)
def test_a_model_shows_itself(kind: str) -> None:
    model = model_for(generate(TINY[kind]))
    assert repr(model) == f"<{type(model).__name__} of {kind} {model.instance.name!r}>"
    assert model.problem.rows and model._repr_html_()
    for name in model.problem.rows:
        assert f"\\text{{{name.replace('_', chr(92) + '_')}:}}" in model.to_latex()
    assert model.sizes()["formulation"] in ("flow network", "linear program", "integer program")


@pytest.mark.parametrize("kind", TINY)
def test_rows_are_equations_and_duals_are_those_promised_under_every_option(kind: str) -> None:
    instance, tried = generate(TINY[kind]), 0
    for options in choices(kind):
        try:
            model = model_for(instance, **options)
            rows = rows_of(model)
        except ModelError:  # this case does not occur in the instance
            continue
        tried += 1
        assert rows <= model.declared(), options
        promised = {name for name, row in model.problem.rows.items() if row.dual}
        if options and not promised:  # pods: integer programs, which take long
            continue
        solution = model.solve(certify=False)
        told = set(solution.duals)
        expected = promised if solution.status.has_answer else set()
        assert expected <= told <= model.declared(), options
        for dual in solution.duals.values():
            assert len(dual.labels) == len(dual.values) == len(set(dual.labels))
    assert tried > len(choices(kind)) / 2


@pytest.mark.parametrize("kind", TINY)
def test_solutions_tell_the_same_things(kind: str) -> None:
    instance = generate(TINY[kind])
    solution = solve(instance)
    assert solution.source is instance
    document = json.loads(json.dumps(solution.to_dict(), default=str))
    assert document["kind"] == f"{kind}-solution"
    assert document["fingerprint"] == instance.fingerprint
    assert set(document["options"]) == set(model_options(kind))
    assert document["answer"]
    assert not solution.to_frame().empty
    assert all(name == name.lower().replace(" ", "_") for name in solution.metrics())
    arrays = [np.asarray(dual) for dual in solution.duals.values()]
    arrays += [getattr(solution, field.name) for field in dataclasses.fields(solution)]
    for array in (array for array in arrays if isinstance(array, np.ndarray) and array.size):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = array[-1]
    nothing = dataclasses.replace(solution, status=type(solution.status).INFEASIBLE)
    for ask in (nothing.to_frame, nothing.plot, nothing.metrics):
        with pytest.raises(ModelError, match="there is no answer"):
            ask()
    assert nothing.to_dict()["answer"] == {}


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: JitBandwidth(generate("jit-figure4"), program="P9"), r"program='P9'.*'P1', 'P2', 'P3' or 'P4'"),
        (lambda: PodPlacement(generate("kubeflow-testbed"), cards="no"), r"cards='no'\): must be true, false"),
        (lambda: model_for(generate("kubeflow-testbed"), cards="no"), r"cards='no'\): must be true, false"),
        (lambda: PodPlacement(generate("kubeflow-testbed"), cards=1), r"cards=1\): must be true, false"),
        (lambda: JitBandwidth(generate("jit-figure4"), share=True), r"share=True\): must be number"),
        (lambda: JitBandwidth(generate("jit-figure4"), lat=b"paper"), "lat=b'paper'"),
        (lambda: FlowScheduling(generate("flow-random"), scale=-1), "scale is -1; it must be a whole number of at"),
        (lambda: FlowScheduling(generate("flow-random"), goals="x"), r"goals='x'\): must be a list of Goal"),
        (
            lambda: model_for(generate("gpu-figure1"), penalties={"rack": "x"}),
            r"penalties={'rack': 'x'}\)\.rack: must be a number",
        ),
        (
            lambda: FlowScheduling(generate("kubeflow-testbed")),
            "FlowScheduling takes a FlowInstance, got an instance of kind 'pod-placement'; `model_for",
        ),
        (lambda: model_for("file.json"), r"takes an instance, got 'file.json'; read a file with `read_instance"),
        (lambda: JitBandwidth("file.json"), r"takes a JitInstance, got 'file.json'; read a file with"),
        (lambda: model_for(generate("gpu-figure1"), polcy="FSP"), r"no option 'polcy'.*did you mean 'policy'\?"),
        (lambda: model_for(generate("flow-testbed"), goals=("quincy",)), r"goals=\('quincy',\)\)\[0\].*Goal"),
        (lambda: model_class("nonsense"), "no model solves instances of kind 'nonsense'"),
    ],
)
def test_nonsense_is_refused_when_the_model_is_made(make: Any, says: str) -> None:
    with pytest.raises(ModelError, match=says):
        make()


@pytest.mark.skipif(not hasattr(pulp, "PULP_CBC_CMD"), reason="this PuLP bundles no solver beside HiGHS")
@pytest.mark.parametrize("kind", TINY)
def test_another_solver_is_used_or_refused(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`solver=` is never ignored: every program of a model goes to that solver, or the solve is refused."""
    solver, used = solver_of_pulp(), []
    true = solver.actualSolve
    monkeypatch.setattr(solver, "actualSolve", lambda *given, **options: used.append(1) or true(*given, **options))
    if kind == "pod-placement":
        with pytest.raises(EngineError, match="drop solver="):
            solve(generate(TINY[kind]), solver=solver)
    else:
        assert solve(generate(TINY[kind]), solver=solver).objective is not None
        assert used


def test_options_are_read_as_their_types() -> None:
    model = model_for(generate("flow-testbed"), goals=(FairShares(),))
    assert model.goals == (FairShares(),)
    assert model_for(generate("jit-figure4"), share="0.5").share == 0.5
    assert model_for(generate("kubeflow-testbed"), cards="false").cards is False
    assert PodPlacement(generate("kubeflow-testbed"), cards=np.bool_(False)).cards is False


@pytest.mark.parametrize(
    ("name", "options"), [("jit-figure4", {}), ("flow-random", {}), ("flow-random", {"order": "phases"})]
)
def test_a_stage_that_is_none_is_refused_by_solving_too(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match=r"stage 'P9'; the stages are|a stage exists with order='phases' only"):
        solve(generate(name), stage="P9", **options)


def test_a_dual_answers_by_label_and_is_an_array() -> None:
    dual = Dual(np.array([1.5, 0.0]), lambda: ["a", "b"])
    assert (dual["a"], list(dual), len(dual)) == (1.5, [1.5, 0.0], 2)
    assert np.asarray(dual).sum() == 1.5
    assert dual.to_series().to_dict() == dual.to_dict() == {"a": 1.5, "b": 0.0}
    with pytest.raises(KeyError, match="no dual for 'c'; there are: a, b"):
        dual["c"]
    with pytest.raises(ValueError, match="1 labels for 2 duals"):
        _ = Dual(np.zeros(2), ["a"]).labels


STAGED = [
    ("flow-testbed", {"order": "phases"}),
    ("flow-random", {"lexicographic": True, "preset": "quincy"}),
    ("jit-figure4", {"share": 1.0, "load": "port"}),
    ("jit-random", {"share": 1.0, "horizon": "intervals"}),
    ("gpu-testbed", {}),
    ("gpu-testbed", {"waiting": "priced", "network": "paper"}),
    ("gpu-figure4", {"waiting": "priced"}),
]


def optimum(program: Any, solver: Any) -> float:
    """Solve the exported program by an independent solver."""
    program.solve(solver)
    return float(pulp.value(program.objective))


#: A small size of every generator of a kind that has a model.
SMALL: dict[str, dict[str, Any]] = {
    "flow-cell": {"machines": 30, "cells": 2},
    "flow-random": {},
    "flow-scale": {"machines": 20, "tasks": 40, "machines_per_rack": 5},
    "flow-testbed": {},
    "gavel-like": {"jobs": 6},
    "gpu-figure1": {},
    "gpu-figure4": {},
    "gpu-random": {},
    "gpu-scale": {"gpus": 40, "racks": 2, "jobs": 5, "tasks": 60},
    "gpu-testbed": {},
    "inference-cluster": {},
    "jit-cluster": {"machines": 3, "jobs": 1, "slot_s": 0.5},
    "jit-figure4": {},
    "jit-random": {},
    "kubeflow-testbed": {},
    "network-assignment": {"machines": 10, "tasks": 20},
    "network-netgen": {"nodes": 40, "arcs": 150, "sources": 5, "sinks": 5},
    "network-random": {},
    "pods-scale": {"nodes": 3, "pods": 8},
}


@pytest.mark.parametrize("generator", SMALL)
def test_what_is_exported_is_what_is_solved(generator: str) -> None:
    model = model_for(generate(generator, seed=1, **SMALL[generator]))
    solution = model.solve()
    # Pods are admitted first by a separate program, whose optimum is the first stage of the solution.
    pods = solution.source.kind == "pod-placement"
    stated = solution.stages["admission"] if pods else solution.objective
    assert optimum(model.compile(), solver_of_pulp()) == pytest.approx(float(stated), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("policy", typing.get_args(Policy))
def test_every_policy_of_allocation_is_exported_as_it_is_solved(policy: Policy) -> None:
    """The exported objective has the model's sense and sign; for nonlinear objectives it is `solution.rise`."""
    model = Allocation(generate("gavel-like", seed=5, jobs=5, gpus=3, sharing=True, entities=2, slack=3.0), policy)
    solution = model.solve("highs")
    stated = solution.rise if policy in ("makespan", "finish_time") else solution.objective
    assert optimum(model.compile(), solver_of_pulp()) == pytest.approx(float(stated or 0), rel=1e-6)
    assert ("how far all jobs rise" in model.formulation.name) == (stated != solution.objective)


@pytest.mark.parametrize(("generator", "options"), STAGED)
def test_each_stage_has_a_program_of_its_own(generator: str, options: dict[str, Any]) -> None:
    instance = generate(generator)
    solution = solve(instance, "highs" if isinstance(model_for(instance), JitBandwidth) else "network", **options)
    assert len(solution.stages) > 1
    searched = {"late_jobs", "tardiness", "wait"}  # a search breaks ties of transfers, no program
    for name, value in solution.stages.items():
        if name in searched:
            continue
        program = model_for(instance, **options, stage=name).compile()
        assert optimum(program, solver_of_pulp()) == pytest.approx(float(value), rel=1e-9)
    with pytest.raises(ModelError, match="there is no stage 'other'; the stages are: "):
        _ = model_for(instance, **options, stage="other").formulation
