"""Descriptions of fields, from numpydoc sections and from the strings below the fields of a class."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from itertools import pairwise
from typing import Any

_HEAD = re.compile(r"(?:^|\n)(?:Parameters|Attributes)\n-{3,}\n")
_NEXT = re.compile(r"\n\n\w[^\n]*\n-{3,}\n")


def parameters(docstring: str | None) -> dict[str, str]:
    """Return each parameter's description as one line; parameters listed as ``a, b`` share one."""
    parts = _HEAD.split(inspect.cleandoc(docstring or ""), maxsplit=1)
    said: dict[str, str] = {}
    names: list[str] = []
    for line in _NEXT.split(parts[1], maxsplit=1)[0].splitlines() if len(parts) > 1 else ():
        if line and not line.startswith(" "):
            names = [name.strip() for name in line.partition(":")[0].split(",")]
        else:
            for name in names:
                said[name] = f"{said.get(name, '')} {line.strip()}".strip()
    return said


def describe(schema: dict[str, Any], cls: type) -> None:
    """Add the descriptions of a class's fields to its JSON Schema.

    Pydantic's ``use_attribute_docstrings`` does this on creation of the class, which is most of the import time.
    """
    said = parameters(cls.__doc__)
    for base in reversed(cls.__mro__):
        if base.__module__.partition(".")[0] not in ("builtins", "pydantic", "typing"):
            said |= _below_fields(base)
    for name, field in schema.get("properties", {}).items():
        if name in said:
            field.setdefault("description", said[name])
    if _HEAD.search(inspect.cleandoc(cls.__doc__ or "")):
        schema["description"] = _HEAD.split(inspect.cleandoc(cls.__doc__ or ""), maxsplit=1)[0].rstrip()


def _below_fields(cls: type) -> dict[str, str]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    except (OSError, TypeError, SyntaxError):  # a class without a source file
        return {}
    assert isinstance(tree.body[0], ast.ClassDef)
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in pairwise(tree.body[0].body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }
