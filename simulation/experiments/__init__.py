"""The experiments of the papers: a module per paper, each with its ``EXPERIMENTS``."""

from __future__ import annotations

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
    """All experiments of some papers (of all, when none is named).

    Raises
    ------
    InstanceError
        No such paper.
    """
    for paper in chosen:
        if paper not in papers():
            raise InstanceError(f"no paper is named {paper!r}; one of: {', '.join(papers())}")
    modules = [import_module(f"{__name__}.{paper}") for paper in chosen or papers()]
    return tuple(experiment for module in modules for experiment in module.EXPERIMENTS)
