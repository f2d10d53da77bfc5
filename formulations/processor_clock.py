"""The clock of time limits: processor time of this process, without what compiling loops takes.

So a busy machine or a first compilation does not change a limited answer. This module does not import the compiler.
"""

from __future__ import annotations

import time
from collections.abc import Callable

_listener: Callable[[bool], None] | None = None
#: Processor seconds of all finished compiling; start of the current compiling.
_compiled: float = 0.0
_began: float | None = None
#: Seconds between two readings of the coarse clock; when it was read last, and what it said.
_COARSE_S = 0.005
_read: tuple[float, float] = (-1.0, 0.0)


def processor_seconds() -> float:
    """Processor seconds of this process without compiling; only differences mean something."""
    now = time.process_time() if _began is None else _began
    return now - _compiled


def coarse_seconds() -> float:
    """`processor_seconds`, read anew every 5 ms: on some systems reading the processor's clock takes long."""
    global _read
    now = time.perf_counter()
    if not 0 <= now - _read[0] < _COARSE_S:
        _read = now, processor_seconds()
    return _read[1]


def set_listener(listener: Callable[[bool], None] | None) -> None:
    """Set the function that is called when compiling begins (True) and ends (False), or None."""
    global _listener
    _listener = listener


def notify(compiling: bool) -> None:
    """Stop the clock when compiling begins (True), let it go on when it ends (False), and call the listener."""
    global _compiled, _began
    if compiling:
        _began = time.process_time()
    elif _began is not None:
        _compiled += time.process_time() - _began
        _began = None
    if _listener is not None:
        _listener(compiling)
