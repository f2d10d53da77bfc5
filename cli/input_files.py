"""Find the instance files of the PATH arguments of ``flowlex solve``.

A file is taken as it is, independent of its name. A folder stands for the instance files directly in it, sorted by
name: those named ``*.json``, ``*.mps``, ``*.lp``, ``*.min``, ``*.dimacs`` or ``*.net``, each also with ``.gz``, and any
other file that begins like a DIMACS flow file (comments, then a line ``p min``). Hidden files, unfinished ``.part``
files, solution files (``*.solution.json``) and whatever is no regular file are left out. A path may be a URL.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import typer

from flowlex.instances.file_storage import MAX_UNPACKED, is_url, read_head, read_most, resolved, write_atomically
from flowlex.instances.input_errors import InstanceError

_SUFFIXES = (".json", ".mps", ".lp", ".min", ".dimacs", ".net")
SOLUTION_SUFFIX = ".solution.json"
#: Bytes of a name of 255 that remain after the ending, a number, and the affixes of unfinished files.
_LONGEST_STEM = 210
_DIMACS = re.compile(rb"\s*(c[^\n]*\n\s*)*p\s+min\s")


@dataclass(frozen=True)
class Inputs:
    """Instance files in the order given, without repetition, and files of folders that were left out."""

    files: tuple[Path, ...]
    left_out: tuple[Path, ...]


def discover(paths: Iterable[Path]) -> Inputs:
    """Find the instance files that the paths stand for."""
    files: dict[Path, Path] = {}
    left_out: list[Path] = []
    for path in paths:
        if not _exists(path):
            raise FileNotFoundError(f"{path} does not exist")
        if not path.is_dir():
            files.setdefault(resolved(path), path)
            continue
        before = len(files) + len(left_out)
        for member in sorted(path.iterdir()):
            if _never_an_instance(member):
                continue
            named, broken_link = has_instance_name(member), member.is_symlink() and not member.exists()
            if (named and broken_link) or (member.is_file() and (named or _DIMACS.match(read_head(member)))):
                files.setdefault(resolved(member), member)
            else:
                left_out.append(member)
        if len(files) + len(left_out) == before and not any(path in one.parents for one in files.values()):
            left_out.append(path)  # a folder with nothing in it is reported too
    return Inputs(tuple(files.values()), tuple(left_out))


def _exists(path: Path) -> bool:
    if not is_url(path):
        return path.exists() or path.is_symlink()
    try:
        return path.exists()
    except Exception as error:  # a remote store raises exceptions of its client library: no access, no such host
        raise FileNotFoundError(f"{path} cannot be looked at: {type(error).__name__}: {error}") from error


def has_instance_name(path: Path) -> bool:
    """Return whether a file has the name of an instance file."""
    name = path.name.lower()
    return name.removesuffix(".gz").endswith(_SUFFIXES) and not name.removesuffix(".gz").endswith(SOLUTION_SUFFIX)


def is_standard_input(path: Path) -> bool:
    """Return whether a PATH is standard input, which differs in worker processes."""
    return str(path) in ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")


def landing(context: typer.Context, output: Path | None, name: str) -> Path:
    """Return where to write an instance without a file: the folder of results, or else a temporary folder."""
    if output is not None:
        return output / name
    folder = tempfile.TemporaryDirectory(prefix="flowlex-")
    context.call_on_close(folder.cleanup)
    return Path(folder.name) / name


def save_standard_input(context: typer.Context, output: Path | None) -> Path:
    """Write standard input to a file, so that it can be read by a worker (and solved again)."""
    data = read_most(sys.stdin.buffer, MAX_UNPACKED + 1)
    if len(data) > MAX_UNPACKED:
        raise InstanceError(f"holds more than {MAX_UNPACKED >> 20} MB; write it to a file", path="standard input")
    path = landing(context, output, "stdin")
    write_atomically(path, data)
    return path


def solution_stem(path: Path) -> str:
    """Return the stem of the name of an instance's solution file, truncated if it is too long."""
    stem = path.name.removesuffix(".gz")
    for suffix in (".problem.json", *_SUFFIXES):
        stem = stem.removesuffix(suffix)
    return os.fsdecode(os.fsencode(stem)[:_LONGEST_STEM])


def _never_an_instance(path: Path) -> bool:
    name = path.name.lower()
    ours = name == "results.jsonl" or name == "results.previous.jsonl"
    unfinished = name.startswith(".") or name.endswith((".part", SOLUTION_SUFFIX, f"{SOLUTION_SUFFIX}.gz"))
    return ours or unfinished or (path.is_dir() and not has_instance_name(path))
