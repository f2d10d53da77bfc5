"""numba's `njit` with a writable cache, and a message before a long compilation.

numba caches compiled code beside the source, else in the user's cache folder. If it can write neither (a container
with a read-only file system, a service without a home), it raises an error. Then we use a temporary folder, or no
cache if there is none; a message says so once.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numba
from numba.core import event

from flowlex.formulations.processor_clock import notify

#: Cache folders that could not be written; the empty name is numba's default.
_refused: set[str] = set()


def dispatcher(function: Any, options: dict[str, Any]) -> Any:
    """`numba.njit` of a function; ``cache=True`` uses a writable folder, or no cache if there is none."""
    try:
        made = numba.njit(**options)(function)
    except RuntimeError as error:
        if "cannot cache" not in str(error):
            raise
        made = numba.njit(**options | {"cache": _use_temporary_folder()})(function)
    if made is not function:  # the compiler is on
        made._cache.load_overload = partial(_load, made._cache, made._cache.load_overload)
    return made


def _load(cache: Any, load: Any, signature: Any, target: Any) -> Any:
    """Load a function from the cache; empty a cache that names modules of another version."""
    try:
        return load(signature, target)
    except (ImportError, AttributeError):
        try:
            cache.flush()
        except OSError:
            cache.disable()
        return None


def _use_temporary_folder() -> bool:
    """Move numba's cache to a temporary folder that only this user can write; return whether there is one.

    A read-only cache folder (in a container image) is copied there.
    """
    given = numba.config.CACHE_DIR
    if given in _refused:
        return False
    _refused.add(given)
    try:
        folder = Path(tempfile.gettempdir()) / f"flowlex-compiled-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        facts = folder.lstat()
        if facts.st_uid != os.getuid() or facts.st_mode & 0o022 or folder.is_symlink():
            folder = Path(tempfile.mkdtemp(prefix="flowlex-compiled-"))
        if given and Path(given).is_dir():
            shutil.copytree(given, folder, dirs_exist_ok=True)
    except OSError:
        _say("neither the package nor any cache folder can be written: loops are compiled in every process")
        _refused.add(numba.config.CACHE_DIR)
        return False
    _say(f"compiled loops are kept in {folder} (set NUMBA_CACHE_DIR to a folder that lasts)")
    numba.config.CACHE_DIR = str(folder)
    _refused.add(str(folder))
    return True


def _say(text: str) -> None:
    sys.stderr.write(f"flowlex: {text}\n")


class _Compilations(event.Listener):  # type: ignore[misc]
    """Count compiled loops that no cache held; report before the first and when the process ends."""

    count, depth, seconds, began, loud = 0, 0, 0.0, 0.0, True

    def on_start(self, event: Any) -> None:
        self.count += 1
        self.depth += 1  # compiling a loop compiles the loops that it calls
        if self.depth > 1:
            return
        self.began = time.perf_counter()
        if self.loud and self.count == 1 and "FLOWLEX_QUIET_COMPILING" not in os.environ:
            name = getattr(getattr(event.data["dispatcher"], "py_func", None), "__qualname__", "a loop")
            _say(f"compiling numerical loops ({name}, ...), once for this machine; `flowlex warm-up` does it ahead")
            atexit.register(self.report)
        notify(True)

    def on_end(self, event: Any) -> None:
        self.depth -= 1
        if self.depth == 0:
            self.seconds += time.perf_counter() - self.began
            notify(False)

    def report(self) -> None:
        _say(f"compiled {self.count} numerical loops in {self.seconds:.1f} s; the next run finds them compiled")


_compilations = _Compilations()
event.register("numba:compile", _compilations)


def announce(loud: bool) -> None:
    """Turn messages on standard error about compiling on or off."""
    _compilations.loud = loud


def compilations() -> int:
    """Number of loops that this process compiled because no cache held them."""
    return _compilations.count
