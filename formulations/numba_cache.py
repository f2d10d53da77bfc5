"""Compiled loops: numba's `njit` with a cache that can be written, and a word before a long wait.

numba keeps what it compiled beside the source, else in the user's cache folder. Where neither can be written (in a
container with a read-only file system, in a service without a home) it refuses to work at all. Then a folder for
temporary files serves, or, where there is none, nothing is kept; either is said once.
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

from flowlex.formulations.processor_time import notify

#: Cache folders, the empty one standing for numba's own choice, that could not be written.
_refused: set[str] = set()


def dispatcher(function: Any, options: dict[str, Any]) -> Any:
    """`numba.njit` of a function; ``cache=True`` finds a folder that can be written, or does without."""
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
    """What the cache holds; a cache that names modules which only another version had is emptied."""
    try:
        return load(signature, target)
    except (ImportError, AttributeError):
        try:
            cache.flush()
        except OSError:
            cache.disable()
        return None


def _use_temporary_folder() -> bool:
    """Let numba keep its cache among temporary files, in a folder that only this user writes; whether there is one.

    What a cache folder that can only be read (in the image of a container) holds is copied there.
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
    """Counts loops that no cache held, and says so once: before the first, and when the process ends."""

    count, depth, seconds, began, loud = 0, 0, 0.0, 0.0, True

    def on_start(self, event: Any) -> None:
        self.count += 1
        self.depth += 1  # a loop that calls others has them compiled on the way
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
    """Say, or do not say, on standard error that loops are compiled which no cache holds."""
    _compilations.loud = loud


def compilations() -> int:
    """How many loops were compiled in this process, because no cache held them."""
    return _compilations.count
