"""Compiled loops: numba's `njit` with a cache that can be written, and a word before a long wait.

numba keeps what it compiled beside the source, else in the user's cache folder. Where neither can be written (in a
container with a read-only file system, in a service without a home) it refuses to work at all. Then a folder for
temporary files serves, or, where there is none, nothing is kept; either is said once.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numba
from numba.core import event

from flowlex.formulations.pauses import tell

__all__ = ["announce", "compilations", "dispatcher"]

#: Cache folders, the empty one standing for numba's own choice, that could not be written.
_refused: set[str] = set()


def dispatcher(function: Any, options: dict[str, Any]) -> Any:
    """`numba.njit` of a function; ``cache=True`` finds a folder that can be written, or does without."""
    try:
        return numba.njit(**options)(function)
    except RuntimeError as error:
        if "cannot cache" not in str(error):
            raise
    kept = _use_temporary_folder()
    return numba.njit(**options | {"cache": kept})(function)


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
    """Counts loops that no cache held, and says so once before the first."""

    count, loud = 0, sys.stderr is not None and sys.stderr.isatty()
    depth = 0

    def on_start(self, event: Any) -> None:
        if self.loud and not self.count:
            _say("compiling numerical loops, once for this machine (`flowlex warm-up` does all of them) ...")
        self.count += 1
        self.depth += 1  # a loop that calls others has them compiled on the way
        if self.depth == 1:
            tell(True)

    def on_end(self, event: Any) -> None:
        self.depth -= 1
        if self.depth == 0:
            tell(False)


_compilations = _Compilations()
event.register("numba:compile", _compilations)


def announce(loud: bool = True) -> None:
    """Say so, once, before a loop is compiled that no cache holds; by default where a person watches (a terminal)."""
    _compilations.loud = loud


def compilations() -> int:
    """How many loops were compiled in this process, because no cache held them."""
    return _compilations.count
