"""Instances as tables: the nested objects of a kind as frames of rows, derived from its class.

A field that lists objects becomes a table of its name (``jobs``, ``tasks``); a row of a nested one names its parents
(``job``). An object inside a row becomes columns with its name in front (``running_gpu``). Everything else of the
document is a plain value, in the table ``instance`` of one row.
"""

from __future__ import annotations

import json
import math
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from flowlex.instances.input_errors import InstanceError, place_in, plain_reason

if TYPE_CHECKING:
    import pandas as pd


Model = TypeVar("Model", bound=BaseModel)
WHOLE = "instance"


@dataclass(frozen=True)
class Table:
    """A table of a kind."""

    # name, field, part: its name, the field of its parent that lists the rows, and their class
    name: str
    field: str
    part: type[BaseModel]
    # names of the parents, outermost first (``job``), and of their columns: the same, or ``of_job`` if the rows have a
    # field of that name
    parents: Mapping[str, str]
    columns: Mapping[str, tuple[str, str | None, Any]]  # column to (field, field inside it or None, annotation)
    required: tuple[str, ...]  # columns that cannot be left out
    children: tuple[Table, ...]

    def everywhere(self) -> list[Table]:
        """The table itself and all below it."""
        return [self, *(table for child in self.children for table in child.everywhere())]


@dataclass(frozen=True)
class Row:
    """A row of a table, and its place (``tasks.csv: line 7``)."""

    where: str
    cells: Mapping[str, Any]


def _strip(annotation: Any) -> Any:
    """An annotation without ``Annotated`` and ``None``."""
    while typing.get_origin(annotation) is typing.Annotated:
        annotation = typing.get_args(annotation)[0]
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        rest = [arg for arg in typing.get_args(annotation) if arg is not type(None)]
        return _strip(rest[0]) if len(rest) == 1 else annotation
    return annotation


def _listed(annotation: Any) -> type[BaseModel] | None:
    """The class of objects that a field lists; None when it lists none."""
    plain = _strip(annotation)
    first = _strip(next(iter(typing.get_args(plain)), None))
    return first if typing.get_origin(plain) in (tuple, list) and _is_part(first) else None


def _is_part(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


@cache
def tables_of(cls: type[BaseModel]) -> Table:
    """The tables of a kind of instance: the one of plain fields, its children below it."""
    return _table(cls, WHOLE, "", ())


def _table(part: type[BaseModel], name: str, field: str, parents: tuple[str, ...]) -> Table:
    columns: dict[str, tuple[str, str | None, Any]] = {}
    required, children = [], []
    inner = () if name == WHOLE else (*parents, name.removesuffix("s"))
    for key, info in part.model_fields.items():
        listed, plain = _listed(info.annotation), _strip(info.annotation)
        if listed is not None:
            children.append(_table(listed, key, key, inner))
        elif _is_part(plain) and key != "changes":  # changes stay a document in one cell
            columns |= {f"{key}_{sub}": (key, sub, deep.annotation) for sub, deep in plain.model_fields.items()}
        else:
            columns[key] = (key, None, info.annotation)
            required += [key] if info.is_required() else []
    of = {parent: f"of_{parent}" if parent in columns else parent for parent in parents}
    return Table(name, field, part, of, columns, tuple(required), tuple(children))


def frames_of(instance: BaseModel) -> dict[str, pd.DataFrame]:
    """The frames of an instance, by name of the table; lists and mappings stay objects in their cells."""
    import pandas as pd

    root = tables_of(type(instance))
    rows: dict[str, list[dict[str, Any]]] = {table.name: [] for table in root.everywhere()}
    _collect(root, instance, {}, rows)
    frames = {}
    for table in root.everywhere():
        data = {name: [row[name] for row in rows[table.name]] for name in (*table.parents.values(), *table.columns)}
        frames[table.name] = pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in data.items()})
    return frames


