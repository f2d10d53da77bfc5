"""Whatever describes a problem, as an instance: a file, tables, or a parsed document."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flowlex.instances.base import Instance, InstanceError
from flowlex.instances.extensions import instance_class, kinds
from flowlex.instances.files import instance_from_document, read_instance

__all__ = ["read"]


def read(source: str | Path | Mapping[str, Any] | Instance) -> Instance:
    """Read an instance from what a person has at hand.

    Parameters
    ----------
    source
        Path or URL of a file (JSON, DIMACS, coflow trace; .gz too); tables as pandas frames by name, with the ``kind``
        beside them (`Instance.from_frames`); a parsed document; or an instance, which is returned as it is.

    Raises
    ------
    InstanceError
        The source holds no instance; names the file or table, the place and the reason.

    Examples
    --------
    >>> import pandas as pd
    >>> nodes = pd.DataFrame({"name": ["a", "b"], "configuration": [2, 1]})
    >>> blocks = pd.DataFrame({"name": ["log"], "items": [6], "holders": [["a", "b"]]})
    >>> read({"kind": "load-partition", "nodes": nodes, "blocks": blocks}).kind
    'load-partition'
    """
    if isinstance(source, Instance):
        return source
    if isinstance(source, str | Path):
        return read_instance(source)
    if not isinstance(source, Mapping):
        tables = "{'kind': 'gpu-assignment', 'nodes': frame, ...}" if hasattr(source, "columns") else "a path"
        raise InstanceError(
            f"expected a path, tables by name or an instance, got {type(source).__name__}; give {tables}"
        )
    tables = {name: value for name, value in source.items() if hasattr(value, "columns")}
    if not tables:
        return instance_from_document(dict(source))
    fields = {name: value for name, value in source.items() if name not in tables}
    kind = fields.pop("kind", None)
    if kind is None:
        raise InstanceError(f"tables need their kind beside them; one of: {', '.join(kinds())}", place="kind")
    return instance_class(kind).from_frames(**tables, **fields)
