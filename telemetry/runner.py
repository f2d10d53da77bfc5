"""Running one command on a node: only from the allow-list folders, no shell, bounded time and output."""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from flowlex.telemetry.schemas import MAX_ERROR_CHARS, MAX_VALUE_BYTES, encode_value

__all__ = ["SHIPPED", "CommandRefused", "Run", "allowed_programs", "find_program", "run_command"]

#: The collectors and processors that come with the package.
SHIPPED = Path(__file__).resolve().parent / "commands"

_PROGRAM = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
#: Exit codes of runs that did not end by themselves, as of timeout(1) and a shell.
TIMED_OUT, NOT_ALLOWED, BAD_OUTPUT = 124, 126, 65
#: How soon a cancelled run ends.
POLL_S = 0.2


class CommandRefused(Exception):
    """The allow-list does not have this program; the message says why."""


@dataclass(frozen=True)
class Run:
    """How one run ended: its value (None when it failed), exit code and message."""

    value: JsonValue
    exit_code: int
    error: str = ""


def find_program(program: str, folders: Sequence[Path]) -> Path:
    """Return the executable of that name in the first allow-list folder that has it.

    Raises
    ------
    CommandRefused
        Not a plain name; no such file; a link that leaves the folder; not executable; writable by everybody.
    """
    if not _PROGRAM.fullmatch(program):
        raise CommandRefused(f"{program!r} is not a plain file name")
    for folder in folders:
        path = folder / program
        if not path.exists():
            continue
        resolved = path.resolve()
        if not resolved.is_relative_to(folder.resolve()):
            raise CommandRefused(f"{program!r} is a link that leaves the command folder")
        mode = resolved.stat().st_mode
        if not stat.S_ISREG(mode) or not os.access(resolved, os.X_OK):
            raise CommandRefused(f"{program!r} is not an executable file")
        if mode & stat.S_IWOTH:
            raise CommandRefused(f"{program!r} may be changed by everybody; run chmod o-w on it")
        return resolved
    raise CommandRefused(f"{program!r} is not in this node's command folder")


def allowed_programs(folders: Sequence[Path]) -> list[str]:
    """Return the names that `find_program` would find."""
    names: set[str] = set()
    for entry in (entry for folder in folders if folder.is_dir() for entry in folder.iterdir()):
        with contextlib.suppress(CommandRefused):
            find_program(entry.name, folders)
            names.add(entry.name)
    return sorted(names)


def run_command(
    command: Sequence[str],
    folders: Sequence[Path],
    *,
    timeout_s: float,
    stdin: bytes = b"",
    environment: Mapping[str, str] | None = None,
    max_bytes: int = MAX_VALUE_BYTES,
    cancel: threading.Event | None = None,
) -> Run | None:
    """Run a command and read its standard output as the value.

    Output that is JSON is stored as such (so ``0.25`` is a number), other text as a string without the
    white space around it. The whole process group is killed at the time limit or when it prints too much;
    and when ``cancel`` is set, and then the answer is None.
    """
    try:
        program = find_program(command[0], folders)
    except CommandRefused as refusal:
        return Run(None, NOT_ALLOWED, _short(str(refusal)))
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as complaints:
        given.write(stdin)
        given.seek(0)
        try:
            process = subprocess.Popen(
                [str(program), *command[1:]],
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=complaints,
                cwd=program.parent,
                env=_environment(environment or {}),
                start_new_session=True,
            )
        except OSError as error:
            return Run(None, NOT_ALLOWED, _short(f"cannot be started: {error.strerror or error}"))
        output, reason = _read(process, time.monotonic() + timeout_s, max_bytes, cancel)
        if cancel is not None and cancel.is_set() and reason:
            return None
        if reason:
            return Run(None, TIMED_OUT, f"{reason} (limits: {timeout_s:g} s, {max_bytes} bytes)")
        if process.returncode:
            complaints.seek(0)
            return Run(None, process.returncode, _short(complaints.read(4 * MAX_ERROR_CHARS)))
    return _value(output)


def _read(
    process: subprocess.Popen[bytes], deadline: float, max_bytes: int, cancel: threading.Event | None
) -> tuple[bytes, str]:
    """Read to the end of the output, or kill the group and say why."""
    assert process.stdout is not None
    output, reason = b"", ""
    os.set_blocking(process.stdout.fileno(), False)
    with process.stdout, selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while not reason:
            left = deadline - time.monotonic()
            if left <= 0:
                reason = "stopped: it ran too long"
            elif cancel is not None and cancel.is_set():
                reason = "cancelled"
            elif selector.select(min(left, POLL_S)):
                chunk = process.stdout.read(65_536)
                if not chunk:
                    break
                output += chunk
                if len(output) > max_bytes:
                    reason = "stopped: it printed too much"
        if not reason:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                reason = "stopped: it closed its output and ran too long"
        # Also on success: nothing that a command left behind outlives its run.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return output, reason


def _value(output: bytes) -> Run:
    try:
        text = output.decode().strip()
    except UnicodeDecodeError:
        return Run(None, BAD_OUTPUT, "the output is not UTF-8 text")
    if not text:
        return Run(None, BAD_OUTPUT, "the command printed nothing")
    value: JsonValue
    try:
        value = json.loads(text)
        encode_value(value)
    except (ValueError, RecursionError):
        value = text
    try:
        encode_value(value)
    except ValueError as error:
        return Run(None, BAD_OUTPUT, _short(str(error)))
    return Run(value, 0)


def _environment(extra: Mapping[str, str]) -> dict[str, str]:
    # Nothing of the agent's own environment: it may hold the token.
    path = os.pathsep.join([str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"])
    return {"PATH": path, "LANG": "C.UTF-8", **extra}


def _short(text: str | bytes) -> str:
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= MAX_ERROR_CHARS else text[: MAX_ERROR_CHARS - 3] + "..."
