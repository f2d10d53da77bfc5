"""Seed a fault into model code, solve, and check that no wrong answer is accepted.

A fault changes the return value of one function of the model. The result of a solve is then *refused* (by the
certificate), *lowered* (returned, but claimed only as feasible), *stopped* (by another error, no answer is returned),
*harmless* (as good as without the fault), or *passed*:
another answer, or none, and no check failed. Nothing may pass.
"""

from __future__ import annotations

import importlib
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from flowlex.formulations.flow_network import UNBOUNDED, FlowNetwork
from flowlex.formulations.solver_outcome import Status
from flowlex.models.model_base import UNPROVEN, Model
from flowlex.models.registry import model_for
from flowlex.validation.certificates import CertificateError

__all__ = ["NETWORKS", "THOROUGH", "Tally", "array", "faults_of", "field", "refuse_all", "run_faults", "seed"]

Change = Callable[..., Any]
#: False: each fault until it is noticed; True: each fault on every model.
THOROUGH = [False, pytest.param(True, marks=pytest.mark.slow)]


def seed(patch: pytest.MonkeyPatch, target: str, change: Change) -> None:
    """Make ``module:Class.function`` (or a property) return ``change(result, *arguments)``."""
    module, _, path = target.partition(":")
    owner: Any = importlib.import_module(module)
    *outer, name = path.split(".")
    for part in outer:
        owner = getattr(owner, part)
    raw = vars(owner)[name]

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **kwargs: change(function(*args, **kwargs), *args)

    if isinstance(raw, classmethod):
        patch.setattr(owner, name, classmethod(wrap(raw.__func__)))
    elif isinstance(raw, property):
        assert raw.fget is not None
        patch.setattr(owner, name, property(wrap(raw.fget)))
    elif not isinstance(raw, types.FunctionType):  # a cached property
        patch.setattr(owner, name, property(wrap(raw.func)))
    elif outer:
        patch.setattr(owner, name, wrap(raw))
    else:  # a function of a module: wherever it was imported by name
        changed = wrap(raw)
        for held in [m for key, m in sys.modules.items() if key.startswith("flowlex.")]:
            if vars(held).get(name) is raw:
                patch.setattr(held, name, changed)


def array(change: Callable[[Any], Any]) -> Change:
    """Return a change that applies ``change`` in place to a copy of an array."""

    def changed(values: Any, *_: Any) -> Any:
        copy = np.array(values)
        if copy.size:
            change(copy)
        return copy

    return changed


def field(name: str, change: Change) -> Change:
    """Return a change that applies ``change`` to one field of a dataclass."""
    return lambda made, *args: replace(made, **{name: change(getattr(made, name), *args)})


def _arcs(name: str, change: Callable[[Any], Any]) -> Change:
    def changed(network: FlowNetwork, *_: Any) -> FlowNetwork:
        return field(name, array(change))(network) if network.arc_count else network  # type: ignore[no-any-return]

    return changed


def _lost(every: int) -> Callable[[Any], Any]:
    def lose(upper: Any) -> None:
        upper[::every] = 0

    return lose


def _add(position: slice, amount: int) -> Callable[[Any], Any]:
    def add(values: Any) -> None:
        part = values[position]
        part[part != UNBOUNDED] += amount

    return add


def _swap(values: Any) -> None:
    values[[0, -1]] = values[[-1, 0]]


def _times(factor: int) -> Callable[[Any], Any]:
    def times(values: Any) -> None:
        values *= factor

    return times


