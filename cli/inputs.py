"""Which files a PATH of ``flowlex solve`` stands for.

A file stands for itself, whatever it is called. A folder stands for the instance files directly in it, sorted by
name: those named ``*.json``, ``*.min``, ``*.dimacs`` or ``*.net``, each also with ``.gz``, and any other file
that begins like a DIMACS flow file (comments, then a line ``p min``). Hidden files, unfinished ``.part`` files,
solution files (``*.solution.json``) and whatever is no regular file are left out.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Inputs", "discover", "has_instance_name"]

_SUFFIXES = (".json", ".min", ".dimacs", ".net")
SOLUTION_SUFFIX = ".solution.json"
_HEAD = 65_536
_DIMACS = re.compile(rb"\s*(c[^\n]*\n\s*)*p\s+min\s")


@dataclass(frozen=True)
class Inputs:
    """Instance files in the order they were named, each once, and files of folders that were left out."""

    files: tuple[Path, ...]
    left_out: tuple[Path, ...]


def discover(paths: Iterable[Path]) -> Inputs:
    """Find the instance files that the paths stand for.

    Raises
    ------
    FileNotFoundError
        A path does not exist.
    NotADirectoryError, PermissionError
        A folder cannot be listed.
    """
    files: dict[Path, Path] = {}
    left_out: list[Path] = []
    for path in paths:
        if not path.exists() and not path.is_symlink():
            raise FileNotFoundError(f"{path} does not exist")
        if not path.is_dir():
            files.setdefault(path.resolve(), path)
            continue
        for member in sorted(path.iterdir()):
            if _never_an_instance(member):
                continue
            if member.is_file() and (has_instance_name(member) or _begins_like_dimacs(member)):
                files.setdefault(member.resolve(), member)
            else:
                left_out.append(member)
    return Inputs(tuple(files.values()), tuple(left_out))


def has_instance_name(path: Path) -> bool:
    """Whether the name is one of an instance file."""
    name = path.name.lower()
    return name.removesuffix(".gz").endswith(_SUFFIXES) and not name.removesuffix(".gz").endswith(SOLUTION_SUFFIX)


def solution_name(path: Path, taken: set[str]) -> str:
    """Name of an instance's solution file, not one of those taken."""
    stem = path.name.removesuffix(".gz")
    for suffix in _SUFFIXES:
        stem = stem.removesuffix(suffix)
    name, count = f"{stem}{SOLUTION_SUFFIX}", 1
    while name in taken:
        count += 1
        name = f"{stem}-{count}{SOLUTION_SUFFIX}"
    return name


def _never_an_instance(path: Path) -> bool:
    name = path.name.lower()
    ours = name == "results.jsonl" or name == "results.previous.jsonl"
    unfinished = name.startswith(".") or name.endswith((".part", SOLUTION_SUFFIX, f"{SOLUTION_SUFFIX}.gz"))
    return ours or unfinished or path.is_dir()


def _begins_like_dimacs(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            head = stream.read(_HEAD)
        if head.startswith(b"\x1f\x8b"):
            with gzip.open(path, "rb") as unpacked:
                head = unpacked.read(_HEAD)
    except (OSError, EOFError, zlib.error):
        return False
    return _DIMACS.match(head) is not None
