"""Where compiled loops are cached, and the message before one is compiled."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

#: Neither of numba's cache folders is writable, as in a read-only container whose user has no home.
NOWHERE = """
import sys, tempfile
from numba.core import caching
caching.CacheImpl._locator_classes = [caching.UserProvidedCacheLocator]
tempfile.tempdir = sys.argv[1]
sealed = sys.argv[2]
write = caching.UserProvidedCacheLocator.ensure_cache_path
def ensure_cache_path(self):
    if sealed and self.get_cache_path().startswith(sealed):
        raise OSError("read-only")
    write(self)
caching.UserProvidedCacheLocator.ensure_cache_path = ensure_cache_path
from flowlex.formulations import deferred_compilation as loops, numba_cache
@loops.njit(cache=True)
def twice(x):
    return x + x
@loops.njit(cache=True, nogil=True)
def thrice(x):
    return twice(x) + x
print(thrice(2), thrice(3.5))
"""


def run(folder: Path, temporary: str, sealed: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    if not (folder / "loops.py").exists():
        (folder / "loops.py").write_text(NOWHERE)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("NUMBA_")} | variables
    command = [sys.executable, "loops.py", temporary, sealed]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, env=environment)


@pytest.mark.rare
def test_a_read_only_package_and_no_home_keep_loops_among_temporary_files(tmp_path):
    for compiled in (1, 0):  # the second process finds what the first one kept
        done = run(tmp_path, str(tmp_path))
        assert done.stdout == "6 10.5\n"
        assert done.stderr.count("compiled loops are kept in") == 1  # of two loops, said once
        assert done.stderr.count("compiling numerical loops") == compiled
    assert list((tmp_path / f"flowlex-compiled-{os.getuid()}").rglob("*.nbi"))


@pytest.mark.rare
def test_without_any_folder_loops_are_compiled_and_not_kept(tmp_path):
    done = run(tmp_path, "/proc/nowhere")
    assert done.stdout == "6 10.5\n"
    assert done.stderr.count("loops are compiled in every process") == 1


@pytest.mark.rare
def test_a_cache_that_can_only_be_read_is_used_through_a_copy(tmp_path):
    image = str(tmp_path / "image")
    built = run(tmp_path, str(tmp_path), NUMBA_CACHE_DIR=image)
    assert built.stderr.count("compiling numerical loops (thrice, ...)") == 1 and "are kept in" not in built.stderr
    assert re.search(r"compiled \d+ numerical loops in \d+\.\d s", built.stderr)
    later = run(tmp_path, str(tmp_path), image, NUMBA_CACHE_DIR=image)
    assert later.stdout == "6 10.5\n" and "compiling" not in later.stderr
    assert later.stderr.count("compiled loops are kept in") == 1


KEPT = """
from flowlex.formulations.numba_cache import dispatcher
from boxes import Box
def twice(box):
    return 2 * box.size
print(dispatcher(twice, {"cache": True})(Box(3)))
"""


@pytest.mark.rare
def test_loops_kept_by_a_version_with_other_modules_are_compiled_anew(tmp_path):
    box = "from typing import NamedTuple\nclass Box(NamedTuple):\n    size: int\n"
    (tmp_path / "kept.py").write_text(KEPT)
    for module, compiled in (("old", 1), ("old", 0), ("new", 1), ("new", 0)):
        for path in (tmp_path / "old.py", tmp_path / "new.py"):
            path.unlink(missing_ok=True)
        (tmp_path / f"{module}.py").write_text(box)
        (tmp_path / "boxes.py").write_text(f"from {module} import Box\n")
        environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            [sys.executable, "kept.py"], cwd=tmp_path, capture_output=True, text=True, check=False, env=environment
        )
        assert done.stdout == "6\n", done.stderr
        assert done.stderr.count("compiling numerical loops") == compiled


SMALL = """
import sys
from flowlex.formulations import deferred_compilation as loops
@loops.njit(cache=True)
def twice(x):
    return x + x
@loops.njit(cache=True)
def thrice(x):
    return twice(x) + x
with loops.small_work(10):
    small = thrice(2)
compiled = "numba" in sys.modules and bool(thrice.twin.overloads)
with loops.small_work(loops.SMALL_CELLS + 1):
    large = thrice(2)
print(small, compiled, large, bool(thrice.twin.overloads))
"""


def test_small_work_is_done_by_plain_loops_and_large_work_by_compiled_ones(tmp_path):
    (tmp_path / "small.py").write_text(SMALL)
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "small.py"], cwd=tmp_path, capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout == "6 False 6 True\n"