def _collect(table: Table, part: BaseModel, keys: dict[str, str], rows: dict[str, list[dict[str, Any]]]) -> None:
    cells: dict[str, Any] = {column: keys[parent] for parent, column in table.parents.items()}
    for name, (field, inside, _) in table.columns.items():
        value = getattr(part, field)
        cells[name] = value if inside is None or value is None else getattr(value, inside)
    rows[table.name].append(cells)
    inner = keys if table.name == WHOLE else {**keys, table.name.removesuffix("s"): str(getattr(part, "name", ""))}
    for child in table.children:
        for item in getattr(part, child.field):
            _collect(child, item, inner, rows)


def instance_of_frames(cls: type[Model], given: Mapping[str, Any]) -> Model:
    """Return the instance given by frames and plain values; see `Instance.from_frames`."""
    names = {table.name for table in tables_of(cls).everywhere()}
    rows: dict[str, list[Row]] = {}
    plain = {}
    for name, value in given.items():
        if name in names and hasattr(value, "to_dict"):
            records = value.to_dict("records")
            rows[name] = [Row(f"{name}, row {number}", record) for number, record in enumerate(records, 1)]
        else:
            plain[name] = value
    if plain:
        first = rows.pop(WHOLE, [Row(WHOLE, {})])[0]
        rows[WHOLE] = [Row(first.where, {**first.cells, **plain})]
    return instance_of_rows(cls, rows)


def instance_of_rows(cls: type[Model], given: Mapping[str, Sequence[Row]]) -> Model:
    """Return the instance given by rows of tables."""
    root = tables_of(cls)
    known = [table.name for table in root.everywhere()]
    for name in given:
        if name not in known:
            raise InstanceError(f"there is no table {name!r}; the tables of this kind: {', '.join(known)}")
    whole = [*given.get(WHOLE, ()), Row(WHOLE, {})][:1]
    document = _objects(root, whole)[0][0]
    places: dict[tuple[str | int, ...], str] = {}
    _attach(root, [(document, (), {})], given, places)
    try:
        return cls.model_validate(document)
    except ValidationError as error:
        raise _explained(error, places) from error


def _objects(table: Table, rows: Iterable[Row]) -> list[tuple[dict[str, Any], Row]]:
    """Convert rows to documents without children and parents."""
    made = []
    for row in rows:
        odd = [name for name in row.cells if name not in table.columns and name not in table.parents.values()]
        if odd:
            known = ", ".join((*table.parents.values(), *table.columns))
            raise InstanceError(f"unknown column {odd[0]!r}; known: {known}", place=row.where)
        document: dict[str, Any] = {}
        for name, (field, inside, annotation) in table.columns.items():
            value = row.cells.get(name)
            if _empty(value):
                continue
            try:
                read = _read(value, annotation)
            except ValueError as error:
                raise InstanceError(f"{value!r} is {error}", place=f"{row.where}, column {name}") from None
            if inside is None:
                document[field] = read
            else:
                document.setdefault(field, {})[inside] = read
        missing = [name for name in table.required if name not in document]
        if missing and table.name != WHOLE:
            raise InstanceError(f"{missing[0]!r} is missing", place=f"{row.where}, column {missing[0]}")
        made.append((document, row))
    return made


Parent = tuple[dict[str, Any], tuple[str | int, ...], dict[str, str]]


def _attach(
    table: Table, parents: list[Parent], given: Mapping[str, Sequence[Row]], places: dict[tuple[str | int, ...], str]
) -> None:
    """Give every parent its children, level by level."""
    for child in table.children:
        rows = _objects(child, given.get(child.name) or _named_by_children(child, given))
        index: dict[str | None, list[Parent]] = {}
        for parent in parents:
            index.setdefault(parent[2].get([*child.parents][-1]) if child.parents else None, []).append(parent)
        below: list[Parent] = []
        for document, row in rows:
            said = {parent: row.cells.get(column) for parent, column in child.parents.items()}
            keys = {parent: str(value) for parent, value in said.items() if not _empty(value)}
            holder, path, above = _parent(child, index, keys, row)
            listed = holder.setdefault(child.field, [])
            place = (*path, child.field, len(listed))
            places[place] = row.where
            listed.append(document)
            below.append((document, place, {**above, child.name.removesuffix("s"): str(document.get("name", ""))}))
        if not rows and child.field not in dict(table.part.model_fields):
            continue
        for document, _, _ in parents:
            if table.part.model_fields[child.field].is_required():
                document.setdefault(child.field, [])
        _attach(child, below, given, places)


