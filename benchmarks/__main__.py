"""Run benchmarks, print their tables, and with ``--write`` put them into ``benchmarks/README.md``."""

from __future__ import annotations

import argparse
import importlib
import inspect
import os
import platform
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import Row, Tables

HERE = Path(__file__).resolve().parent
README = HERE / "README.md"
_PACKAGES = ("numpy", "scipy", "highspy", "pylmcf", "PuLP", "ortools", "linopy", "networkx")


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0 when every benchmark ran, 1 when one failed, 2 for an unknown name."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of: {', '.join(known())}; all by default")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that the machinery runs")
    parser.add_argument("--write", action="store_true", help="put the tables into benchmarks/README.md")
    chosen = parser.parse_args(arguments)
    unknown = [name for name in chosen.names if name not in known()]
    if unknown:
        parser.error(f"no benchmark {unknown[0]!r}; one of: {', '.join(known())}")
    if chosen.quick and chosen.write:
        parser.error("--quick measures nothing worth writing; leave out one of --quick and --write")
    console, failed = Console(), False
    if not console.is_terminal:
        console = Console(width=200)
    for name in chosen.names or known():
        started = time.perf_counter()
        made, error = run(name, quick=chosen.quick)
        failed |= bool(error)
        show(console, name, made, error)
        console.print(f"{name}: {time.perf_counter() - started:.0f} s\n")
        if chosen.write and made:
            write(name, made, README)
    return int(failed)


def known() -> list[str]:
    """Names of the modules here that have tables."""
    return sorted(path.stem for path in HERE.glob("[!_]*.py") if "def tables(" in path.read_text(encoding="utf-8"))


def run(name: str, *, quick: bool = False) -> tuple[Tables, str]:
    """Tables of one benchmark, and why there are none, so that one failure does not stop the others."""
    try:
        tables: Any = importlib.import_module(f"{__package__}.{name}").tables
        if not quick:
            return tables(), ""
        if "quick" in inspect.signature(tables).parameters:
            return tables(quick=True), ""
        return [(f"{name} has no quick form", [])], ""
    except Exception as error:
        advice = "; install the 'bench' extra" if isinstance(error, ImportError) else ""
        return [], f"{type(error).__name__}: {error}{advice}"


def show(console: Console, name: str, tables: Tables, error: str) -> None:
    """Print tables with rich."""
    for title, rows in tables or [(name, [{"error": error}])]:
        columns = columns_of(rows)
        table = Table(*columns, title=title, title_justify="left")
        for row in rows:
            table.add_row(*(text(row.get(column)) for column in columns))
        console.print(table)


def write(name: str, tables: Tables, readme: Path) -> None:
    """Replace what stands between the module's markers, or add it at the end."""
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    parts = [begin, f"## {name}", "", conditions(), ""]
    for title, rows in tables:
        columns = columns_of(rows)
        parts += [f"**{title}**", "", "| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
        parts += [
            "| " + " | ".join(text(row.get(column)).replace("|", "\\|") for column in columns) + " |" for row in rows
        ]
        parts.append("")
    block = "\n".join([*parts, end])
    before = readme.read_text(encoding="utf-8") if readme.exists() else "# Benchmarks\n\nMade by `make bench`.\n"
    if begin in before and end in before:
        head, rest = before.split(begin, 1)
        after = head + block + rest.split(end, 1)[1]
    else:
        after = f"{before.rstrip()}\n\n{block}\n"
    readme.write_text(after, encoding="utf-8")


def conditions() -> str:
    """One paragraph: machine, versions, date, commit."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    commit = _output("git", "rev-parse", "--short", "HEAD") or "unknown"
    changed = " with local changes" if _output("git", "status", "--porcelain", "--untracked-files=no") else ""
    versions = ", ".join(f"{package} {version}" for package in _PACKAGES if (version := _version(package)))
    return (
        f"{_processor()}, {os.cpu_count()} cores, {_memory_gb():.0f} GB, load {load:.1f}; Python "
        f"{platform.python_version()}, {versions}. {time.strftime('%Y-%m-%d')}, commit {commit}{changed}."
    )


def columns_of(rows: list[Row]) -> list[str]:
    """All keys, in the order in which they first occur."""
    return list(dict.fromkeys(key for row in rows for key in row))


def text(value: object) -> str:
    """A cell."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}" if abs(value) < 1e4 else f"{value:.10g}"
    return str(value)


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _memory_gb() -> float:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    except (AttributeError, ValueError, OSError):
        return float("nan")


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd=HERE).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


if __name__ == "__main__":
    sys.exit(main())
