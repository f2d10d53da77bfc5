"""Public model files: status, objective and proof of flowlex beside plain HiGHS.

``python -m benchmarks.public_mips FOLDER [--seconds 20] [--write]`` takes every ``.mps`` and ``.lp`` file (also gz)
under a folder, each in processes of its own with a time limit. Files of one content count once. No file is part of this
repository; ``README.md`` says where they come from.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import math
import multiprocessing
import statistics
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks import Row, Tables

#: Seconds beyond the time limit after which a process is ended.
_GRACE = 60.0
#: Objectives this near count as the same, relative to their size.
_SAME = 1e-6
_ANSWERS = ("optimal", "feasible")


def of_folder(folder: str | Path, seconds: float = 20.0, log: Path | None = None) -> Tables:
    """Size, status, objective and seconds of all files of a folder, and how many agree."""
    rows: list[Row] = []
    seen: set[str] = set()
    for path in sorted(Path(folder).rglob("*")):
        if not path.name.lower().removesuffix(".gz").endswith((".mps", ".lp")):
            continue
        try:
            content = gzip.decompress(path.read_bytes()) if path.name.endswith(".gz") else path.read_bytes()
        except (OSError, EOFError) as error:
            content = str(error).encode()
        digest = hashlib.sha256(b"\n".join(line.rstrip() for line in content.splitlines())).hexdigest()
        if digest in seen:
            continue
        seen.add(digest)
        row = compared(path, Path(folder), seconds)
        rows.append(row)
        if log is not None:
            with log.open("a", encoding="utf-8") as stream:
                stream.write(" | ".join(f"{key}: {value}" for key, value in row.items()) + "\n")
    return [("All files", rows), ("Sums", sums(rows))]


def compared(path: Path, folder: Path, seconds: float) -> Row:
    """One file solved by both."""
    plain, own = (apart(by, path, seconds) for by in (highs, flowlex))
    row: Row = {"file": str(path.relative_to(folder)), "size": own.get("size", plain.get("size", ""))}
    row["HiGHS"], row["flowlex"] = stated(plain), stated(own)
    row["claim"], row["leaves"] = own.get("claim", ""), own.get("leaves")
    row["HiGHS s"], row["solve s"], row["with proof s"] = plain.get("seconds"), own.get("solve"), own.get("seconds")
    row["verdict"] = verdict(plain, own)
    return row


def apart(by: Any, path: Path, seconds: float) -> dict[str, Any]:
    """What a function returns in a process of its own; ``error`` if it does not."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(by, path, seconds, theirs))
    process.start()
    theirs.close()
    found: dict[str, Any] = {"error": f"no end {_GRACE:g} s after the time limit"}
    try:
        if ours.poll(seconds * 3 + _GRACE):
            found = ours.recv()
    except EOFError:
        found = {"error": "the process ended"}
    process.kill()
    process.join()
    return found


def _send(by: Any, path: Path, seconds: float, pipe: Any) -> None:
    try:
        found = by(path, seconds)
    except Exception as error:  # one file never stops the others
        found = {"error": f"{type(error).__name__}: {error}"}
    pipe.send(found)


def highs(path: Path, seconds: float) -> dict[str, Any]:
    """HiGHS with its own reader."""
    import highspy

    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    if solver.readModel(str(path)) == highspy.HighsStatus.kError:
        return {"error": "not read"}
    solver.setOptionValue("time_limit", seconds)
    solver.setOptionValue("mip_rel_gap", 0.0)  # by default a share of 1e-4 from the optimum is called optimal
    started = time.process_time()
    solver.run()
    status = solver.modelStatusToString(solver.getModelStatus()).lower()
    info = solver.getInfo()
    found: dict[str, Any] = {"status": status, "seconds": time.process_time() - started}
    found["size"] = f"{solver.getNumRow()} x {solver.getNumCol()}"
    if info.primal_solution_status == 2:
        found["objective"] = float(info.objective_function_value)
    return found


