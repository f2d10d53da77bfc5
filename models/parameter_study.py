"""One table of many solves: options, instances and changes varied together."""

from __future__ import annotations

import itertools
import multiprocessing
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowlex.formulations.solver_outcome import EngineError
from flowlex.instances.files import read_instance
from flowlex.instances.instance_base import Instance, InstanceError
from flowlex.instances.model_changes import Changes, read_changes
from flowlex.models.model_base import Model
from flowlex.models.registry import model_for
from flowlex.models.solution import ModelError

if TYPE_CHECKING:
    import pandas as pd

ChangeSet = Changes | Mapping[str, Any] | str | Path


def combinations(over: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Every combination of the values, in order; the last option changes first.

    Examples
    --------
    >>> list(combinations({"policy": ["FSP", "FS"]}))
    [{'policy': 'FSP'}, {'policy': 'FS'}]
    """
    for values in itertools.product(*over.values()):
        yield dict(zip(over, values, strict=True))


def study(
    model: Model[Any, Any, Any] | Instance | str | Path,
    *,
    over: Mapping[str, Sequence[Any]] | None = None,
    instances: Sequence[Instance | str | Path] = (),
    changes: Mapping[str, ChangeSet] | None = None,
    jobs: int = 1,
    **solving: Any,
) -> pd.DataFrame:
    """Solve every combination of options, instances and changes; one row each.

    Parameters
    ----------
    model
        Base of the study: a model, whose options and changes hold unless varied, or an instance or its file.
    over
        Option to the values to try.
    instances
        Instances or files to solve, in this order, in place of the model's own.
    changes
        Name to changes to try (a document, plain data or file); ``unchanged`` is added as the first.
    jobs
        Number of processes.
    solving
        ``engine`` and options of `flowlex.formulations.SolveOptions`.

    Returns
    -------
    pandas.DataFrame
        Index: instance, the options, changes. Columns: status, objective, bound, gap, claim, seconds, message, stages
        and metrics. A combination that cannot be solved is a row with status ``error`` and the reason.

    Raises
    ------
    ModelError
        An option has no values.

    Examples
    --------
    >>> from flowlex import generate
    >>> study(generate("gpu-figure1"), over={"policy": ["FSP", "FSU"]})["objective"].tolist()
    [42, 10]
    """
    import pandas as pd

    varied = {name: list(values) for name, values in (over or {}).items()}
    if empty := [name for name, values in varied.items() if not values]:
        raise ModelError(f"study: option {empty[0]!r} has no values to try")
    start = model if isinstance(model, Model) else None
    sources = list(instances) or [model.instance if isinstance(model, Model) else model]
    sets: dict[str, Changes] = {"unchanged": Changes()}
    sets |= {
        name: read_changes(dict(each) if isinstance(each, Mapping) else each) for name, each in (changes or {}).items()
    }
    names = list(sets) if changes else ["unchanged"]
    base = {} if start is None else {"changes": start.changes, **_options(start)}
    runs = [
        (source, {**base, **chosen}, sets[name], {"instance": "", **chosen, "changes": name}, solving)
        for source, chosen, name in itertools.product(sources, list(combinations(varied)), names)
    ]
    if jobs > 1:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(min(jobs, len(runs)), mp_context=context) as pool:
            rows = list(pool.map(_row, runs))
    else:
        rows = [_row(run) for run in runs]
    index = ["instance", *varied, *(["changes"] if changes else [])]
    frame = pd.DataFrame(rows)
    return frame.drop(columns=[] if changes else ["changes"]).set_index(index)


def _options(model: Model[Any, Any, Any]) -> dict[str, Any]:
    from flowlex.models.model_options import option_types

    return {name: getattr(model, name) for name in option_types(type(model))}


def _row(run: tuple[Any, dict[str, Any], Changes, dict[str, Any], dict[str, Any]]) -> dict[str, Any]:
    """Solve one combination."""
    source, options, changes, labels, solving = run
    row = dict(labels)
    try:
        instance = source if isinstance(source, Instance) else read_instance(source)
        row["instance"] = instance.name if isinstance(source, Instance) else str(source)
        first = options.get("changes") or Changes()
        solution = model_for(instance, **{**options, "changes": first.also(*changes)}).solve(**solving)
    except (InstanceError, ModelError, EngineError, OSError) as error:
        return row | {"instance": row["instance"] or str(source), "status": "error", "message": str(error)}
    certificate = solution.certificate
    figures = solution.metrics() if solution.status.has_answer else {}
    return row | {
        "status": str(solution.status),
        "objective": solution.objective,
        "bound": solution.bound,
        "gap": solution.gap,
        "claim": None if certificate is None else certificate.claim,
        "seconds": solution.seconds.total,
        "message": solution.message,
        **{f"stage_{name}": getattr(value, "value", value) for name, value in solution.stages.items()},
        **figures,
    }
