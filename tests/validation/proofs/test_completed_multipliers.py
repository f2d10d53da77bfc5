"""Multipliers that a proof leaves out, shares between leaves, or scales."""

import random
from dataclasses import replace
from fractions import Fraction
from itertools import product
from operator import mul

import numpy as np
import pandas as pd
import pytest

import flowlex as fx
from flowlex.validation.proofs.checker import judge
from flowlex.validation.proofs.exact_program import Exact
from flowlex.validation.proofs.own_statement import exact_program
from flowlex.validation.proofs.proof import Leaf, Proof, ProofError, from_document, to_document
from tests.seeds import seeds

COST = {("a", 1): 4, ("a", 2): 6, ("b", 1): 3, ("b", 2): 8}


def assignment() -> fx.Problem:
    """Two tasks on two GPUs. The cheapest is a on 2 and b on 1: 9; then the fewest on GPU 1."""
    p = fx.Problem("assignment")
    x = p.variables("x", task=["a", "b"], gpu=[1, 2], binary=True)
    p.constrain("task", x.sum(by="task") == 1)
    p.constrain("gpu", x.sum(by="gpu") <= 1)
    p.minimize("cost", sum(c * x.sel(task=t, gpu=g).sum() for (t, g), c in COST.items()))
    p.minimize("first", x.sel(gpu=1).sum())
    return p


def proof(scale: int = 1, complete: tuple[str, ...] = ("task",)) -> Proof:
    """GPU 1 costs 2 more than GPU 2: then each task takes the cheaper one, for 6 + 5 - 2."""
    rows = {"gpu": Exact(np.array([-2 * scale, 0]))}
    later = Leaf(shared=rows, complete=complete, earlier={"cost": Fraction(-scale)})
    return Proof({"cost": (Leaf(shared=rows, complete=complete, own=scale),), "first": (later,)})


@pytest.mark.parametrize("scale", [1, 3])
def test_the_best_multipliers_are_found_from_the_others(scale: int) -> None:
    program = exact_program(assignment())
    best = Exact(np.array([0, 1, 1, 0]))
    again = from_document(to_document(proof(scale), program), program)
    for each in (proof(scale), again):
        verdict = judge(program, best, each)
        assert [stage.bound for stage in verdict.stages] == [9, 1] and verdict.claim == "optimal"
    assert len(to_document(proof(scale), program)["shared"]) == 1
    assert judge(program, Exact(np.array([1, 0, 0, 1])), proof(scale)).claim == "bounded"  # costs 12


def test_without_them_nothing_is_shown() -> None:
    program = exact_program(assignment())
    assert judge(program, Exact(np.array([0, 1, 1, 0])), proof(complete=())).stages[0].bound == -2


def test_rows_that_share_a_column_are_not_completed() -> None:
    p = assignment()
    p.constrain("share", p["x"] + p.variables("y", binary=True) <= 2)
    program = exact_program(p)
    verdict = judge(program, Exact(np.array([0, 1, 1, 0, 0])), proof(complete=("share",)))
    assert "cannot be completed" in verdict.stages[0].reason
    with pytest.raises(ProofError, match="complete"):
        from_document({"format": 3, "stages": {"cost": [{"complete": ["nothing"]}]}}, program)
    with pytest.raises(ProofError, match="shared"):
        from_document({"format": 3, "stages": {"cost": [{"shared": "nothing"}]}}, program)


@pytest.mark.parametrize("huge", [2**60, 2**61 - 1, 2**62 - 5, 2**62, 2**63])
def test_huge_multipliers_prove_nothing_false(huge: int) -> None:
    program = exact_program(assignment())
    numbers = np.array([-huge, 0], object if huge >= 2**63 else np.int64)
    leaf = Leaf(shared={"gpu": Exact(numbers)}, complete=("task", "gpu", "task"))
    bound = judge(program, Exact(np.array([0, 1, 1, 0])), Proof({"cost": (leaf,)})).stages[0].bound
    assert bound is not None and bound <= 9


def test_earlier_objectives_that_share_a_column_are_added_beyond_64_bits() -> None:
    """Five times 2^61 leaves 64 bits: the most of x costs nothing of y, whose least is 0."""
    p = fx.Problem("overlapping")
    x, y = p.variables("x", binary=True), p.variables("y", upper=10, integer=True)
    for k in range(5):
        p.maximize(f"o{k}", 2**61 * x)
    p.minimize("last", y + 0)
    program = exact_program(p)
    first = {f"o{k}": (Leaf(),) for k in range(5)}
    leaf = Leaf(before=Fraction(-1))
    verdict = judge(program, Exact(np.array([1, 7])), Proof({**first, "last": (leaf,)}))
    assert verdict.stages[-1].bound is not None and verdict.stages[-1].bound <= 0


def fair_steps(caps: list[int], room: int) -> fx.Problem:
    """Jobs take at most their cap of the room; first as many as possible take 1, then 2, and so on."""
    p = fx.Problem("fair")
    step = [(j, k) for j, cap in enumerate(caps) for k in range(1, cap + 1)]
    y = p.variables("y", over=pd.MultiIndex.from_tuples(step, names=["job", "k"]), binary=True)
    p.constrain("room", y.sum() <= room)
    for k in range(1, max(caps) + 1):
        p.maximize(f"share_{k}", y.sel(k=k).sum())
    return p