def _named_by_children(table: Table, given: Mapping[str, Sequence[Row]]) -> list[Row]:
    """Return rows of a missing table that needs only names, which its children give (tasks name their jobs)."""
    own = table.name.removesuffix("s")
    if table.name in given or table.required != ("name",) or table.parents:
        return []
    names = {
        str(row.cells[child.parents[own]]): row.where
        for child in table.children
        for row in given.get(child.name, ())
        if not _empty(row.cells.get(child.parents[own]))
    }
    return [Row(where, {"name": name}) for name, where in names.items()]


def _parent(table: Table, index: Mapping[str | None, list[Parent]], keys: dict[str, str], row: Row) -> Parent:
    """The parent that a row names."""
    if not table.parents:
        return index[None][0]
    nearest = [*table.parents][-1]
    if nearest not in keys:
        raise InstanceError(
            f"the row does not say its {nearest}", place=f"{row.where}, column {table.parents[nearest]}"
        )
    near = index.get(keys[nearest], [])
    found = [parent for parent in near if all(parent[2].get(name) == key for name, key in keys.items())]
    if len(found) == 1:
        return found[0]
    said = ", ".join(f"{name} {key!r}" for name, key in keys.items())
    if not found:
        raise InstanceError(f"there is no {said}; every {nearest} needs a row of its own", place=row.where)
    more = next((name for name in table.parents if name not in keys), nearest)
    raise InstanceError(
        f"{said} is there {len(found)} times; say which by a column {table.parents[more]!r}", place=row.where
    )


def _empty(value: Any) -> bool:
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value)) or str(value) == "<NA>"


def _read(value: Any, annotation: Any) -> Any:
    """Convert a cell to the type of its field: parse text, turn NumPy numbers into Python numbers."""
    plain = _strip(annotation)
    origin, args = typing.get_origin(plain), typing.get_args(plain)
    if origin in (tuple, list):
        items = [text.strip() for text in value.split(";")] if isinstance(value, str) else list(value)
        return [_read(item, args[0]) for item in items if item != ""]
    if origin in (dict, Mapping) or (isinstance(origin, type) and issubclass(origin, Mapping)):
        return {key: _read(item, args[1]) for key, item in _pairs(value)}
    if hasattr(value, "item"):
        value = value.item()
    if not isinstance(value, str):
        return int(value) if plain is int and isinstance(value, float) and value.is_integer() else value
    if plain is bool:
        return _bool(value)
    if plain in (int, float) or origin in (typing.Union, types.UnionType):
        return _number(value, plain)
    return value


def _pairs(value: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return value.items()
    pairs = [text.partition("=") for text in str(value).split(";") if text.strip()]
    if any(not equals for _, equals, _ in pairs):
        raise ValueError("no list of key=value, joined by ';'")
    return [(key.strip(), item.strip()) for key, _, item in pairs]


def _bool(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("neither true nor false")
    return text.lower() == "true"


def _number(text: str, plain: Any) -> Any:
    try:
        read = json.loads(text)
    except ValueError:
        read = None
    if isinstance(read, bool) or not isinstance(read, (int, float)):
        if plain in (int, float):
            raise ValueError("no integer" if plain is int else "no number")
        return text
    return float(read) if plain is float else read


def _explained(error: ValidationError, places: Mapping[tuple[str | int, ...], str]) -> InstanceError:
    first = error.errors(include_url=False)[0]
    location = first["loc"]
    reason = plain_reason(first)
    for cut in range(len(location), 0, -1):
        if location[:cut] in places:
            column = "_".join(str(step) for step in location[cut:] if isinstance(step, str))
            return InstanceError(reason, place=places[location[:cut]] + (f", column {column}" if column else ""))
    return InstanceError(reason, place=place_in(location))
