"""What a user waits for: short commands and batches of tiny files, beside plain Python with HiGHS.

All commands run in turn, round by round, so that a load of the machine meets all of them. Figures are processor seconds
of a command and its children, median and worst of five rounds, with warm caches. ``FLOWLEX_BEFORE=CHECKOUT`` measures
the code of another checkout in the same rounds.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import Row, Tables
from benchmarks.first_actions import _KINDS, _ROOT, _RUN, _processor

_FILES = 500
#: Reads a minimum-cost flow and solves it with HiGHS, for each of the files: what stands in a script of one's own.
_PLAIN = """
import json, sys
import highspy, numpy as np
for path in sys.argv[1:]:
    net = json.load(open(path))
    n, m = len(net["supply"]), len(net["tail"])
    low, high, cost = (np.array([free if x is None else x for x in net[k]], float)
        for k, free in (("lower", 0.0), ("upper", highspy.kHighsInf), ("cost", 0.0)))
    ends = np.array([net["tail"], net["head"]], np.int32).T.ravel()
    solver = highspy.Highs()
    solver.silent()
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = m, n
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = cost, low, high
    lp.row_lower_ = lp.row_upper_ = np.array(net["supply"], float)
    lp.a_matrix_.start_ = np.arange(0, 2 * m + 1, 2, dtype=np.int32)
    lp.a_matrix_.index_, lp.a_matrix_.value_ = ends, np.tile([1.0, -1.0], m)
    solver.passModel(lp)
    solver.run()
    json.dumps({"x": list(solver.getSolution().col_value), "cost": solver.getObjectiveValue()})
"""
_SINGLE = ("--help", "--version", *(f"solve {kind}.json" for kind in _KINDS if kind != "pod-placement"))
_CHECKS = ("verify gpu-assignment.solution.json gpu-assignment.json", "tu min-cost-flow.json", "tu model.lp")


def tables(quick: bool = False) -> Tables:
    before = os.environ.get("FLOWLEX_BEFORE")
    trees = {"flowlex": str(_ROOT)} | ({"before": before} if before else {})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kinds = ("gpu-assignment", "min-cost-flow") if quick else _KINDS
        _prepare(folder, kinds, 3 if quick else _FILES)
        single = ("--version",) if quick else (*_SINGLE, *_CHECKS)
        commands = [(f"flowlex {line}", line, "plain.py min-cost-flow.json", 1) for line in single]
        for kind in kinds[:2] if quick else ("min-cost-flow", "gpu-assignment", "load-partition", "flow-scheduling"):
            many = len(list((folder / kind).iterdir()))
            line = f"solve {kind} -o {kind}-out"
            plain = f"plain.py {' '.join(f'min-cost-flow/{k}.json' for k in range(many))}"
            commands.append((f"a file of {many}: flowlex {line}", line, plain, many))
        rounds = [_round(folder, commands, trees) for _ in range(1 if quick else 5)]
    rows: list[Row] = []
    for command, _, plain, many in commands:
        row: Row = {"command": command}
        base = statistics.median(found[plain] for found in rounds)
        for tree in ("before", "flowlex") if before else ("flowlex",):
            seconds = [found[tree, command] for found in rounds]
            row |= {
                f"{tree}, s": round(statistics.median(seconds) / many, 4),
                f"{tree}, worst": round(max(seconds) / many, 4),
            }
        row |= {"plain, s": round(base / many, 4), "times plain": round(float(str(row["flowlex, s"])) * many / base, 2)}
        rows.append(row)
    return [("Processor seconds that a user waits for; of batches for each file", rows)]


def _prepare(folder: Path, kinds: tuple[str, ...], many: int) -> None:
    """Write the plain script, an example of every kind with its solution, and folders of copies."""
    (folder / "plain.py").write_text(_PLAIN)
    (folder / "model.lp").write_text("Minimize\n x + y\nSubject To\n a: x + y >= 1\nGeneral\n x y\nEnd\n")
    for kind in kinds:
        _used(folder, f"example {kind} -o {kind}.json", str(_ROOT))
        _used(folder, f"solve {kind}.json -o .", str(_ROOT))
        document = json.loads((folder / f"{kind}.json").read_text())
        (folder / kind).mkdir()
        for number in range(many):
            (folder / kind / f"{number}.json").write_text(json.dumps(document | {"name": f"{kind} {number}"}))


def _round(
    folder: Path, commands: list[tuple[str, str, str, int]], trees: dict[str, str]
) -> dict[str | tuple[str, str], float]:
    """Processor seconds of every plain script, and of every command by tree."""
    found: dict[str | tuple[str, str], float] = {}
    for command, line, plain, _ in commands:
        if plain not in found:
            found[plain] = _used(folder, plain)
        for name, tree in trees.items():
            found[name, command] = _used(folder, line, tree)
    return found


def _used(folder: Path, line: str, tree: str = "") -> float:
    """Processor seconds of a line of ``flowlex`` of a checkout, or of Python."""
    words = [sys.executable, "-P", *(("-c", _RUN) if tree else ()), *line.split()]
    given = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    used = _processor()
    subprocess.run(words, cwd=folder, env=given | {"PYTHONPATH": f"{tree}/src"}, capture_output=True, check=True)
    return _processor() - used
