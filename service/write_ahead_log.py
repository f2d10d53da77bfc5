"""A write-ahead log in a folder: every acknowledged record is on disk, even after a kill.

``log-N.jsonl`` has one record per line, after its checksum; ``state-N`` is the state before its first record. A
snapshot writes the complete next state and opens the next log. The two newest states and all logs since the older one
are kept: if the newest state cannot be read, the older one and the logs give the same state. Older files are removed
once the newest state has been read back (`accept`). A line truncated by a kill was never acknowledged and is dropped.
Any other damage is an error with file and line.
"""

from __future__ import annotations

import fcntl
import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

_DIGITS = 9
#: Number of a log, and bytes in it.
Position = tuple[int, int]
#: Bytes of a log per read.
MAX_CHUNK = 1_000_000


class JournalError(Exception):
    """The folder cannot be used, or what it holds is damaged."""


class LogFolder:
    """Read access to the states and logs of a folder.

    ``end``: number of the last log, and its bytes that are flushed to disk; a single value, as other threads read it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.end: Position = (max((*self.numbers("state-"), *self.numbers("log-")), default=0), 0)

    def path(self, kind: str, number: int) -> Path:
        """Return the path of a file of a kind, ``state-`` or ``log-``."""
        return self.folder / f"{kind}{number:0{_DIGITS}}{'.jsonl' if kind == 'log-' else ''}"

    def numbers(self, kind: str) -> list[int]:
        """Numbers of the files of a kind."""
        names = (path.name.removeprefix(kind).removesuffix(".jsonl") for path in self.folder.glob(f"{kind}*"))
        return [int(name) for name in names if name.isdigit()]

    def states(self) -> list[tuple[int, Path | None]]:
        """Return number and file of each state to continue from, newest first; None is the beginning."""
        found: list[tuple[int, Path | None]] = [
            (number, self.path("state-", number)) for number in sorted(self.numbers("state-"), reverse=True)
        ]
        begun = not found or self.path("log-", 0).is_file()
        return [*found, (0, None)] if begun else found

    def lines(self, since: int, end: Position | None = None) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """Yield log number, length and record from a state on, up to a position or the last complete line.

        Raises `JournalError`: a line other than the last is damaged, or a log is missing.
        """
        newest, size = (self.end[0], None) if end is None else end
        for number in range(since, newest + 1):
            path, last = self.path("log-", number), number == newest
            if not (last or path.is_file()):
                raise JournalError(f"{path} is missing; restore the folder from a backup")
            content = path.read_bytes() if path.is_file() else b""
            *lines, rest = content[: size if last else None].split(b"\n")
            for count, line in enumerate([*lines, rest] if rest and not last else lines, 1):
                record = record_of(line)
                if record is None:
                    raise JournalError(f"{path}: line {count} is damaged; restore the folder from a backup")
                yield number, len(line) + 1, record


class Journal(LogFolder):
    """The log of one service; only one process at a time may open it.

    ``folder``: created if missing. Raises `JournalError`: another process uses the folder.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise JournalError(f"{folder} is in use by another service; stop it or name another folder") from error
        super().__init__(folder)
        self.records = 0
        self._file = -1

    def read(self, since: int) -> Iterator[dict[str, Any]]:
        """Yield the records since a state; afterwards the last log is open for `append`.

        Raises `JournalError`: a line other than the last is damaged, or a log is missing.
        """
        self.records = size = 0
        newest = self.end[0]
        for number, length, record in self.lines(since):
            self.records += 1
            size += length if number == newest else 0
            yield record
        self.end = (newest, size)
        self._open()

    def append(self, records: Iterable[dict[str, Any]]) -> bytes:
        """Write records to disk and return their lines; they then survive a kill and a power cut.

        Raises `OSError`: the write fails; partially written records are removed.
        """
        lines = [_line(record) for record in records]
        data = b"".join(lines)
        if not data:
            return data
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(self._file, view) :]
            os.fsync(self._file)
        except OSError:
            os.ftruncate(self._file, self.end[1])
            raise
        self.records += len(lines)
        self.end = (self.end[0], self.end[1] + len(data))
        return data

    def snapshot(self, save: Callable[[Path], None], carried: Iterable[dict[str, Any]] = ()) -> Path:
        """Begin a new log and write the state before it; return the state's file, which must be read back."""
        path = self.begin_log(carried)
        save(path)
        self._sync_folder()
        return path

    def begin_log(self, carried: Iterable[dict[str, Any]] = ()) -> Path:
        """Begin a new log; return the file for the state before it.

        If the state cannot be written, nothing is lost: the previous state and both logs give the same state.

        ``carried``: first records of the new log, with data that the state lacks.
        """
        self.records = 0
        self.end = (self.end[0] + 1, 0)
        self._open()
        self.append(carried)
        return self.path("state-", self.end[0])

    @property
    def first_log(self) -> int:
        """Number of the oldest log that is kept."""
        return min(self.numbers("log-"), default=self.end[0])

    def chunk(self, number: int, offset: int) -> tuple[bytes, bool]:
        """Return flushed bytes of a log from an offset on, and whether they are its last."""
        newest, size = self.end
        last, path = number == newest, self.path("log-", number)
        if not path.is_file():
            return b"", False
        end = size if last else path.stat().st_size
        with path.open("rb") as stream:
            stream.seek(offset)
            data = stream.read(max(0, min(MAX_CHUNK, end - offset)))
        return data, not last and offset + len(data) == end

    def accept(self) -> None:
        """After the newest state was read back, delete files older than the previous state."""
        states = [number for number, _ in self.states()]
        oldest = states[min(1, len(states) - 1)]
        for kind in ("state-", "log-"):
            for number in self.numbers(kind):
                if number < oldest:
                    self.path(kind, number).unlink(missing_ok=True)

    def close(self) -> None:
        """Release the folder."""
        self._close_file()
        os.close(self._lock)

    def _open(self) -> None:
        """Open the last log, truncated to its complete records."""
        self._close_file()
        self._file = os.open(self.path("log-", self.end[0]), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.ftruncate(self._file, self.end[1])
        os.fsync(self._file)
        self._sync_folder()

    def _close_file(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _sync_folder(self) -> None:
        handle = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _line(record: dict[str, Any]) -> bytes:
    text = json.dumps(record, separators=(",", ":"), allow_nan=False).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def record_of(line: bytes) -> dict[str, Any] | None:
    """Parse the record of a line; return None if the checksum does not match."""
    if line[8:9] != b" " or line[:8] != b"%08x" % zlib.crc32(line[9:]):
        return None
    found: dict[str, Any] = json.loads(line[9:])
    return found