def flowlex(path: Path, seconds: float) -> dict[str, Any]:
    """`flowlex.read` and `Problem.solve` with its proof."""
    import flowlex as fx
    from flowlex.formulations.program_files import ProgramFileError

    try:
        problem = fx.read(path)
    except (ProgramFileError, fx.FlowlexError) as error:
        return {"refused": str(error).replace(f"{path}: ", "")}
    started = time.process_time()
    answer = problem.solve(time_limit_s=seconds, threads=1)
    found: dict[str, Any] = {"status": str(answer.status), "seconds": time.process_time() - started}
    found["solve"] = answer.seconds.solve
    found["size"] = f"{problem.row_count} x {problem.column_count}"
    certificate = answer.certificate
    if certificate is not None:
        found["claim"] = certificate.claim if not answer.unproven else f"{answer.status} by the solver"
        found["claim"] += " exactly" if certificate.ok and certificate.exact and not answer.unproven else ""
    found["leaves"] = sum(len(leaves) for leaves in answer.found.stages.values())
    found["bound"] = answer.bound
    if answer.status.has_answer:
        found["objective"] = float(answer.objective)
    return found


def stated(found: dict[str, Any]) -> str:
    """Status and objective in a cell."""
    for key in ("error", "refused"):
        if key in found:
            return f"{key}: {found[key]}"[:160]
    value = found.get("objective")
    return str(found["status"]) + ("" if value is None else f" {value:.9g}")


def verdict(plain: dict[str, Any], own: dict[str, Any]) -> str:
    """Whether both say the same."""
    if "refused" in own:
        return "refused"
    if "error" in own:
        return "error"
    mine, theirs = str(own["status"]), str(plain.get("status", plain.get("error")))
    if "error" in theirs or theirs == "not read":
        return "HiGHS fails"
    if "limit" in theirs or mine == "feasible" or (mine == "time_limit" and own["seconds"] > 1):
        return "limit"
    if mine == "optimal" and theirs in ("optimal", "empty"):
        a, b = own["objective"], plain.get("objective", 0.0)
        return "same" if abs(a - b) <= _SAME * max(1.0, abs(b)) else "OTHER OBJECTIVE"
    return "same" if mine in theirs else "OTHER STATUS"


def sums(rows: list[Row]) -> list[Row]:
    """How many files agree, how many are proven, and ratios of seconds."""
    counts = Counter(str(row["verdict"]) for row in rows)
    found: list[Row] = [{"what": f"files: {name}", "value": number} for name, number in counts.most_common()]
    claims = Counter(str(row["claim"]) for row in rows if row["claim"])
    found += [{"what": f"claim: {name}", "value": number} for name, number in claims.most_common()]
    for key in ("solve s", "with proof s"):
        ratios = [
            (float(str(row[key])) / max(float(str(row["HiGHS s"])), 0.01), str(row["file"]))
            for row in rows
            if row["verdict"] == "same" and row[key] is not None and row["HiGHS s"] is not None
        ]
        if ratios:
            worst, name = max(ratios)
            middle = statistics.median(ratio for ratio, _ in ratios)
            found.append({"what": f"{key} by HiGHS s, median", "value": round(middle, 2)})
            found.append({"what": f"{key} by HiGHS s, worst ({name})", "value": round(worst, 1)})
    return found


def main() -> int:
    """Exit code 0 if no file has another status or objective than HiGHS states."""
    from rich.console import Console

    from benchmarks.__main__ import README, show, write

    parser = argparse.ArgumentParser(prog="python -m benchmarks.public_mips", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=20.0, help="time limit of each solve")
    parser.add_argument("--write", action="store_true", help="put the tables into benchmarks/README.md")
    parser.add_argument("--log", type=Path, help="a file to which a line is added after each file")
    chosen = parser.parse_args()
    if not chosen.folder.is_dir() or not math.isfinite(chosen.seconds) or chosen.seconds <= 0:
        parser.error("expected a folder, and a positive number of seconds")
    import flowlex  # noqa: F401  once, before the processes fork

    made = of_folder(chosen.folder, chosen.seconds, chosen.log)
    show(Console(width=240), "public_mips", made, "")
    if chosen.write:
        write("public_mips", made, README)
    bad = ("OTHER", "error")
    return int(any(str(row["verdict"]).startswith(bad) for row in made[0][1]))


if __name__ == "__main__":
    sys.exit(main())
