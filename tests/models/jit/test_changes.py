"""Changed just-in-time models against a plain program, their certificates, files and messages."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from flowlex.formulations.outcome import SolveOptions
from flowlex.instances.generators.jit import jit_random
from flowlex.instances.jit import Computation, JitInstance, Job, Machine, Transfer
from flowlex.models.base import ModelError
from flowlex.models.jit.model import JitBandwidth
from flowlex.models.statement.solving import run_statement
from flowlex.validation.certificates import verify
from tests.models.jit.changes_oracle import Plain, plain_program

LOADS = ("pair", "port", "sender", "receiver")


def hand(*sizes: float, due: float = 4.0, rate: float = 2.0) -> JitInstance:
    """Transfers of these sizes from a to b, each of a job of its own, due at the same time; 2 units a slot."""
    jobs = tuple(
        Job(
            name=f"job{k}",
            computations=(Computation(name="c", seconds=1.0),),
            transfers=(
                Transfer(name="t", sender="a", receiver="b", size_mb=size, feeds="c", ready_s=0.0, deadline_s=due),
            ),
        )
        for k, size in enumerate(sizes)
    )
    machines = tuple(Machine(name=name, out_mbps=8 * rate, in_mbps=8 * rate) for name in ("a", "b"))
    return JitInstance(name="hand", machines=machines, jobs=jobs, slot_s=1.0, unit_mb=1.0)


def stage_values(solution: Any) -> dict[str, float]:
    return {name: float(value) for name, value in solution.stages.items()}


def test_own_row_binds_in_every_stage() -> None:
    model = JitBandwidth(hand(4.0), share=1.0)
    assert model.solve().levels == {1: 4}
    rate = model.variables["rate"]
    quiet = model.with_constraint("quiet", rate.sel(time=slice(2.0, 3.0)).sum() <= 0).solve()
    assert stage_values(quiet) == {"lateness": 0, "largest": 2, "level_2": 2, "level_1": 2}
    assert quiet.to_frame()["slot"].tolist() == [0, 1]
    assert quiet.largest == quiet.objective == 2
    assert quiet.certificate is not None and (quiet.certificate.claim, quiet.certificate.exact) == ("optimal", True)


def test_where_nothing_keeps_the_rules_the_conflict_is_named() -> None:
    model = JitBandwidth(hand(4.0), share=1.0, windows="strict")
    changed = model.with_constraint("quiet", model.variables["rate"].sel(slot=[1, 2, 3]).sum() <= 1)
    solution = changed.solve()
    assert solution.status == "infeasible"
    assert solution.infeasibility is not None and "quiet" in str(solution.infeasibility.constraints)
    assert solution.certificate is not None and solution.certificate.claim == "infeasible"


def test_elastic_windows_are_late_under_a_rule() -> None:
    model = JitBandwidth(hand(4.0, due=2.0), share=1.0)
    changed = model.with_constraint("thin", model.variables["rate"].sum(by="slot") <= 1).solve()
    assert stage_values(changed) == {"lateness": 3, "largest": 1, "level_2": 0, "level_1": 4}
    assert changed.late_frame()["late_slots"].tolist() == [2]


def test_levels_can_be_ruled() -> None:
    model = JitBandwidth(hand(4.0, due=3.0), share=1.0)
    level = model.variables["level"]
    free = model.solve()
    assert free.levels == {2: 1, 1: 3}
    changed = model.with_constraint("busy", level.sel(step=2, slot=0).sum() == 0).with_fixed(
        level.sel(step=2, slot=1), 0
    )
    assert changed.solve().port_load[0][0].tolist() == [1, 1, 2]


def test_fractional_rates_are_shown_as_they_are() -> None:
    model = JitBandwidth(hand(3.0, due=2.0), share=1.0)
    relaxed = model.relaxed().solve()
    assert relaxed.objective == pytest.approx(1.5)
    assert relaxed.to_frame()["units"].tolist() == pytest.approx([1.5, 1.5])
    assert relaxed.certificate is not None and not relaxed.certificate.exact


def test_labels_are_those_of_the_instance() -> None:
    instance = jit_random(seed=5, slots=5)
    names = {f"{job.name}/{f.name}": (job.name, f.sender, f.receiver) for job in instance.jobs for f in job.transfers}
    first = min(job.arrival_s for job in instance.jobs)
    index = JitBandwidth(instance, share=1.0).variables["rate"].index
    for label in index.to_frame(index=False).to_dict("records"):
        job, sender, receiver = names[label["transfer"]]
        assert (label["job"], label["sender"], label["receiver"]) == (job, sender, receiver)
        assert label["link"] == f"{sender}>{receiver}"
        assert label["time"] == label["slot"] + first
    for load in LOADS[1:]:
        ports = JitBandwidth(instance, share=1.0, load=load).variables["level"].index.to_frame(index=False)
        assert all(r["port"] == f"{r['machine']} {r['side']}" for r in ports.to_dict("records"))
        assert set(ports["side"]) == {"port": {"out", "in"}, "sender": {"out"}, "receiver": {"in"}}[load]


def tiny(seed: int) -> tuple[JitInstance, str, str]:
    rng = np.random.default_rng(seed)
    instance = jit_random(seed=seed, transfers=int(rng.integers(1, 4)), slots=3, capacity=2, largest=3)
    return instance, LOADS[int(rng.integers(4))], ("elastic", "strict")[int(rng.integers(2))]


def model_of(seed: int) -> tuple[JitBandwidth, str, str] | None:
    instance, load, windows = tiny(seed)
    try:
        model = JitBandwidth(instance, share=1.0, load=load, windows=windows)
        _ = model.grid
    except ModelError:  # a window that real time makes too short
        return None
    return model, load, windows


@pytest.mark.parametrize("seed", range(60))
def test_the_statement_has_the_optimum_of_the_quick_method(seed: int) -> None:
    made = model_of(seed)
    if made is None:
        return
    model, load, windows = made
    quick, run = model.solve(certify=False), run_statement(model.statement, SolveOptions(), main="largest")
    assert run.outcome.status == quick.status
    plain = plain_program(model.instance, load, windows).solve()
    assert (plain is None) == (not quick.status.has_answer)
    if plain is not None:
        assert plain == {name: float(value) for name, value in run.stages.items()}
        wanted = {name: n for name, n in quick.stages.items() if name.startswith("level") and n}
        assert wanted == {name: n for name, n in run.stages.items() if name.startswith("level") and n}
        assert windows == "strict" or quick.stages["lateness"] == run.stages["lateness"]
        assert quick.objective == run.stages["largest"]


Change = Callable[[JitBandwidth, Plain, np.random.Generator], JitBandwidth | None]


def some(
    model: JitBandwidth, rng: np.random.Generator, name: str = "rate"
) -> tuple[dict[str, Any], Callable[..., bool]]:
    """A selection by one level, and a test of labels that says the same."""
    index = model.variables[name].index.to_frame(index=False)
    level = str(rng.choice(list(index.columns)))
    values = sorted(set(index[level].tolist()))
    if level == "time" and rng.random() < 0.7:
        low, high = sorted(rng.choice(values, 2).tolist())
        return {level: slice(low, high)}, lambda labels: low <= labels[level] <= high
    picked = [values[k] for k in sorted(set(rng.integers(len(values), size=2).tolist()))]
    return {level: picked}, lambda labels: labels[level] in picked


def own_row(model: JitBandwidth, plain: Plain, rng: np.random.Generator) -> JitBandwidth:
    name = "level" if rng.random() < 0.3 else "rate"
    where, test = some(model, rng, name)
    side = int(rng.integers(0, 4))
    relation = ("<=", "<=", ">=", "==")[int(rng.integers(4))]
    own = f"own{len(plain.rows)}"
    total = model.variables[name].sel(**where)
    level = str(rng.choice(["slot", "sender"])) if name == "rate" and rng.random() < 0.5 else None
    expression = total.sum() if level is None else total.sum(by=level)
    rule = {"<=": expression <= side, ">=": expression >= side, "==": expression == side}[relation]
    groups: dict[Any, dict[int, float]] = {}
    for k in plain.chosen(name, test):
        groups.setdefault(None if level is None else plain.columns[k][1][level], {})[k] = 1.0
    low, high = (-math.inf if relation == "<=" else side), (math.inf if relation == ">=" else side)
    for label, terms in groups.items():
        plain.rows.append((own, str(label), terms, low, high))
    return model.with_constraint(own, rule)


def dropped(model: JitBandwidth, plain: Plain, rng: np.random.Generator) -> JitBandwidth | None:
    name = str(rng.choice(["egress", "ingress"]))
    labels = [label for n, label, *_ in plain.rows if n == name]
    if not labels:
        return None
    label = str(rng.choice(labels)) if rng.random() < 0.6 else None
    plain.rows = [row for row in plain.rows if row[0] != name or label not in (None, row[1])]
    return model.without(name, label)


def fixed(model: JitBandwidth, plain: Plain, rng: np.random.Generator) -> JitBandwidth | None:
    chosen = plain.chosen("rate", lambda _: True)
    k = int(rng.choice(chosen))
    labels, low, high = plain.columns[k][1], plain.columns[k][2], plain.columns[k][3]
    value = int(rng.integers(int(low), int(high) + 1))
    plain.columns[k][2:4] = value, value
    where = {"transfer": labels["transfer"], "slot": labels["slot"]}
    return model.with_fixed(model.variables["rate"].sel(**where), value)


def bounded(model: JitBandwidth, plain: Plain, rng: np.random.Generator) -> JitBandwidth:
    where, test = some(model, rng)
    for k in (chosen := plain.chosen("rate", test)):
        plain.columns[k][3] = max(1.0, plain.columns[k][2])
    if any(plain.columns[k][2] > 1 for k in chosen):
        raise ModelError("crossed")
    return model.with_bounds(model.variables["rate"].sel(**where), upper=1)


def priced(model: JitBandwidth, plain: Plain, rng: np.random.Generator) -> JitBandwidth:
    where, test = some(model, rng)
    stage = str(rng.choice(list(plain.stages)))
    weight = Fraction(int(rng.integers(1, 4)), 2)
    for k in plain.chosen("rate", test):
        plain.stages[stage][k] = plain.stages[stage].get(k, 0.0) + float(weight)
    return model.with_cost(weight * model.variables["rate"].sel(**where).sum(), stage=stage)


def own_variable(model: JitBandwidth, plain: Plain, rng: np.random.Generator) -> JitBandwidth:
    name = f"late{len(plain.columns)}"
    columns = {slot: plain.column(name, {"slot": slot}, 5.0) for slot in (0, 1)}
    changed = model.with_variable(name, upper=5, integer=True, slot=[0, 1])
    rate = changed.variables["rate"].sel(slot=[0, 1])
    for slot in {plain.columns[k][1]["slot"] for k in plain.chosen("rate", lambda labels: labels["slot"] in (0, 1))}:
        sent = dict.fromkeys(plain.chosen("rate", lambda labels, slot=slot: labels["slot"] == slot), 1.0)
        plain.rows.append((f"{name}_over", str(slot), {**sent, columns[slot]: -1.0}, -math.inf, 1))
    del rng
    for column in columns.values():
        plain.stages["largest"][column] = 1.0
    over = rate.sum(by="slot") - changed.variables[name].sum(by="slot") <= 1
    return changed.with_constraint(f"{name}_over", over).with_cost(changed.variables[name], stage="largest")


def relaxed(model: JitBandwidth, plain: Plain, rng: np.random.Generator) -> JitBandwidth:
    del rng
    for column in plain.columns:
        column[4] = False
    return model.relaxed()


def check(seed: int) -> None:
    made = model_of(seed)
    if made is None:
        return
    model, load, windows = made
    plain = plain_program(model.instance, load, windows)
    rng = np.random.default_rng(seed + 10**6)
    kinds: list[Change] = [own_row, own_row, dropped, fixed, bounded, priced, own_variable]
    for _ in range(int(rng.integers(1, 4))):
        change = kinds[int(rng.integers(len(kinds)))]
        try:
            model = change(model, plain, rng) or model
        except ModelError:
            return  # a slot that no transfer has, or bounds that cross: refused by name, see below
    if rng.random() < 0.15:
        model = relaxed(model, plain, rng)
    if not model.as_stated:
        return
    wanted, solution = plain.solve(), model.solve()
    assert solution.certificate is not None
    if wanted is None:
        assert solution.status == "infeasible"
        return
    assert solution.status == "optimal"
    assert stage_values(solution) == pytest.approx(wanted, abs=1e-5)
    assert solution.certificate.claim == "optimal"
    again = verify(json.loads(json.dumps(solution.to_dict())), model.instance)
    assert again.ok and again.claim == "optimal", str(again)


@pytest.mark.parametrize("block", range(8))
def test_random_changes_against_a_plain_program(block: int) -> None:
    for seed in range(40 * block, 40 * block + 40):
        check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_many_random_changes_against_a_plain_program(block: int) -> None:
    for seed in range(1000 + 100 * block, 1100 + 100 * block):
        check(seed)


def spread(seed: int) -> tuple[JitBandwidth, Plain]:
    """Transfers among many machines under rules on some of them, so that the others are left to the quick method."""
    rng = np.random.default_rng(seed)
    instance = jit_random(seed=seed, machines=8, jobs=4, transfers=2, slots=3, capacity=2, largest=3)
    load, windows = ("pair", "pair", "sender")[int(rng.integers(3))], ("elastic", "strict")[int(rng.integers(2))]
    model = JitBandwidth(instance, share=1.0, load=load, windows=windows)
    plain, rate = plain_program(instance, load, windows), model.variables["rate"]
    for k in range(int(rng.integers(1, 3))):
        transfer = str(rng.choice(rate.labels.levels["transfer"]))
        where = {"transfer": transfer} if rng.random() < 0.5 else {"transfer": transfer, "slot": [0, 1]}
        chosen = plain.chosen(
            "rate",
            lambda labels, t=transfer, w=where: labels["transfer"] == t and labels["slot"] in w.get("slot", range(99)),
        )
        if not chosen:
            continue
        kind, side = int(rng.integers(3)), int(rng.integers(0, 2))
        if kind == 0:
            for column in chosen:
                plain.columns[column][3] = float(side)
            model = model.with_bounds(rate.sel(**where), upper=side)
            continue
        low, high = (-math.inf, side) if kind == 1 else (side, math.inf)
        terms = rate.sel(**where).sum() if kind == 1 else rate.sel(**where).sum(by="transfer")
        plain.rows.append((f"own{k}", "", dict.fromkeys(chosen, 1.0), low, high))
        model = model.with_constraint(f"own{k}", terms <= side if kind == 1 else terms >= side)
    return model, plain


@pytest.mark.parametrize("block", range(4))
def test_transfers_that_no_rule_concerns_are_left_to_the_quick_method(block: int) -> None:
    split = 0
    for seed in range(30 * block, 30 * block + 30):
        try:
            model, plain = spread(seed)
        except ModelError:
            continue
        if not model.as_stated:
            continue
        solution, wanted = model.solve(), plain.solve()
        assert (solution.status == "infeasible") == (wanted is None)
        if wanted is None:
            continue
        assert stage_values(solution) == pytest.approx(wanted, abs=1e-5)
        document = json.loads(json.dumps(solution.to_dict()))
        again = verify(document, model.instance)
        assert again.ok and again.claim == "optimal", str(again)
        if "rules" not in document["proof"]:
            continue
        split += 1
        assert "quick method" in model.method
        worse = json.loads(json.dumps(document))
        worse["changes"]["changes"] = [{"change": "drop", "name": "egress"}]
        assert not verify(worse, model.instance).ok
        if document["proof"]["rules"]["stages"]:
            del document["proof"]["rules"]
            assert not verify(document, model.instance).ok
    assert split > 5


def ruled() -> tuple[JitBandwidth, dict[str, Any]]:
    """Transfers of 4 and 3 units due at 4 s under a rule and a cost, and the document of the answer."""
    model = JitBandwidth(hand(4.0, 3.0, rate=4.0), share=1.0)
    rate = model.variables["rate"]
    changed = model.with_constraint("quiet", rate.sel(slot=[2, 3]).sum() <= 1)
    changed = changed.with_cost(rate.sel(job="job0", slot=[0, 1]).sum(), stage="lateness")
    return changed, json.loads(json.dumps(changed.solve().to_dict()))


def at(document: Any, *path: Any) -> Any:
    for key in path:
        document = document[key]
    return document


#: Where a document is changed, and to what.
FAULTS: dict[str, tuple[tuple[Any, ...], Any]] = {
    "side of a rule": (("changes", "changes", 0, "rhs"), 2),
    "side of a rule below the answer": (("changes", "changes", 0, "rhs"), 0),
    "relation of a rule": (("changes", "changes", 0, "relation"), ">="),
    "label of a rule": (("changes", "changes", 0, "terms", 0, "where", "slot"), [1, 2, 3]),
    "coefficient of a rule": (("changes", "changes", 0, "terms", 0, "coefficient"), "1/2"),
    "cost of another job": (("changes", "changes", 1, "terms", 0, "where", "job"), "job1"),
    "cost of another stage": (("changes", "changes", 1, "stage"), "level_1"),
    "cost in another slot": (("changes", "changes", 1, "terms", 0, "where", "slot"), [3]),
    "one more unit": (("values", "rate", "job0/t,1"), 5),
    "a unit of no transfer": (("values", "rate", "job7/t,1"), 1),
    "a level not counted": (("values", "level", "a>b,1,1"), 0),
    "largest load": (("values", "largest", ""), 4),
    "value of a stage": (("stages", "level_2"), 1),
    "objective": (("objective",), 4),
    "bound": (("bound",), 5),
    "empty proof of a stage": (("proof", "stages", "level_4"), []),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_changed_documents_are_refused(fault: str) -> None:
    model, document = ruled()
    assert verify(document, model.instance).claim == "optimal"
    path, value = FAULTS[fault]
    at(document, *path[:-1])[path[-1]] = value
    again = verify(document, model.instance)
    assert not again.ok or again.claim != "optimal", str(again)


@pytest.mark.parametrize("kept", [0, 1])
def test_a_change_left_out_is_refused(kept: int) -> None:
    model, document = ruled()
    document["changes"]["changes"] = [document["changes"]["changes"][kept]]
    assert not verify(document, model.instance).ok


@pytest.mark.parametrize("stage", ["lateness", "largest", "level_2", "level_1"])
def test_forged_multipliers_prove_nothing(stage: str) -> None:
    model, document = ruled()
    for leaf in document["proof"]["stages"][stage]:
        for rows in leaf["rows"].values():
            for label in rows:
                rows[label] = 7
    forged = verify(document, model.instance)
    untouched = not any(leaf["rows"] for leaf in document["proof"]["stages"][stage])
    assert untouched or not forged.ok


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m, x: m.with_constraint("r", x.sel(jobs="job0").sum() <= 1), "did you mean 'job'"),
        (lambda m, x: m.with_constraint("r", x.sel(link="a>c").sum() <= 1), "did you mean 'a>b'"),
        (lambda m, x: m.with_constraint("r", x.sel(time=slice(9, None)).sum() <= 1), "over no variable"),
        (lambda m, x: m.with_constraint("size", x.sum() <= 1), "exist already"),
        (lambda m, x: m.with_cost(x, stage="levels_1"), "did you mean 'level_1'"),
        (lambda m, x: m.without("egres"), "did you mean 'egress'"),
        (lambda m, x: m.without("size"), "nothing would be sent"),
        (lambda m, x: m.without("level_link"), "no longer count the loads"),
        (lambda m, x: m.with_fixed(x.sel(slot=0), 5), "outside its bounds"),
        (lambda m, x: m.with_fixed(x.sel(slot=0), 0.5), "is integer"),
        (lambda m, x: m.with_bounds(x, lower=2, upper=1), "above its upper"),
        (lambda m, x: m.with_constraint("r", x.sum() <= float("nan")), "finite"),
        (lambda m, x: m.with_constraint("r", x.sum() < 1), "write <="),
        (lambda m, x: 1 <= x.sum() <= 2, "neither true nor false"),
        (lambda m, x: JitBandwidth(hand(4.0, due=7.0), share=1.0).with_fixed(x, 0), "another model"),
    ],
)
def test_a_change_that_cannot_be_made_is_refused_by_name(change: Any, message: str) -> None:
    model = JitBandwidth(hand(4.0), share=1.0, windows="strict")
    with pytest.raises(ModelError, match=message):
        change(model, model.variables["rate"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"program": "P3"}, "takes no changes"),
        ({"program": "P4"}, "takes no changes"),
        ({"tie_break": True}, "tie_break"),
    ],
)
def test_options_that_take_no_changes_say_so(options: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        _ = JitBandwidth(hand(4.0), share=1.0, **options).variables


def test_the_largest_load_alone_takes_changes() -> None:
    model = JitBandwidth(hand(4.0), share=1.0, program="P1")
    changed = model.with_constraint("early", model.variables["rate"].sel(slot=[0, 1]).sum() >= 3)
    assert stage_values(changed.solve()) == {"largest": 2}


def test_a_plan_of_another_solver_is_read() -> None:
    model, _ = ruled()
    found = model.interpret(model.solve().stated.values)  # type: ignore[union-attr]
    assert found.status == "feasible"
    assert found.to_frame()["units"].sum() == 7
    assert found.certificate is not None and found.certificate.ok
