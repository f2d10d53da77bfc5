"""The experiments of the papers: a module per paper, each with its ``EXPERIMENTS``."""

from __future__ import annotations

import difflib
import pkgutil
from importlib import import_module

from flowlex.instances.base import InstanceError
from flowlex.simulation.experiments.base import Experiment

__all__ = ["experiments", "papers"]


def papers() -> tuple[str, ...]:
    """Short names of the papers, sorted."""
    found = (module.name for module in pkgutil.iter_modules(__path__))
    return tuple(sorted(name for name in found if name != "base" and not name.startswith("_")))


def experiments(*chosen: str) -> tuple[Experiment, ...]:
    """All experiments of some papers, or some by name (all, when none is named).

    Raises
    ------
    InstanceError
        No such paper or experiment.
    """
    found = [experiment for paper in papers() for experiment in import_module(f"{__name__}.{paper}").EXPERIMENTS]
    known = [*papers(), *(each.name for each in found)]
    for name in chosen:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1, 0.5)
            hint = f"; did you mean {near[0]!r}?" if near else "."
            raise InstanceError(f"no paper and no experiment is named {name!r}{hint} Papers: {', '.join(papers())}")
    return tuple(each for each in found if not chosen or each.paper in chosen or each.name in chosen)
