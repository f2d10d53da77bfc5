"""Write goals to JSON and read them back by module, class and fields; also goals of other packages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from fractions import Fraction
from functools import reduce
from importlib import import_module
from typing import Any

from flowlex.instances.instance_base import Part
from flowlex.models.flow.goal_interface import Goal
from flowlex.models.model_base import ModelError


class AbsentGoalError(ModelError):
    """The code of a goal is missing; ``goal`` is its name."""

    def __init__(self, goal: str, why: str) -> None:
        self.goal = goal
        super().__init__(f"goal {goal!r} cannot be made again: {why}")


def name_of(kind: Any) -> str:
    """``module:name`` of a class or function."""
    return f"{kind.__module__}:{kind.__qualname__}"


def described(goal: Goal) -> dict[str, Any]:
    """Return a goal as JSON data; two goals are equal if and only if their descriptions are."""
    return {"type": name_of(type(goal)), "fields": _fields(goal)}


def _fields(each: Any) -> dict[str, Any]:
    if is_dataclass(each):
        return {field.name: _plain(getattr(each, field.name)) for field in fields(each) if field.init}
    return {name: _plain(value) for name, value in vars(each).items()}


def _plain(value: Any) -> Any:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Fraction():
            return {"fraction": str(value)}
        case list() | tuple() | set() | frozenset():
            items = sorted(value, key=repr) if isinstance(value, set | frozenset) else value
            return {type(value).__name__: [_plain(item) for item in items]}
        case Mapping():
            return {"mapping": [[_plain(key), _plain(item)] for key, item in value.items()]}
        case Part():
            return {"part": name_of(type(value)), "fields": value.model_dump(mode="json")}
    if isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
        return {"name": name_of(value)}
    if is_dataclass(value):
        return {"type": name_of(type(value)), "fields": _fields(value)}
    return {"opaque": name_of(type(value))}


def revived(document: Mapping[str, Any]) -> Goal:
    """Make the goal of a description.

    Raises `AbsentGoalError` if its code is not installed, or if JSON cannot represent one of its fields.
    """
    # Goals stood in several modules before.
    name = re.sub(r"^flowlex\.models\.flow\.goals\.\w+:", "flowlex.models.flow.goals:", str(document["type"]))
    try:
        goal = _made(name, document["fields"], name)
    except (ImportError, AttributeError, TypeError) as error:
        raise AbsentGoalError(name, f"{type(error).__name__}: {error}; install the package that has it") from error
    if not isinstance(goal, Goal):
        raise AbsentGoalError(name, "it is no goal of flow scheduling")
    if described(goal) != {**document, "type": name}:
        raise AbsentGoalError(
            name, "its fields are others than when it was saved; install the version it was saved with"
        )
    return goal


def _named(name: str) -> Any:
    module, _, path = name.partition(":")
    return reduce(getattr, path.split("."), import_module(module))


def _made(name: str, stated: Mapping[str, Any], goal: str) -> Any:
    kind, values = _named(name), {key: _value(value, goal) for key, value in stated.items()}
    if isinstance(kind, type) and is_dataclass(kind):
        return kind(**values)
    made = kind.__new__(kind)
    vars(made).update(values)
    return made


def _value(value: Any, goal: str) -> Any:
    if not isinstance(value, dict):
        return value
    match value:
        case {"fraction": text}:
            return Fraction(text)
        case {"mapping": pairs}:
            return {_value(key, goal): _value(item, goal) for key, item in pairs}
        case {"part": name, "fields": stated}:
            return _named(name).model_validate(stated)
        case {"type": name, "fields": stated}:
            return _made(name, stated, goal)
        case {"name": name}:
            return _named(name)
        case {"opaque": kind}:
            raise AbsentGoalError(goal, f"it holds a {kind}, which no file can hold; pass the goals yourself")
    ((name, items),) = value.items()
    return {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}[name](
        _value(each, goal) for each in items
    )
