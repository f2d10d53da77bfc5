"""Importer of the public Alibaba GPU-sharing trace (``openb_node_list_*.csv`` and ``openb_pod_list_*.csv``).

A pod there asks for thousandths of a card (``gpu_milli``) on one or more cards, whatever the cards' size, so pods
become shares of cards here.
"""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from pydantic import ValidationError

from flowlex.instances.base import InstanceError
from flowlex.instances.pods import Pod, PodInstance, PodNode
from flowlex.instances.storage import read_bytes

__all__ = [
    "CARD_GB",
    "NODE_COLUMNS",
    "POD_COLUMNS",
    "PRIORITY",
    "UnknownModelWarning",
    "read_openb",
]

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
        Only the first so many of them, in order of creation as listed.
    most_nodes
        Only the first so many nodes. Rows beyond these numbers are not read.

    Raises
    ------
    InstanceError
        A file cannot be read, has another header, or a row is damaged; names file and line. ``at_s`` needs the columns
        of times.

    Warns
    -----
    UnknownModelWarning
        Pods take only cards of models that no node has; they fit nowhere.
    """
    listed = islice(_rows(nodes, NODE_COLUMNS), most_nodes)
    machines = [_node(row, line, nodes) for line, row in listed]
    if not machines:
        raise InstanceError("the node list has no rows", path=nodes)
    made: list[Pod] = []
    for line, row in _rows(pods, POD_COLUMNS):
        if at_s is not None and "creation_time" not in row:
            raise InstanceError("it has no creation_time, so nothing is known of a time; leave at_s out", path=pods)
        if at_s is not None and not _exists(row, at_s, line, pods):
            continue
        if most_pods is not None and len(made) >= most_pods:
            break
        made.append(_pod(row, line, pods))
    _warn_of_models(made, {node.card_model for node in machines}, pods)
    return PodInstance(name=Path(pods).name.partition(".")[0], nodes=tuple(machines), pods=tuple(made))


class UnknownModelWarning(UserWarning):
    """Pods ask for card models that no node has."""


def _warn_of_models(pods: list[Pod], there: set[str | None], path: str | Path) -> None:
    strange = sorted({model for pod in pods for model in pod.card_models} - there)
    if strange:
        nowhere = sum(bool(pod.card_models) and not there & set(pod.card_models) for pod in pods)
        message = f"{path}: no node has cards of model {', '.join(strange)}; {nowhere} pods thereby fit nowhere"
        warnings.warn(message, UnknownModelWarning, stacklevel=3)


def _rows(path: str | Path, columns: tuple[str, ...]) -> Iterator[tuple[int, dict[str, str]]]:
    """Rows with their line numbers; the header must have the columns, in any order, and may have more."""
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InstanceError(f"not UTF-8 text (byte {error.start})", path=path) from error
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    header: list[str] | None = None
    seen: dict[str, int] = {}
    try:
        for fields in reader:
            if header is None:
                header = [field.strip() for field in fields]
                missing = [column for column in columns if column not in header]
                if missing:
                    reason = f"the header lacks {', '.join(missing)}; expected: {','.join(columns)}"
                    raise InstanceError(reason, place="line 1", path=path)
            elif any(field.strip() for field in fields):
                if len(fields) != len(header):
                    reason = f"{len(fields)} fields, the header has {len(header)}; is the row cut off?"
                    raise InstanceError(reason, place=f"line {reader.line_num}", path=path)
                row = dict(zip(header, (field.strip() for field in fields), strict=True))
                name = row[columns[0]]
                if name in seen:
                    reason = f"{columns[0]} {name!r} is that of line {seen[name]} as well"
                    raise InstanceError(reason, place=f"line {reader.line_num}", path=path)
                seen[name] = reader.line_num
                yield reader.line_num, row
    except csv.Error as error:
        raise InstanceError(f"not CSV ({error})", place=f"line {reader.line_num}", path=path) from error


def _number(row: dict[str, str], column: str, line: int, path: str | Path, *, least: float = 0.0) -> float:
    text = row[column]
    try:
        value = float(text) if text else least
    except ValueError:
        value = float("nan")
    if not least <= value < 1e15:
        reason = f"{column} is {text[:40]!r}; a number of at least {least:g} is expected"
        raise InstanceError(reason, place=f"line {line}", path=path)
    return value


def _whole(row: dict[str, str], column: str, line: int, path: str | Path) -> int:
    value = _number(row, column, line, path)
    if value != int(value):
        raise InstanceError(f"{column} is {row[column]!r}; an integer is expected", place=f"line {line}", path=path)
    return int(value)


def _time(row: dict[str, str], column: str, line: int, path: str | Path) -> float | None:
    return _number(row, column, line, path) if row.get(column) else None


def _exists(row: dict[str, str], at_s: float, line: int, path: str | Path) -> bool:
    ends = _number(row, "deletion_time", line, path) if row.get("deletion_time") else float("inf")
    return _number(row, "creation_time", line, path) <= at_s < ends


def _node(row: dict[str, str], line: int, path: str | Path) -> PodNode:
    cards, model = _whole(row, "gpu", line, path), row["model"] or None
    if cards and (model is None or model not in CARD_GB):
        known = ", ".join(CARD_GB)
        raise InstanceError(f"card model {model!r} is not known; one of: {known}", place=f"line {line}", path=path)
    try:
        return PodNode(
            name=row["sn"],
            cpu_cores=_number(row, "cpu_milli", line, path) / 1000,
            memory_gb=_number(row, "memory_mib", line, path) / 1024,
            cards=cards,
            card_gb=CARD_GB[model] if cards and model else 0,
            card_model=model if cards else None,
        )
    except ValidationError as error:
        raise _damaged(error, line, path) from error


def _pod(row: dict[str, str], line: int, path: str | Path) -> Pod:
    cards, milli = _whole(row, "num_gpu", line, path), _number(row, "gpu_milli", line, path)
    if cards and not 0 < milli <= 1000:
        reason = f"gpu_milli is {milli:g} for {cards} cards; 1 to 1000 is expected"
        raise InstanceError(reason, place=f"line {line}", path=path)
    models = tuple(dict.fromkeys(name for name in row.get("gpu_spec", "").split("|") if name)) if cards else ()
    qos = row.get("qos", "")
    if qos and qos not in PRIORITY:
        reason = f"qos {qos!r} is not known; one of: {', '.join(PRIORITY)}"
        raise InstanceError(reason, place=f"line {line}", path=path)
    try:
        return Pod(
            name=row["name"],
            cpu_cores=_number(row, "cpu_milli", line, path) / 1000,
            memory_gb=_number(row, "memory_mib", line, path) / 1024,
            gpu_share=milli / 1000 if cards else 0.0,
            gpu_cards=max(1, cards),
            priority=PRIORITY.get(qos, 0),
            card_models=models,
            created_s=_time(row, "creation_time", line, path),
            deleted_s=_time(row, "deletion_time", line, path),
        )
    except ValidationError as error:
        raise _damaged(error, line, path) from error


def _damaged(error: ValidationError, line: int, path: str | Path) -> InstanceError:
    first = error.errors()[0]
    place = ".".join(str(step) for step in first["loc"])
    reason = first["msg"].removeprefix("Value error, ")
    return InstanceError(f"{place}: {reason}" if place else reason, place=f"line {line}", path=path)
