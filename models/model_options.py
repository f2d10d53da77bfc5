"""Options of a model, checked once and from their declared types."""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from flowlex.instances.field_descriptions import parameters
from flowlex.instances.input_errors import did_you_mean, plain_reason
from flowlex.instances.model_changes import read_changes
from flowlex.models.solution import ModelError

#: Fields of models that are no options.
_NO_OPTIONS = ("instance", "data", "changes")


@lru_cache(maxsize=64)
def option_types(cls: type) -> dict[str, Any]:
    """Options of a model class: name to declared type."""
    hints = typing.get_type_hints(cls)
    return {f.name: hints[f.name] for f in dataclasses.fields(cls) if f.name not in _NO_OPTIONS and f.init}


@dataclasses.dataclass(frozen=True)
class Option:
    """An option of a model, for a reader: its name, what it may be, its default and its meaning."""

    name: str
    values: str
    default: str
    says: str


def options_of(cls: type) -> list[Option]:
    """The options of a model class; their meanings are those of its docstring's section of parameters."""
    said = parameters(cls.__doc__)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    found = []
    for name, hint in option_types(cls).items():
        factory, value = fields[name].default_factory, fields[name].default
        default = _plain(factory() if factory is not dataclasses.MISSING else value)
        found.append(Option(name, _values(hint), _default(default), said.get(name, "")))
    return found


def _default(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}={_default(item)}" for key, item in value.items() if key != "type")
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None else ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _values(hint: Any) -> str:
    """A declared type in words for the command line."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return ", ".join(str(member.value) for member in hint)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return "{" + ", ".join(field.name for field in dataclasses.fields(hint)) + "}"
    if origin is typing.Literal:
        return ", ".join(map(str, args))
    if origin is typing.Annotated:
        return _values(args[0])
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_values(arg) for arg in args if arg is not type(None))
    if origin is tuple:
        return f"list of {_values(args[0])}"
    plain = {bool: "true, false", int: "integer", float: "number", str: "text"}
    return plain.get(hint) or ("a function" if callable(hint) and not isinstance(hint, type) else hint.__name__)


def require_known(cls: type, names: typing.Iterable[str]) -> None:
    """Raise `ModelError` for the first name that is no option, with the nearest one that is."""
    known = option_types(cls)
    for name in names:
        if name not in known and name != "changes":
            hint = did_you_mean(name, known)
            raise ModelError(f"{cls.__name__} has no option {name!r}; it has: {', '.join(known) or 'none'}{hint}")


def check_option(cls: type, name: str, value: Any) -> Any:
    """The value as the option's declared type; text is read as that type, and truth values are no numbers.

    One rule in Python, on the command line and in batches: a truth value is True or False, or one of the words
    ``true`` and ``false``. Others (``no``, ``1``) would be guesses, and Python holds the text ``"no"`` to be true.

    Raises `ModelError`: it cannot be that type; names the option, the value and the choices.
    """
    if name == "changes":
        return read_changes(value)
    hint = option_types(cls)[name]
    truth = _values(hint) == _values(bool)
    if truth and isinstance(value, str) and value.lower() in ("true", "false"):
        value = value.lower() == "true"
    flag = isinstance(value, (bool, np.bool_))
    if (not flag and value is not None) if truth else (flag or isinstance(value, bytes)):
        raise ModelError(f"{cls.__name__}({name}={value!r}): must be {_values(hint)}")
    if isinstance(value, Mapping) and dataclasses.is_dataclass(hint):
        fields = [field.name for field in dataclasses.fields(hint)]
        if odd := [key for key in value if key not in fields]:
            raise ModelError(f"{name} has no field {odd[0]!r}; it has: {', '.join(fields)}")
    try:
        return _adapter(cls, name).validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        fields = [field.name for field in dataclasses.fields(hint)] if dataclasses.is_dataclass(hint) else []
        steps = {part: f".{part}" for part in fields}
        place = "".join(f"[{part}]" if isinstance(part, int) else steps.get(part, "") for part in first["loc"])
        says = f"must be a {_values(hint)}" if first["type"] == "tuple_type" else plain_reason(first, value=False)
        raise ModelError(f"{cls.__name__}({name}={value!r}){place}: {says}") from error


@lru_cache(maxsize=256)
def _adapter(cls: type, name: str) -> TypeAdapter[Any]:
    hint = option_types(cls)[name]
    try:
        return TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True))
    except PydanticUserError:  # a type that carries its own configuration
        return TypeAdapter(hint)


def plain_options(cls: type, model: object) -> dict[str, Any]:
    """The options of a model as plain data, for solution files."""
    return {name: _plain(getattr(model, name)) for name in option_types(cls)}


def _plain(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value) if f.init}
        return {"type": type(value).__name__, **fields}
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list, set, frozenset)):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return getattr(value, "__qualname__", None) or str(value)
