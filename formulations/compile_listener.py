"""The listener of compiling: it stops a clock while loops compile. Imported without the compiler."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["notify", "set_listener"]

_listener: Callable[[bool], None] | None = None


def set_listener(listener: Callable[[bool], None] | None) -> None:
    """Have a function called when compiling begins (True) and ends (False); None: no function."""
    global _listener
    _listener = listener


def notify(compiling: bool) -> None:
    """Call the listener, if there is one."""
    if _listener is not None:
        _listener(compiling)
