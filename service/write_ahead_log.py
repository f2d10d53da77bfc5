"""A write-ahead log in a folder: every acknowledged record is on disk, also after a kill.

``log-N.jsonl`` holds one record per line, after its checksum; ``state-N`` is the state before its first record. A
snapshot writes the next state completely and opens the next log. The two newest states and all logs since the older one
are kept: if the newest state cannot be read, the older one and the logs lead to the same state. Older files are removed
once the newest state was read back (`accept`). A line cut short by a kill was never acknowledged and is dropped. Any
other damage is refused, with file and line.
"""

from __future__ import annotations

import fcntl
import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

__all__ = ["MAX_CHUNK", "Journal", "JournalError", "LogFolder", "Position", "record_of"]

_DIGITS = 9
#: Number of a log and bytes of it.
Position = tuple[int, int]
#: Bytes of a log that are read at a time.
MAX_CHUNK = 1_000_000


class JournalError(Exception):
    """The folder cannot be used, or what it holds is damaged."""


class LogFolder:
    """States and logs of a folder, for whoever reads them.

    ``end``: number of the last log, and its bytes that are on disk for good; one value, as other threads read it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.end: Position = (max((*self.numbers("state-"), *self.numbers("log-")), default=0), 0)

    def path(self, kind: str, number: int) -> Path:
        """Where a file of a kind, ``state-`` or ``log-``, is or would be."""
        return self.folder / f"{kind}{number:0{_DIGITS}}{'.jsonl' if kind == 'log-' else ''}"

    def numbers(self, kind: str) -> list[int]:
        """Numbers of the files of a kind."""
        names = (path.name.removeprefix(kind).removesuffix(".jsonl") for path in self.folder.glob(f"{kind}*"))
        return [int(name) for name in names if name.isdigit()]

    def states(self) -> list[tuple[int, Path | None]]:
        """Number and file of each state to go on from, the newest first; None is the beginning."""
        found: list[tuple[int, Path | None]] = [
            (number, self.path("state-", number)) for number in sorted(self.numbers("state-"), reverse=True)
        ]
        begun = not found or self.path("log-", 0).is_file()
        return [*found, (0, None)] if begun else found

    def lines(self, since: int, end: Position | None = None) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """Records from a state on, up to a position or to the last whole line: number of the log, length, record.

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
    """The log of one service; one process at a time may have it open.

    ``folder``: made when absent. Raises `JournalError`: another process has the folder.
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
        """Records since a state; afterwards the last log is open for `append`.

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
        """Put records on disk and return their lines; from then on they survive a kill and a power cut.

        Raises `OSError`: the disk refuses. What was written of them is taken back.
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
        """Begin a new log and write the state before it; returns the state's file, which is to be read back."""
        path = self.begin_log(carried)
        save(path)
        self._sync_folder()
        return path

    def begin_log(self, carried: Iterable[dict[str, Any]] = ()) -> Path:
        """Begin a new log; returns the file for the state before it.

        A state that cannot be written costs nothing: the state before and both logs lead to the same place.

        ``carried``: first records of the new log: what the state does not hold.
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
        """Bytes of a log from an offset on that are on disk for good, and whether these are its last."""
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
        """The newest state was read back: drop what is older than the one before it."""
        states = [number for number, _ in self.states()]
        oldest = states[min(1, len(states) - 1)]
        for kind in ("state-", "log-"):
            for number in self.numbers(kind):
                if number < oldest:
                    self.path(kind, number).unlink(missing_ok=True)

    def close(self) -> None:
        """Let the folder go."""
        self._close_file()
        os.close(self._lock)

    def _open(self) -> None:
        """Open the last log, cut to what is known to be whole."""
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
    """A record of a line, or None where the checksum does not fit."""
    if line[8:9] != b" " or line[:8] != b"%08x" % zlib.crc32(line[9:]):
        return None
    found: dict[str, Any] = json.loads(line[9:])
    return found
