"""What every instance has in common: a strict, immutable document with a kind and a version.

An instance states a scheduling problem in terms of its domain, independent of any solver. Each kind is
a pydantic model; its JSON form carries units in the field names (``size_mb``, ``rack_mbps``). Large numeric
data are also offered to models as NumPy arrays (a cached ``arrays`` property of the kind).
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
import sys
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar, cast

import numpy as np

from flowlex.instances.field_types import Name, NonNegative, Part, Positive
from flowlex.instances.input_errors import InstanceError, did_you_mean
from flowlex.instances.instance_tables import frames_of, instance_of_frames
from flowlex.instances.model_changes import Changes

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Instance",
    "InstanceError",
    "Name",
    "NonNegative",
    "Part",
    "Positive",
    "read_only",
    "require_known",
    "require_unique",
]

View = TypeVar("View")


class Instance(Part):
    """Base of all instance kinds.

    A subclass declares ``kind: Literal["..."]`` with that value as its default, and checks in pydantic
    validators what the field types cannot express (dangling names, duplicates). Defining the subclass
    registers it, so that `flowlex.instances.read_instance` recognises its files.

    Attributes
    ----------
    kind
        Name of the kind, as files state it.
    version
        Version of the file format.
    name
        Name of the instance, 1 to 200 characters.
    comment
        Text for people; it does not count in ``fingerprint``.
    changes
        Changes of the model, made before it is solved; none when None.
    """

    registry: ClassVar[dict[str, type[Instance]]] = {}

    kind: str
    version: Literal[1] = 1
    name: Name = "unnamed"
    comment: str = ""
    changes: Changes | None = None
    """Rules of one's own and other changes of the model, made before it is solved."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if "kind" not in inspect.get_annotations(cls):
            return  # refines a kind that is registered
        kind = cls.model_fields["kind"].default
        if isinstance(kind, str):
            other = Instance.registry.setdefault(kind, cls)
            if (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
                raise TypeError(f"kind {kind!r} is that of {other.__module__}.{other.__qualname__}; choose another")
            Instance.registry[kind] = cls  # running a notebook cell again redefines the class

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return this instance with some fields replaced, checked again and without its old array views.

        Parameters
        ----------
        update
            New value by name of the field; without any, the instance itself is returned.
        deep
            Without effect, as instances are immutable.

        Raises
        ------
        pydantic.ValidationError
            The new values make no valid instance, or a field is unknown.
        """
        if not update:
            return self
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self).model_validate({**fields, **update})

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the instance's content, which identifies it in solution files. Comments do not count."""
        # Without defaults, so that a field added later changes no fingerprint.
        content = self.model_dump_json(exclude={"comment", "changes"}, exclude_defaults=True)
        content += json.dumps(self.changes.plain()) if self.changes else ""
        return "sha256:" + hashlib.sha256(f"{self.kind} {content}".encode()).hexdigest()

    def __repr__(self) -> str:
        sizes = ", ".join(f"{what} {size}" for what, size in list(self.summary().items())[:5])
        return f"<{type(self).__name__} {self.name!r}{': ' if sizes else ''}{sizes}>"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        import pandas as pd

        facts = {"kind": self.kind, "name": self.name, "comment": self.comment, **self.summary()}
        said = {what: str(value) for what, value in facts.items() if value != ""}
        return str(pd.Series(said).to_frame(f"{self.kind} instance").to_html())

    @classmethod
    def from_frames(cls, **given: Any) -> Self:
        """An instance from pandas frames, one per table of the kind, and plain values for its other fields.

        The inverse of `to_frames`, which shows tables and columns; ``flowlex import csv --columns KIND`` lists them. A
        row names its parents (a task its ``job``); lists are lists or text joined by ``;``, mappings dicts or
        ``key=value;...``; an empty cell is the field's default.

        Parameters
        ----------
        **given
            A frame by name of the table (``jobs=frame``), a plain value by name of the field (``name="test"``).

        Raises
        ------
        InstanceError
            Unknown or missing table or column, a cell of the wrong type, a parent that is not there; names the row.

        Examples
        --------
        >>> from flowlex.instances import generate
        >>> instance = generate("gpu-figure4")
        >>> type(instance).from_frames(**instance.to_frames()) == instance
        True
        """
        return instance_of_frames(cls, given)

    def to_frames(self) -> dict[str, pd.DataFrame]:
        """The instance as pandas frames: one per table, and one of a single row, ``instance``, for all other fields."""
        return frames_of(self)

    @property
    def cells(self) -> int:
        """Approximate number of decisions, such as nodes times pods; the largest integer if not defined by a kind."""
        return sys.maxsize

    def summary(self) -> dict[str, str | int | float]:
        """Sizes and totals for `flowlex show`, in the order they should be printed."""
        return {}


def read_only(view: View) -> View:
    """Make the arrays of a dataclass read-only, so that nothing edits an instance through its view; return it."""
    for field in dataclasses.fields(cast(Any, view)):
        value = getattr(view, field.name)
        if isinstance(value, np.ndarray):
            value.flags.writeable = False
    return view


def require_unique(names: Iterable[str], what: str) -> None:
    """Raise ``ValueError`` naming the first name that occurs twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"two {what} are named {name!r}; give each its own name")
        seen.add(name)


def require_known(name: str | None, among: Collection[str], says: str, what: str) -> None:
    """Raise ``ValueError`` unless a name is known or None; the message starts with ``says`` and the name."""
    if name is not None and name not in among:
        some = ", ".join(list(among)[:10]) + (", ..." if len(among) > 10 else "")
        hint = did_you_mean(name, among)
        raise ValueError(f"{says} {name!r}, which does not exist; the {what} are: {some or 'none'}{hint}")
