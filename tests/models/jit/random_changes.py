"""Random changes of small models, each applied to the model and to the plain program."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from flowlex.instances.generators.jit import jit_random
from flowlex.instances.jit import JitInstance
from flowlex.models.jit.model import JitBandwidth
from flowlex.models.model_base import ModelError
from tests.models.jit.changes_oracle import Plain

__all__ = ["LOADS", "changed_at_random", "model_of"]

LOADS = ("pair", "port", "sender", "receiver")


def tiny(seed: int) -> tuple[JitInstance, str, str]:
    rng = np.random.default_rng(seed)
    instance = jit_random(seed=seed, transfers=int(rng.integers(1, 4)), slots=3, capacity=2, largest=3)
    return instance, LOADS[int(rng.integers(4))], ("elastic", "strict")[int(rng.integers(2))]


def model_of(seed: int) -> tuple[JitBandwidth, str, str] | None:
    instance, load, windows = tiny(seed)
    try:
        model = JitBandwidth(instance, share=1.0, load=load, windows=windows)
        _ = model.grid
    except ModelError:  # a window that is too short in real time
        return None
    return model, load, windows


Change = Callable[[JitBandwidth, Plain, np.random.Generator], JitBandwidth | None]


def some(
    model: JitBandwidth, rng: np.random.Generator, name: str = "rate"
) -> tuple[dict[str, Any], Callable[..., bool]]:
    """Return a selection by one level and the equivalent predicate on labels."""
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


def changed_at_random(model: JitBandwidth, plain: Plain, rng: np.random.Generator) -> JitBandwidth:
    """Apply one to three changes, sometimes dropping integrality; raise `ModelError` if one is refused."""
    kinds: list[Change] = [own_row, own_row, dropped, fixed, bounded, priced, own_variable]
    for _ in range(int(rng.integers(1, 4))):
        change = kinds[int(rng.integers(len(kinds)))]
        model = change(model, plain, rng) or model
    return relaxed(model, plain, rng) if rng.random() < 0.15 else model