#: Changes of a network: arcs lost, costs and capacities wrong.
NETWORKS: dict[str, Change] = {
    "every third arc lost": _arcs("upper", _lost(3)),
    "every second arc lost": _arcs("upper", _lost(2)),
    "capacities one more": _arcs("upper", _add(slice(None), 1)),
    "the last capacity one more": _arcs("upper", _add(slice(-1, None), 1)),
    "costs one more on every other arc": _arcs("cost", _add(slice(None, None, 2), 1)),
    "the first costs less": _arcs("cost", _add(slice(0, 1), -7)),
    "no costs": _arcs("cost", _times(0)),
    "costs negated": _arcs("cost", _times(-1)),
    "costs doubled": _arcs("cost", _times(2)),
    "first and last cost swapped": _arcs("cost", _swap),
    "costs of the first half gone": _arcs("cost", lambda c: c[: len(c) // 2].fill(0)),
}


def faults_of(groups: Mapping[str, Mapping[str, Change]]) -> list[tuple[str, str, Change]]:
    """(name, target, change) of faults given by target."""
    return [
        (f"{target.rpartition(':')[2]}: {name}", target, change)
        for target, group in groups.items()
        for name, change in group.items()
    ]


@dataclass
class Tally:
    """Counts of refused, lowered, stopped, harmless and passed faults of one family (passed ones with details)."""

    family: str
    counts: Counter[str]
    passed: list[str]
    idle: list[str]

    @property
    def shown(self) -> int:
        """The number of solves in which a fault was noticed."""
        return self.counts["refused"] + self.counts["lowered"] + self.counts["stopped"]

    def __str__(self) -> str:
        c = self.counts
        return (
            f"| {self.family} | {c['faults']} | {c['solves']} | {c['refused']} | {c['lowered']} | {c['stopped']} | "
            f"{c['harmless']} | {len(self.passed)} |"
        )


def run_faults(
    family: str,
    faults: Sequence[tuple[str, str, Change]],
    models: Iterable[Callable[[], Model[Any, Any, Any]]],
    value: Callable[[Any], Any],
    engine: str = "network",
    *,
    thorough: bool,
) -> Tally:
    """Solve models with every fault, and compare with their answers without it.

    Each fault is tried on one model after the other until it is noticed, with ``thorough`` on all of them.
    """
    makers = list(models)
    best = [make().solve(engine) for make in makers]
    true = [value(solution) for solution in best]
    tally = Tally(family, Counter(faults=len(faults)), [], [])
    for turn, (name, target, change) in enumerate(faults):
        before = tally.shown
        for k in range(len(makers)):
            number = (turn + k) % len(makers)
            if not thorough and tally.shown > before:
                break
            with pytest.MonkeyPatch.context() as patch:
                seed(patch, target, change)
                tally.counts["solves"] += 1
                try:
                    solution = makers[number]().solve(engine)
                except CertificateError:
                    tally.counts["refused"] += 1
                    continue
                except Exception:  # after any error no answer is returned
                    tally.counts["stopped"] += 1
                    continue
            if solution.status is Status.ERROR:  # no answer
                tally.counts["stopped"] += 1
                continue
            if UNPROVEN in solution.message or _weaker(solution, best[number]):
                tally.counts["lowered"] += 1
                continue
            same = value(solution) == true[number]
            tally.counts["harmless" if same else "passed"] += 1
            if not same:
                tally.passed.append(f"{name}, instance {number}: {value(solution)} for {true[number]}")
        if tally.shown == before:
            tally.idle.append(name)
    return tally


def _weaker(solution: Any, best: Any) -> bool:
    """Whether an answer is claimed only as feasible, and its bound, if any, is valid."""
    if solution.status is not Status.FEASIBLE or best.status is not Status.OPTIMAL or solution.certificate is None:
        return False
    if solution.objective is None or solution.bound is None:
        return True
    ends, slack = sorted([float(solution.objective), float(solution.bound)]), 2e-6 * (1 + abs(float(best.objective)))
    return ends[0] - slack <= float(best.objective) <= ends[1] + slack


def refuse_all(family: str, given: tuple[Any, Any, Any], engine: str = "network", *, thorough: bool) -> None:
    """Run the faults of a family on its cases; fail if a wrong answer is accepted or there are too few faults."""
    groups, cases, value = given
    faults = faults_of(groups)
    models = [lambda i=instance, o=options: model_for(i, **o) for instance, options in cases]
    tally = run_faults(family, faults, models, value, engine, thorough=thorough)
    print(f"\n{tally}\nnever refused: {'; '.join(tally.idle) or 'none'}")
    assert not tally.passed, "\n".join(tally.passed)
    assert len(faults) >= 30
    assert len(tally.idle) <= len(faults) // 5  # a fault that is never noticed tests nothing
