"""JSON documents of frozen dataclasses, written and read by the types of their fields; every number is exact."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from fractions import Fraction
from functools import cache
from math import isfinite
from typing import Any, TypeVar, cast

T = TypeVar("T")
#: Longer integers are written in hexadecimal digits: Python converts no more than 4 300 decimal digits.
_LONG = 13_000


def write(value: Any) -> Any:
    """Return plain data for JSON: dataclasses as objects, tuples as lists, fractions and enumerations as text."""
    if is_dataclass(value):
        return {_key(field): write(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Fraction | int) and not isinstance(value, bool):
        return _number_text(value) if isinstance(value, Fraction) or value.bit_length() > _LONG else value
    if isinstance(value, Mapping):
        return {str(key): write(item) for key, item in value.items()}
    return [write(item) for item in value] if isinstance(value, list | tuple) else value


def read(kind: type[T], document: Any) -> T:
    """Read what `write` made of a dataclass.

    Raises `ValueError` for a field that is unknown or missing, or a value of another type than the field: 6.9 and
    true are no integers.
    """
    return cast("T", _read(kind, document))


def _key(field: Any) -> str:
    return cast("str", field.metadata.get("key", field.name))


def _read(kind: Any, value: Any) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if is_dataclass(kind):
        return _read_object(kind, value)
    if kind is Any:
        return value
    if origin in (types.UnionType, typing.Union):
        return _read_union(arguments, value)
    if origin is tuple:
        _require(isinstance(value, list | tuple), value, "a list")
        if arguments[-1] is Ellipsis:
            return tuple(_read(arguments[0], item) for item in value)
        return tuple(_read(one, item) for one, item in zip(arguments, value, strict=True))
    if origin is Mapping:
        _require(isinstance(value, dict), value, "an object")
        return {int(key) if arguments[0] is int else key: _read(arguments[1], item) for key, item in value.items()}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    if kind is float:
        _require(type(value) in (int, float) and isfinite(value) and value >= 0, value, "a number that is at least 0")
        return float(value)
    _require(type(value) is kind, value, {int: "an integer", str: "text"}[kind])
    return value


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _read_union(arguments: tuple[Any, ...], value: Any) -> Any:
    """None or a value, or an exact number: fractions are text."""
    if Fraction in arguments:
        _require(type(value) in (int, str), value, "an exact number")
        number = _number_of(value)
        return int(number) if number.denominator == 1 else number
    return None if value is None else _read(arguments[0], value)


def _number_text(value: Fraction | int) -> str:
    parts = (value.numerator,) if value.denominator == 1 else (value.numerator, value.denominator)
    return "/".join(hex(part) if part.bit_length() > _LONG else str(part) for part in parts)


def _number_of(value: int | str) -> Fraction:
    if isinstance(value, int) or "x" not in value:
        return Fraction(value)
    parts = [int(part, 16 if "x" in part else 10) for part in value.split("/")]
    _require(len(parts) <= 2 and all(parts[1:]), value[:60], "an exact number")
    return Fraction(*parts)


def _read_object(kind: Any, document: Any) -> Any:
    _require(isinstance(document, dict), document, "an object")
    known = {_key(field): field.name for field in fields(kind)}
    for odd in sorted(known.keys() ^ document.keys()):
        raise ValueError(f"unknown field {odd!r}" if odd in document else f"field {odd!r} is missing")
    hints = _hints(kind)
    values = {}
    for key, name in known.items():
        try:
            values[name] = _read(hints[name], document[key])
        except ValueError as error:
            raise ValueError(f"{key}: {error}") from error
    return kind(**values)


def _require(holds: bool, value: Any, expected: str) -> None:
    if not holds:
        raise ValueError(f"expected {expected}, got {value!r}")
