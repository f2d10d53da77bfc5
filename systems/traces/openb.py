"""Importer of the public Alibaba GPU-sharing trace (``openb_node_list_*.csv`` and ``openb_pod_list_*.csv``).

A pod of the trace requests thousandths of a card (``gpu_milli``) on one or more cards of any size; here these become
shares of cards.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from flowlex.instances.input_errors import InstanceError, counted, first_fault
from flowlex.instances.pods import Pod, PodInstance, PodNode
from flowlex.systems.traces.csv_tables import csv_rows

_Part = TypeVar("_Part", Pod, PodNode)

NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
# gpu_spec, qos, creation_time and deletion_time are read where a list has them; some of the published ones do not.
#: Memory of a card by model, GB. The trace does not disclose G1, G2 and G3; 16 is assumed, which changes the weight
#: of GPU memory in the load but not what fits, since pods ask for shares.
CARD_GB = {"P100": 16, "T4": 16, "V100M16": 16, "V100M32": 32, "A10": 24, "G1": 16, "G2": 16, "G3": 16}
#: Quality of service as a priority (ours).
PRIORITY = {"LS": 3, "Guaranteed": 3, "Burstable": 2, "BE": 1}


def read_openb(
    nodes: str | Path,
    pods: str | Path,
    *,
    at_s: float | None = None,
    most_pods: int | None = None,
    most_nodes: int | None = None,
) -> PodInstance:
    """Read a node list and a pod list.

    Parameters
    ----------
    at_s
        Only pods that exist at this time of the trace (created, not yet deleted); all when None.
    most_pods
        Largest number of these pods, taken in the order listed (order of creation).
    most_nodes
        Largest number of nodes. Rows beyond these numbers are not read.

    Raises
    ------
    InstanceError
        A file cannot be read, has another header, or a row is damaged; names file and line. ``at_s`` needs the columns
        of times.

    Warns
    -----
    UnknownModelWarning
        Pods accept only card models that no node has, so they fit nowhere.
    """
    machines = tuple(islice(_read(nodes, NODE_COLUMNS, _node), most_nodes))
    if not machines:
        raise InstanceError("the node list has no rows", path=nodes)

    def pod(row: Mapping[str, str]) -> Pod | None:
        if at_s is None:
            return _pod(row)
        if "creation_time" not in row:
            raise InstanceError("it has no creation_time, so nothing is known of a time; leave at_s out", path=pods)
        ends = _number(row, "deletion_time") if row.get("deletion_time") else float("inf")
        return _pod(row) if _number(row, "creation_time") <= at_s < ends else None

    made = tuple(islice(_read(pods, POD_COLUMNS, pod), most_pods))
    _warn_of_models(made, {node.card_model for node in machines}, pods)
    return PodInstance(name=Path(pods).name.partition(".")[0], nodes=machines, pods=made)


class UnknownModelWarning(UserWarning):
    """Pods ask for card models that no node has."""


def _warn_of_models(pods: Sequence[Pod], there: set[str | None], path: str | Path) -> None:
    strange = sorted({model for pod in pods for model in pod.card_models} - there)
    if strange:
        nowhere = sum(bool(pod.card_models) and not there & set(pod.card_models) for pod in pods)
        fit = counted(nowhere, "pod fits", "pods fit")
        message = f"{path}: no node has cards of model {', '.join(strange)}; so {fit} nowhere"
        warnings.warn(message, UnknownModelWarning, stacklevel=3)


def _read(
    path: str | Path, columns: Sequence[str], make: Callable[[Mapping[str, str]], _Part | None]
) -> Iterator[_Part]:
    """Yield the objects made from the rows of a list whose first column is a name; errors name the line."""
    seen: dict[str, int] = {}
    for line, row in csv_rows(path, columns):
        name = row[columns[0]]
        try:
            if name in seen:
                raise ValueError(f"{columns[0]} {name!r} is that of line {seen[name]} as well")
            seen[name] = line
            made = make(row)
        except ValidationError as error:
            raise InstanceError(": ".join(filter(None, first_fault(error))), place=f"line {line}", path=path) from error
        except InstanceError:
            raise
        except ValueError as error:
            raise InstanceError(str(error), place=f"line {line}", path=path) from error
        if made is not None:
            yield made


def _number(row: Mapping[str, str], column: str) -> float:
    text = row[column]
    try:
        value = float(text or 0)
    except ValueError:
        value = float("nan")
    if not 0 <= value < 1e15:
        raise ValueError(f"{column} is {text[:40]!r}; a number of at least 0 is expected")
    return value


def _whole(row: Mapping[str, str], column: str) -> int:
    value = _number(row, column)
    if value != int(value):
        raise ValueError(f"{column} is {row[column]!r}; an integer is expected")
    return int(value)


def _node(row: Mapping[str, str]) -> PodNode:
    cards, model = _whole(row, "gpu"), row["model"] or None
    if cards and (model is None or model not in CARD_GB):
        raise ValueError(f"card model {model!r} is not known; one of: {', '.join(CARD_GB)}")
    return PodNode(
        name=row["sn"],
        cpu_cores=_number(row, "cpu_milli") / 1000,
        memory_gb=_number(row, "memory_mib") / 1024,
        cards=cards,
        card_gb=CARD_GB[model] if cards and model else 0,
        card_model=model if cards else None,
    )


def _pod(row: Mapping[str, str]) -> Pod:
    cards, milli, qos = _whole(row, "num_gpu"), _number(row, "gpu_milli"), row.get("qos", "")
    if cards and not 0 < milli <= 1000:
        raise ValueError(f"gpu_milli is {milli:g} for {counted(cards, 'card')}; 1 to 1000 is expected")
    if qos and qos not in PRIORITY:
        raise ValueError(f"qos {qos!r} is not known; one of: {', '.join(PRIORITY)}")
    models = dict.fromkeys(name for name in row.get("gpu_spec", "").split("|") if name) if cards else ()
    return Pod(
        name=row["name"],
        cpu_cores=_number(row, "cpu_milli") / 1000,
        memory_gb=_number(row, "memory_mib") / 1024,
        gpu_share=milli / 1000 if cards else 0.0,
        gpu_cards=max(1, cards),
        priority=PRIORITY.get(qos, 0),
        card_models=tuple(models),
        created_s=_number(row, "creation_time") if row.get("creation_time") else None,
        deleted_s=_number(row, "deletion_time") if row.get("deletion_time") else None,
    )