@pytest.mark.parametrize("seed", seeds(20, 60))
def test_steps_with_the_same_leaf_are_judged_together_as_one_by_one(seed: int) -> None:
    """With the price 1 of the room from the first step that does not fit on, each step is proven."""
    rng = np.random.default_rng(seed)
    caps = rng.integers(1, 6, 4).tolist()
    steps, room = max(caps), int(rng.integers(0, sum(caps) + 2))
    program = exact_program(fair_steps(caps, room))
    order = sorted((k, j) for j, cap in enumerate(caps) for k in range(1, cap + 1))[:room]
    taken = {(j, k) for k, j in order}
    x = Exact(np.array([(j, k) in taken for j, cap in enumerate(caps) for k in range(1, cap + 1)], np.int64))
    if rng.random() < 0.4 and len(x.numbers):  # an answer that is worse, or none
        x.numbers[rng.integers(len(x.numbers))] ^= 1
    full = [sum(cap >= k for cap in caps) for k in range(1, steps + 1)]
    tight = next((k for k in range(steps) if sum(full[: k + 1]) > room), steps)
    if rng.random() < 0.3:
        tight = int(rng.integers(0, steps + 1))  # a price too early or too late
    loose, priced = Leaf(before=Fraction(-1)), Leaf(shared={"room": Exact(np.array([-1]))}, before=Fraction(-1))
    together, alone = {}, {}
    first, second = (loose,), (priced,)
    for k in range(steps):
        leaves = first if k < tight else second
        together[f"share_{k + 1}"], alone[f"share_{k + 1}"] = leaves, (replace(leaves[0]),)
    want, got = (judge(program, x, Proof(stages)) for stages in (alone, together))
    again = judge(program, x, from_document(to_document(Proof(together), program), program))
    for each in (got, again):
        assert each.claim == want.claim and each.certificate.exact == want.certificate.exact
        assert [(s.name, s.value, s.bound, s.proven) for s in each.stages] == [
            (s.name, s.value, s.bound, s.proven) for s in want.stages
        ]


def test_a_stage_refers_only_to_one_before_it() -> None:
    program = exact_program(fair_steps([2, 2], 3))
    for stages in ({"share_1": "share_2", "share_2": []}, {"share_1": "share_1"}, {"share_1": "x"}):
        with pytest.raises(ProofError, match="not listed before"):
            from_document({"format": 3, "stages": stages}, program)


def test_the_leaf_of_an_earlier_objective_counts_as_often_as_it_helps() -> None:
    """Of all answers of cost 9 (a on 2, b on 1) one task is on GPU 1; without the costs, none would be."""
    program, best = exact_program(assignment()), Exact(np.array([0, 1, 1, 0]))
    cost = {"rows": {"gpu": {"at": {"1": -2}}}, "complete": ["task"]}
    rows = {"task": {"at": {"b": 1}}}
    for second, bound in (({"rows": rows, "with_earlier": True}, 1), ({"rows": rows}, 0)):
        found = from_document({"format": 3, "stages": {"cost": [cost], "first": [second]}}, program)
        assert judge(program, best, found).stages[1].bound == bound
    wrong = {"format": 3, "stages": {"cost": [{"rows": {"gpu": {"at": {"1": 1}}}, "with_earlier": True}]}}
    assert "wrong sign" in judge(program, best, from_document(wrong, program)).stages[0].reason
    branch = {"row": [["x", "a,1", 1]], "relation": "<=", "side": 0}
    many = {"format": 3, "stages": {"cost": [{**cost, "with_earlier": True, "branches": [branch]}]}}
    assert judge(program, best, from_document(many, program)).stages[0].bound is None


@pytest.mark.parametrize("seed", range(4))
def test_earlier_leaves_never_show_more_than_is_true(seed: int) -> None:
    """All answers of random small problems are tried; random multipliers bound no objective beyond the best of them."""
    rng, tight = random.Random(seed), 0
    for _ in range(60):
        p = fx.Problem("random")
        x = p.variables("x", k=range(5), upper=2, integer=True)
        rows = [([rng.randint(-2, 3) for _ in range(5)], rng.randint(0, 4)) for _ in range(2)]
        costs = [[rng.randint(-2, 3) for _ in range(5)] for _ in range(3)]
        for n, (row, side) in enumerate(rows):
            p.constrain(f"r{n}", sum((a * x.sel(k=k).sum() for k, a in enumerate(row)), 0 * x.sum()) >= side)
        for n, cost in enumerate(costs):
            p.minimize(f"o{n}", sum((c * x.sel(k=k).sum() for k, c in enumerate(cost)), 0 * x.sum()))
        program = exact_program(p)
        every = [
            (tuple(sum(map(mul, cost, each)) for cost in costs), each)
            for each in product(range(3), repeat=5)
            if all(sum(map(mul, row, each)) >= side for row, side in rows)
        ]
        if not every:
            continue
        best, answer = min(every)
        stages = {
            f"o{n}": [
                {
                    "rows": {f"r{k}": {"at": {"": rng.choice((-1, 0, 1, 2, "1/2"))}} for k in range(2)},
                    "with_earlier": rng.random() < 0.9,
                }
            ]
            for n in range(3)
        }
        verdict = judge(program, Exact(np.array(answer)), from_document({"format": 3, "stages": stages}, program))
        for stage, value in zip(verdict.stages, best, strict=True):
            assert stage.bound is None or stage.bound <= value
            tight += stage.proven
    assert tight
