"""The first actions of a new user, each in a separate process: with empty caches ("cold"), then again ("warm").

Before each action the packages are copied without bytecode, and numba's cache is an empty folder, as after an
installation. Times are processor seconds of the command and its children. The last table runs every notebook once with
empty caches and gives its slowest cell.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import Row, Tables

_ROOT = Path(__file__).resolve().parents[1]
_RUN = "import sys; sys.argv[0] = 'flowlex'; from flowlex.cli import main; main()"
_KINDS = (
    "allocation",
    "flow-scheduling",
    "gpu-assignment",
    "jit-bandwidth",
    "load-partition",
    "min-cost-flow",
    "pod-placement",
)
#: Actions on the example of every kind.
_EACH = (
    "solve {kind}.json",
    "solve {kind}.json --compare",
    "show {kind}.json",
    "verify {kind}.solution.json {kind}.json",
    "plot {kind}.json -o {kind}.png",
    "plot {kind}.json -o {kind}.html",
    "export {kind}.json -o {kind}.lp",
    "tu {kind}.json --explain",
    "integers {kind}.json",
)
#: Parameters that make the large generators small.
_SMALL = {
    "cluster-day": {"machines": 20, "tasks": 100},
    "cluster-queue": {"tasks": 200},
    "flow-scale": {"machines": 20, "tasks": 30},
    "flow-cell": {"machines": 20},
    "gpu-scale": {"gpus": 80, "tasks": 100, "jobs": 5},
    "network-assignment": {"machines": 20, "tasks": 40},
    "network-netgen": {"nodes": 100, "arcs": 400, "sources": 5, "sinks": 5, "supply": 100},
    "pods-scale": {"nodes": 5, "pods": 20},
}
_PROGRAM = "Minimize\n x + y + z\nSubject To\n a: x + y >= 1\n b: y + z >= 1\nGeneral\n x y z\nEnd\n"
_NODE = {
    "kind": "Node",
    "metadata": {"name": "n"},
    "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "9"}},
}
_POD = {
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "s"},
    "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]},
    "status": {"phase": "Pending"},
}
_LIVE = "scheduler = flowlex.FlowScheduler(flowlex.generate('flow-random', seed=4)); scheduler.step(now_s=0.0)"
_OTHERS = (
    "--version",
    "--help",
    "library",
    "options gpu-assignment",
    "schema gpu-assignment",
    "tu model.lp",
    "integers model.lp",
    "place objects.json",
    "solve flow-scheduling.json gpu-assignment.json jit-bandwidth.json load-partition.json -o out",
    "study gpu-assignment.json --over policy=FS,FSP -o study",
    "simulate scenario.json -o runs --pictures",
    "replay flow-scheduling.json --steps 3 --save state.npz",
    "replay pod-placement.json",
    "run-partition --instance load-partition.json -- true {node}",
    "claims",
)
_PYTHON = (
    "import flowlex",
    "import flowlex; flowlex.check([[1, 1, 0], [0, 1, 1], [1, 0, 1]])",
    "import flowlex; flowlex.implied_integers('model.lp')",
    f"import flowlex; {_LIVE}",
    "import flowlex; m = flowlex.model_for(flowlex.read('gpu-assignment.json'));"
    " m.with_constraint('few', m.variables['x'].sum() <= 2).solve()",
)


def actions() -> list[str]:
    """Measured command lines of ``flowlex`` and of ``python -c``."""
    from flowlex.instances.generators import all_generators

    found = [f"flowlex {line}" for line in _OTHERS] + [f'python -c "{line}"' for line in _PYTHON]
    found += [f"flowlex {line.format(kind=kind)}" for line in _EACH for kind in _KINDS]
    for name in all_generators():
        if name != "openb-arrivals":  # needs files of the trace
            values = "".join(f" --set {key}={value}" for key, value in _SMALL.get(name, {}).items())
            found.append(f"flowlex generate {name}{values} -o instance.json")
    return found


def tables(quick: bool = False) -> Tables:
    chosen = actions()[:3] if quick else actions()
    with tempfile.TemporaryDirectory() as folder:
        start = Path(folder, "start")
        start.mkdir()
        _prepare(start, () if quick else _KINDS)
        rows = [_measured(action, start) for action in chosen]
    made = [(f"The first {len(chosen)} actions of a newcomer, processor seconds (at most 3)", rows)]
    return made if quick else [*made, ("Every notebook with empty caches", _notebooks())]


def _prepare(folder: Path, kinds: tuple[str, ...]) -> None:
    """Create the files that the actions read."""
    (folder / "model.lp").write_text(_PROGRAM)
    (folder / "objects.json").write_text(json.dumps({"kind": "List", "items": [_NODE, _POD]}))
    for kind in (*kinds, *(("scenario",) if kinds else ())):
        _run(f"flowlex example {kind} -o {kind}.json", folder, dict(os.environ))
    if kinds:
        _run(f"flowlex solve {' '.join(f'{kind}.json' for kind in kinds)} -o .", folder, dict(os.environ))


def _measured(action: str, start: Path) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        environment = _fresh(Path(folder))
        seconds, code = [], 0
        for name in ("first", "again"):
            shutil.copytree(start, work := Path(folder, name))
            used, code = _run(action, work, environment)
            seconds.append(used)
        loops = sum(1 for _ in Path(folder, "loops").rglob("*.nbi"))
    cold, warm = seconds
    return {"action": action, "cold": round(cold, 2), "warm": round(warm, 2), "loops compiled": loops, "exit": code}


def _fresh(folder: Path) -> dict[str, str]:
    """Return an environment with freshly installed packages: no bytecode, no compiled loops."""
    tree = folder / "tree"
    for link in (_ROOT / "src" / "flowlex").iterdir():
        if link.is_dir() and link.name != "__pycache__":
            shutil.copytree(_ROOT / link.name, tree / link.name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(_ROOT / "src", tree / "src", symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    given = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return given | {"NUMBA_CACHE_DIR": f"{folder}/loops", "PYTHONPATH": f"{tree}/src", "MPLBACKEND": "Agg"}


def _run(action: str, folder: Path, environment: dict[str, str]) -> tuple[float, int]:
    """Processor seconds and exit code."""
    line = action.replace("flowlex ", f'{sys.executable} -P -c "{_RUN}" ', 1) if action[:1] == "f" else action
    line = line.replace("python ", f"{sys.executable} -P ", 1) if action[:1] == "p" else line
    used = _processor()
    done = subprocess.run(line, shell=True, cwd=folder, env=environment, capture_output=True, timeout=600, check=False)
    return _processor() - used, done.returncode


def _processor() -> float:
    """User and system seconds of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _notebooks() -> list[Row]:
    import nbformat
    from nbclient import NotebookClient

    rows: list[Row] = []
    for path in sorted((_ROOT / "notebooks").glob("*.ipynb")):
        with tempfile.TemporaryDirectory() as folder:
            environment, seconds = _fresh(Path(folder)), list[float]()
            book = nbformat.read(path, as_version=4)
            client = NotebookClient(book, timeout=600, resources={"metadata": {"path": folder}})
            with client.setup_kernel(env=environment):
                for number, cell in enumerate(book.cells):
                    began = time.perf_counter()
                    client.execute_cell(cell, number)
                    seconds.append(time.perf_counter() - began)
        slowest = max(range(len(seconds)), key=seconds.__getitem__)
        first = next((line for line in book.cells[slowest].source.splitlines() if line.strip()), "")
        rows.append(
            {
                "notebook": path.stem,
                "seconds": round(sum(seconds), 1),
                "slowest cell, seconds": round(seconds[slowest], 1),
                "begins": first[:60],
            }
        )
    return rows
