"""Run one command on a node: only from the allow-list folders, without a shell, in bounded time and output."""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from pydantic import JsonValue

from flowlex.systems.telemetry.collectors.collector_command import COMMANDS
from flowlex.systems.telemetry.request_documents import MAX_ERROR_CHARS, MAX_VALUE_BYTES, encode_value

#: The folder of the shipped collectors and processors: one program, whose first argument is the command.
SHIPPED = Path(__file__).resolve().parent / "commands"
_DISPATCHER = SHIPPED / "dispatch"

_PROGRAM = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
#: Exit codes of runs that did not end by themselves, as in timeout(1) and shells.
TIMED_OUT, NOT_ALLOWED, BAD_OUTPUT = 124, 126, 65
#: Seconds between checks whether a run is cancelled.
POLL_S = 0.2
#: Bytes that a command may write to standard error.
MAX_STDERR_BYTES = 65_536
_SUPERVISOR = Path(__file__).resolve().parent / "subprocess_supervisor.py"
_CLEAR_UP_S = 10.0


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

    Raises `CommandRefused` for a name that is not plain, no file, a link out of the folder, or world-writable places.
    """
    if not _PROGRAM.fullmatch(program):
        raise CommandRefused(f"{program!r} is not a plain file name")
    for folder in folders:
        path = folder / program
        if folder == SHIPPED:
            path = _DISPATCHER if program in COMMANDS else folder / "none"
        if not path.exists():
            continue
        resolved = path.resolve()
        if not resolved.is_relative_to(folder.resolve()):
            raise CommandRefused(f"{program!r} is a link that leaves the command folder")
        for place in {folder, resolved.parent}:
            if place.stat().st_mode & stat.S_IWOTH:
                raise CommandRefused(f"everybody may write to the command folder {place}; run chmod o-w on it")
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
    for folder in filter(Path.is_dir, folders):
        for name in COMMANDS if folder == SHIPPED else [entry.name for entry in folder.iterdir()]:
            with contextlib.suppress(CommandRefused):
                find_program(name, folders)
                names.add(name)
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
    white space around it. It is killed at the time limit or when it prints too much on either stream, with
    everything that it started; also when ``cancel`` is set, and then the answer is None.
    """
    try:
        program = find_program(command[0], folders)
    except CommandRefused as refusal:
        return Run(None, NOT_ALLOWED, _short(str(refusal)))
    with tempfile.TemporaryFile() as given:
        given.write(stdin)
        given.seek(0)
        arguments = command if program == _DISPATCHER else command[1:]
        ended = _Running([str(program), *arguments], given, environment or {}).wait(timeout_s, max_bytes, cancel)
    if ended.refusal:
        return Run(None, NOT_ALLOWED, _short(f"cannot be started: {ended.refusal}"))
    if cancel is not None and cancel.is_set() and ended.reason:
        return None
    if ended.reason:
        return Run(None, TIMED_OUT, f"{ended.reason} (limits: {timeout_s:g} s, {max_bytes} bytes)")
    if ended.code:
        return Run(None, ended.code, _short(bytes(ended.complaints[: 4 * MAX_ERROR_CHARS])))
    return _value(bytes(ended.output))


@dataclass
class _Ended:
    """Output and exit of a command."""

    output: bytearray = field(default_factory=bytearray)
    complaints: bytearray = field(default_factory=bytearray)
    code: int | None = None
    reason: str = ""
    refusal: str = ""


class _Running:
    """A command run by its supervisor, which ends all processes of the command when the leash is closed."""

    def __init__(self, command: Sequence[str], given: IO[bytes], environment: Mapping[str, str]) -> None:
        self._leash, other = socket.socketpair()
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-IS", str(_SUPERVISOR), str(other.fileno()), *command],
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=Path(command[0]).parent,
                env=_environment(environment),
                pass_fds=[other.fileno()],
                start_new_session=True,
            )

    def wait(self, timeout_s: float, max_bytes: int, cancel: threading.Event | None) -> _Ended:
        """Read until the output and the command end, within the limits; leave no process behind."""
        ended, said = _Ended(), bytearray()
        deadline = time.monotonic() + timeout_s
        output, complaints = self._process.stdout, self._process.stderr
        assert output is not None and complaints is not None
        with output, complaints, self._leash, selectors.DefaultSelector() as selector:
            streams = ((output, ended.output, max_bytes), (complaints, ended.complaints, MAX_STDERR_BYTES))
            for stream, kept, most in (*streams, (self._leash, said, 1_000)):
                os.set_blocking(stream.fileno(), False)
                selector.register(stream, selectors.EVENT_READ, (kept, most))
            # Do not wait for standard error: a background process may hold that stream.
            left: set[Any] = {output, self._leash}
            while left and not ended.reason:
                for key, _ in selector.select(max(0.0, min(deadline - time.monotonic(), POLL_S))):
                    kept, most = key.data
                    chunk = os.read(key.fd, 65_536)
                    kept += chunk
                    if len(kept) > most:
                        ended.reason = "stopped: it printed too much"
                    if not chunk or key.fileobj is self._leash:
                        selector.unregister(key.fileobj)
                        left.discard(key.fileobj)
                if left and not ended.reason:
                    if cancel is not None and cancel.is_set():
                        ended.reason = "cancelled"
                    elif time.monotonic() >= deadline:
                        ended.reason = "stopped: it ran too long"
        self._end()
        _understand(said.decode(), ended)
        return ended

    def _end(self) -> None:
        """The leash is closed: wait for the supervisor to clear up."""
        try:
            self._process.wait(_CLEAR_UP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _understand(said: str, ended: _Ended) -> None:
    word, _, rest = said.strip().partition(" ")
    if word == "code":
        ended.code = int(rest)
    elif word == "no":
        ended.refusal, ended.reason = rest, ""
    elif not ended.reason:
        ended.reason = "stopped: its supervisor was ended"


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
    # The agent's own Python comes first, whatever path is asked for: the shipped commands are written for it.
    path = extra.get("PATH", "/usr/local/bin:/usr/bin:/bin")
    return {"LANG": "C.UTF-8", **extra, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{path}"}


def _short(text: str | bytes) -> str:
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= MAX_ERROR_CHARS else text[: MAX_ERROR_CHARS - 3] + "..."
