"""Running one function as a command: arguments in, JSON out, one line of complaint and an exit code."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["NO_INPUT", "NO_SOURCE", "Unfit", "main", "seconds_of"]

#: Exit codes, as of sysexits.h: nothing to read yet, and no such thing on this node.
NO_INPUT, NO_SOURCE = 66, 69


class Unfit(Exception):
    """The command cannot answer on this node, or not yet."""

    def __init__(self, message: str, code: int = NO_SOURCE) -> None:
        self.code = code
        super().__init__(message)


def main(function: Callable[..., Any], arguments: list[str] | None = None) -> None:
    """Print what a function returns for the command's arguments."""
    try:
        value = function(*(sys.argv[1:] if arguments is None else arguments))
    except Unfit as refusal:
        sys.stderr.write(f"{refusal}\n")
        sys.exit(refusal.code)
    except (ValueError, TypeError, KeyError, OSError) as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        sys.exit(64)
    sys.stdout.write(json.dumps(value, allow_nan=False) + "\n")


def seconds_of(text: str) -> float:
    """Read a duration that a run may take."""
    value = float(text)
    if not 0 < value <= 3_600:
        raise ValueError(f"{text} is no duration in seconds; give one above 0, at most 3600")
    return value
