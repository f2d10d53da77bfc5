"""What a numpydoc docstring says of each parameter or attribute."""

from __future__ import annotations

import inspect
import re

__all__ = ["parameters", "without_parameters"]

_HEAD = re.compile(r"(?:^|\n)(?:Parameters|Attributes)\n-{3,}\n")
_NEXT = re.compile(r"\n\n\w[^\n]*\n-{3,}\n")


def parameters(docstring: str | None) -> dict[str, str]:
    """Name to meaning, on one line; ``a, b`` are two names of one meaning."""
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


def without_parameters(docstring: str | None) -> str:
    """The text before the section."""
    return _HEAD.split(inspect.cleandoc(docstring or ""), maxsplit=1)[0].rstrip()
