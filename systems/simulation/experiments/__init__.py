"""The experiments of the papers: a module of measuring functions per paper, declared in data beside them."""

from __future__ import annotations

import difflib

from flowlex.instances.instance_base import InstanceError
from flowlex.systems.simulation.experiments.declarations import declared
from flowlex.systems.simulation.experiments.statements_and_verdicts import Experiment

__all__ = ["experiments", "papers"]


def papers() -> tuple[str, ...]:
    """Short names of the papers, sorted."""
    return tuple(sorted({each.paper for each in declared()}))


def experiments(*chosen: str) -> tuple[Experiment, ...]:
    """All experiments of some papers, or some by name (all, when none is named).

    Raises `InstanceError`: no such paper or experiment.
    """
    known = [*papers(), *(each.name for each in declared())]
    for name in chosen:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1, 0.5)
            hint = f"; did you mean {near[0]!r}?" if near else "."
            raise InstanceError(f"no paper and no experiment is named {name!r}{hint} Papers: {', '.join(papers())}")
    return tuple(each for each in declared() if not chosen or each.paper in chosen or each.name in chosen)
