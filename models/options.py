"""Options of a model, checked once and from their declared types."""

from __future__ import annotations

import dataclasses
import difflib
import enum
import typing
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from flowlex.models.answer import ModelError

__all__ = ["check_option", "option_types", "plain_options", "require_known"]


@lru_cache(maxsize=64)
def option_types(cls: type) -> dict[str, Any]:
    """Options of a model class: name to declared type."""
    hints = typing.get_type_hints(cls)
    return {f.name: hints[f.name] for f in dataclasses.fields(cls) if f.name != "instance" and f.init}


def require_known(cls: type, names: typing.Iterable[str]) -> None:
    """Raise `ModelError` for the first name that is no option, with the nearest one that is."""
    known = option_types(cls)
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ModelError(f"{cls.__name__} has no option {name!r}; it has: {', '.join(known) or 'none'}{hint}")


def check_option(cls: type, name: str, value: Any) -> Any:
    """The value as the option's declared type; text is read as that type.

    Raises
    ------
    ModelError
        It cannot be that type; names the option, the value and the choices.
    """
    hint = option_types(cls)[name]
    if isinstance(value, Mapping) and dataclasses.is_dataclass(hint):
        fields = [field.name for field in dataclasses.fields(hint)]
        if odd := [key for key in value if key not in fields]:
            raise ModelError(f"{name} has no field {odd[0]!r}; it has: {', '.join(fields)}")
    try:
        return _adapter(cls, name).validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        place = "".join(f"[{part}]" for part in first["loc"] if isinstance(part, int))
        raise ModelError(f"{cls.__name__}({name}={value!r}){place}: {first['msg']}") from error


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
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list, set, frozenset)):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return getattr(value, "__qualname__", None) or str(value)
