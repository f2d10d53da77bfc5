"""Read anything that flowlex solves: instances of its models, and problems of one's own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from flowlex.instances import files
from flowlex.instances.instance_base import Instance

if TYPE_CHECKING:
    from flowlex.models.problem import Problem

InstanceT = TypeVar("InstanceT", bound=Instance)


@overload
def read(source: InstanceT) -> InstanceT: ...
@overload
def read(source: Problem) -> Problem: ...
@overload
def read(source: str | Path | Mapping[str, Any]) -> Any: ...
def read(source: Any) -> Any:
    """Read an instance or a problem from a file, tables or a parsed document.

    Parameters
    ----------
    source
        Path or URL of a file: an instance (JSON, DIMACS, coflow trace), a problem (``.problem.json``) or a model
        (``.mps``, ``.lp``); each also packed (``.gz``). Tables as pandas frames by name, with the ``kind`` beside them
        (`Instance.from_frames`); a parsed document; an instance or a problem, which is returned as it is.

    Returns
    -------
    Instance or Problem
        A `flowlex.Problem` for problem and model files. Its variables are those of the file; of a model file ``x`` by
        ``column``.

    Raises
    ------
    InstanceError
        The source holds neither; names the file or table, the place and the reason.

    Examples
    --------
    >>> import pandas as pd
    >>> nodes = pd.DataFrame({"name": ["a", "b"], "configuration": [2, 1]})
    >>> blocks = pd.DataFrame({"name": ["log"], "items": [6], "holders": [["a", "b"]]})
    >>> read({"kind": "load-partition", "nodes": nodes, "blocks": blocks}).kind
    'load-partition'
    """
    from flowlex.formulations.language.statement import Statement

    if isinstance(source, Statement):
        return source
    found = files.read(source)
    if found.kind != "problem":
        return found
    from flowlex.models.problem_model import ProblemModel

    model: Any = ProblemModel
    made: Problem = model(found).problem
    return made
