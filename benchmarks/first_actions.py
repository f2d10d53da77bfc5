"""The twenty most likely first actions of a newcomer, each as a process of its own, and what an installation holds.

Every action runs in a folder of its own that earlier actions have filled, first with empty caches of compiled loops
("cold"), then again ("warm"). With ``FLOWLEX_BENCH_BEFORE=DIR`` (a checkout of an older commit) the same is done with
that tree's package by this interpreter, so that "before" and "after" are of one machine and one minute.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

__all__ = ["ACTIONS", "tables"]

_ROOT = Path(__file__).resolve().parents[1]
#: What a newcomer types, in this order; later lines use what earlier ones wrote.
ACTIONS = (
    "flowlex --version",
    "flowlex --help",
    "flowlex library",
    "flowlex generate gpu-testbed --seed 1 -o testbed.json",
    "flowlex show testbed.json",
    "flowlex solve testbed.json",
    "flowlex solve testbed.json --compare -o solutions",
    "flowlex solve solutions",
    "flowlex verify solutions/testbed.solution.json testbed.json",
    "flowlex plot testbed.json -o testbed.png",
    "flowlex plot testbed.json -o testbed.html",
    "flowlex export testbed.json -o testbed.lp",
    "flowlex solve nothing.json",
    "flowlex solve testbed.json --set policy=FPS",
    "flowlex options gpu-assignment",
    "flowlex schema gpu-assignment",
    "flowlex generate pods-scale --seed 1 --set nodes=5 --set pods=20 -o pods.json",
    "flowlex solve pods.json --time-limit 10",
    "flowlex tu testbed.json",
    'python -c "from flowlex.instances import generate; from flowlex.models import model_for; '
    "print(model_for(generate('gpu-testbed')).solve())\"",
)
_RUN = "import sys; sys.argv[0] = 'flowlex'; from flowlex.cli import main; main()"

Row = dict[str, object]


def tables(quick: bool = False) -> list[tuple[str, list[Row]]]:
    """Title and rows of every table."""
    actions = ACTIONS[:3] if quick else ACTIONS
    before = os.environ.get("FLOWLEX_BENCH_BEFORE")
    now = list(_measured(actions, _ROOT))
    old = list(_measured(actions, Path(before))) if before else [{}] * len(now)
    rows = [
        {"action": action, **{f"before: {key}": value for key, value in was.items()}, **done}
        for action, was, done in zip(actions, old, now, strict=True)
    ]
    return [
        (f"The first {len(actions)} actions of a newcomer, seconds", rows),
        ("An installation without extras by package, MB", _sizes()),
    ]


def _measured(actions: tuple[str, ...], tree: Path) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "work")
        folder.mkdir()
        environment = os.environ | {"NUMBA_CACHE_DIR": f"{scratch}/loops", "PYTHONPATH": str(tree / "src")}
        for action in actions:
            cold, _, code, said = _run(action, folder, environment)
            warm, processor, *_ = _run(action, folder, environment, again=True)
            figures = {"cold": cold, "warm": warm, "warm, processor": processor}
            yield {**{name: round(seconds, 2) for name, seconds in figures.items()}, "exit": code, "says": said}


def _run(
    action: str, folder: Path, environment: dict[str, str], *, again: bool = False
) -> tuple[float, float, int, str]:
    """Wall and processor seconds, exit code, and the first words of what it says (of the error, when it fails)."""
    if again:  # what the first run wrote may be written over
        for name in re.findall(r"-o (\S+\.\w+)", action):
            (folder / name).unlink(missing_ok=True)
    line = action.replace("flowlex ", f'{sys.executable} -P -c "{_RUN}" ', 1) if action[:1] == "f" else action
    line = line.replace("python ", f"{sys.executable} -P ", 1) if action[:1] == "p" else line
    started, used = time.perf_counter(), _processor()
    done = subprocess.run(
        line, shell=True, cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    took = time.perf_counter() - started
    words = (done.stderr if done.returncode else done.stdout or done.stderr).strip()
    lines = [line for line in words.splitlines() if re.search(r"\w", line)] or [""]
    return took, _processor() - used, done.returncode, (lines[-1] if "Traceback" in words else lines[0]).strip()[:60]


def _processor() -> float:
    """Processor seconds of all processes that have ended, of users and system."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _sizes() -> list[Row]:
    """Megabytes of the files of flowlex's requirements, the largest first; small ones together."""
    found: dict[str, float] = {}
    waiting = ["flowlex"]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        try:
            package = metadata.distribution(name)
        except metadata.PackageNotFoundError:  # only needed elsewhere
            continue
        paths = [Path(str(package.locate_file(file))) for file in package.files or ()]
        found[name] = sum(path.stat().st_size for path in paths if path.is_file()) / 1e6
        for requirement in package.requires or ():
            if "extra ==" not in requirement:
                waiting.append(re.split(r"[ ;<>=!~\[(]", requirement, maxsplit=1)[0].lower())
    found["flowlex"] = sum(path.stat().st_size for path in (_ROOT / "src" / "flowlex").rglob("*.py")) / 1e6
    large = {name: size for name, size in found.items() if size >= 5}
    rows: list[Row] = [
        {"package": name, "MB": round(size, 1)} for name, size in sorted(large.items(), key=lambda pair: -pair[1])
    ]
    rest = sum(found.values()) - sum(large.values())
    return [
        *rows,
        {"package": f"{len(found) - len(large)} others", "MB": round(rest, 1)},
        {"package": "all", "MB": round(sum(found.values()), 1)},
    ]
