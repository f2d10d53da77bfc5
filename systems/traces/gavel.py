"""Measured throughputs in Gavel's format (``simulation_throughputs.json``), with randomly drawn jobs.

The file maps GPU type to ``('model', scale)`` to ``null`` (alone, steps/s) or another job type (steps/s of both while
they share GPUs). Types whose name ends in ``_unconsolidated`` (GPUs spread over servers) are left out.

Source: github.com/stanford-futuredata/gavel (MIT).
"""

from __future__ import annotations

import ast
import json
import math
from pathlib import Path
from typing import Any

from flowlex.instances.allocation import AllocationInstance, JobType, PairThroughput
from flowlex.instances.file_storage import read_bytes
from flowlex.instances.generators.allocation import Workload, draw_workload
from flowlex.instances.instance_base import InstanceError


def read_gavel(
    path: str | Path,
    *,
    jobs: int = 32,
    gpus: int = 8,
    entities: int = 0,
    sharing: bool = False,
    least_gain: float = 1.2,
    jobs_per_hour: float = 0.0,
    slack: float = 0.0,
    seed: int = 0,
) -> AllocationInstance:
    """Read measured throughputs from Gavel's file, plain or gzip, and draw jobs of its job types.

    Parameters
    ----------
    jobs, gpus, entities
        Number of jobs; GPUs of each type; number of users, who own the jobs in turn.
    sharing, least_gain
        Keep pairs whose speeds, as fractions of the speeds alone, sum to over ``least_gain``.
    jobs_per_hour
        A snapshot of a Poisson process at this rate; 0: all submitted now.
    slack
        Deadline as a multiple of the duration at full speed; 0 for none.

    Raises
    ------
    InstanceError
        Naming file, place and reason.
    """
    if jobs < 1 or gpus < 1 or entities < 0 or jobs_per_hour < 0 or slack < 0:
        raise InstanceError("jobs and gpus must be at least 1; entities, jobs_per_hour and slack not negative")
    try:
        document = json.loads(read_bytes(path))
        types, kinds = _job_types(document)
        pairs = _pairs(document, types, kinds, least_gain) if sharing else []
        work = Workload(jobs, gpus, entities, "poisson" if jobs_per_hour else "together", jobs_per_hour, slack)
        name = f"{Path(path).name.split('.')[0]}-{jobs}-{seed}"
        return draw_workload(name, work, types, list(kinds.values()), pairs, seed)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InstanceError(f"not JSON: {error}", path=path) from error
    except InstanceError as error:
        raise error.at(path) from error.__cause__


def _job_types(document: Any) -> tuple[list[str], dict[str, JobType]]:
    """Names of GPU types, and job types by their key in the file."""
    if not isinstance(document, dict) or not all(isinstance(table, dict) for table in document.values()):
        raise InstanceError("must be an object: GPU type to job type to throughputs")
    types = [name for name in document if not name.endswith("_unconsolidated")]
    if not types:
        raise InstanceError("no GPU type is in it (those ending in '_unconsolidated' are left out)")
    speeds: dict[str, dict[str, float]] = {}
    for gpu_type in types:
        for key, row in document[gpu_type].items():
            if not isinstance(row, dict) or "null" not in row:
                raise InstanceError("no throughput alone ('null')", place=f"{gpu_type}.{key}")
            speeds.setdefault(key, {})[gpu_type] = _speed(row["null"], f"{gpu_type}.{key}.null")
    kinds = {}
    for key, row in speeds.items():
        model, scale = _job_type(key)
        kinds[key] = JobType(name=f"{model} x{scale}", gpus=scale, steps_per_s=row)
    return types, kinds


def _pairs(document: Any, types: list[str], kinds: dict[str, JobType], least_gain: float) -> list[PairThroughput]:
    pairs = []
    for gpu_type in types:
        for one, row in document[gpu_type].items():
            for other, both in row.items():
                place = f"{gpu_type}.{one}.{other}"
                if other == "null" or other < one:
                    continue
                if other not in kinds or kinds[other].gpus != kinds[one].gpus:
                    raise InstanceError("pairs with a job type of another scale, or that has no row", place=place)
                if not isinstance(both, list) or len(both) != 2:
                    raise InstanceError("a pair has two throughputs", place=place)
                speeds = (_speed(both[0], place), _speed(both[1], place))
                alone = [kinds[key].steps_per_s[gpu_type] for key in (one, other)]
                if all(alone) and speeds[0] / alone[0] + speeds[1] / alone[1] > least_gain:
                    names = (kinds[one].name, kinds[other].name)
                    pairs.append(PairThroughput(job_types=names, gpu_type=gpu_type, steps_per_s=speeds))
    return pairs


def _job_type(key: str) -> tuple[str, int]:
    try:
        model, scale = ast.literal_eval(key)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        model, scale = None, None
    if not isinstance(model, str) or type(scale) is not int or scale < 1:
        raise InstanceError(f"a job type reads \"('model', GPUs at once)\", found {key!r:.80}")
    return model, scale


def _speed(value: Any, place: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise InstanceError(f"a throughput is a number of at least 0, found {value!r:.40}", place=place)
    return float(value)
