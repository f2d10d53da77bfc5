"""The results of a batch: one JSON line per instance in ``results.jsonl``, safe against ``kill -9``.

A line is appended and flushed to disk when its instance finishes; nothing else is written while solving. If a killed
run left an incomplete line, the next run drops it when it opens the folder (its instance counts as not done). A folder
is locked while a run writes to it, so no instance can get two lines.

``--resume`` counts an instance as done if its line is from the same file (by path, size and time of last change, as
in `make` and `rsync`, so that thousands of files need not be read again) with the same options, and is neither an
``error`` nor cut off by a kill. An instance that failed (out of memory, file repaired since) is tried again; one that
reached the same time limit is not.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flowlex.instances.file_storage import resolved, seen, write_atomically

#: One line of results, see `flowlex.cli.result_record`.
Record = dict[str, Any]


class JournalError(Exception):
    """The folder of results cannot be used; the message says why and what to do."""


@dataclass(frozen=True)
class Fingerprint:
    """Path, size and time of change of a file when it was solved."""

    path: str
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, path: Path) -> Fingerprint:
        """Read the status of a file; if it cannot be read, size and time are -1."""
        real = str(resolved(path))
        try:
            return cls(real, *seen(path))
        except OSError:
            return cls(real, -1, -1)


@dataclass
class Journal:
    """Results of one folder, locked until closed. Use it as a context manager."""

    folder: Path  # where ``results.jsonl`` and the solution files are
    # results found when it was opened, by resolved path of the instance file
    records: dict[str, Record] = field(default_factory=dict)
    dropped: int = 0  # lines that were no results (incomplete after a kill)
    # complete lines that are no results of this command, such as a report's measurements without inputs
    foreign: int = 0
    differing: set[str] = field(default_factory=set)  # names of options because of which a result was not `done`
    _lock: int = -1
    _stream: int = -1

    @property
    def path(self) -> Path:
        """The file of results."""
        return self.folder / "results.jsonl"

    def __enter__(self) -> Journal:
        if self.folder.exists() and not self.folder.is_dir():
            raise JournalError(f"{self.folder} is a file; -o names a folder, for solution files and results.jsonl")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for half_written in self.folder.glob(".*.part"):  # by a killed run; we hold the lock
                half_written.unlink(missing_ok=True)
            self._read()
        except BlockingIOError as error:
            self._close()
            raise JournalError(f"{self.folder}: another `flowlex solve` is writing there; wait or use -o") from error
        except OSError as error:
            self._close()
            raise JournalError(f"{self.folder}: cannot write results there: {error.strerror or error}") from error
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        for descriptor in (self._stream, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._stream = self._lock = -1

    def _read(self) -> None:
        if not self.path.exists():
            return
        for line in self.path.read_bytes().splitlines(keepends=True):
            try:
                record = json.loads(line)
            except ValueError:  # incomplete: a prefix of an object is no object
                self.dropped += 1
                continue
            if _is_result(record):
                self.records[record["input"]["path"]] = record
            else:
                self.foreign += 1

    def done(self, file: Fingerprint, options: Mapping[str, Any]) -> Record | None:
        """Return the recorded result of a file with the same options, if it and its solution file exist."""
        record = self.records.get(file.path)
        if record is None or record["status"] == "error" or record.get("cut_off") == "killed":
            return None
        before = record["options"]
        self.differing |= {name for name in {*before, *options} if before.get(name) != options.get(name)}
        same = record["input"] == vars(file) and record["options"] == options
        solution = record.get("solution")
        return record if same and (solution is None or (self.folder / solution).exists()) else None

    def begin(self, forget: set[str]) -> bool:
        """Prepare the file for appending: drop incomplete lines and those of instances about to be solved.

        Return whether useful results were dropped; the old file is then kept as ``results.previous.jsonl``.
        """
        try:
            lost = [record for path, record in self.records.items() if path in forget]
            valuable = self.foreign > 0 or any(record["status"] != "error" for record in lost)
            kept = {path: record for path, record in self.records.items() if path not in forget}
            content = b"".join(map(encode, kept.values()))
            if self.path.exists() and self.path.read_bytes() != content:
                if valuable:
                    write_atomically(self.folder / "results.previous.jsonl", self.path.read_bytes())
                write_atomically(self.path, content)
            self.records = kept
            self._stream = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        except OSError as error:
            raise JournalError(f"{self.path}: cannot be written: {error.strerror or error}") from error
        return valuable

    def append(self, record: Record) -> None:
        """Append a result and flush it to disk."""
        data = encode(record)
        try:
            while data:
                data = data[os.write(self._stream, data) :]
            os.fsync(self._stream)
        except OSError as error:
            reason = error.strerror or error
            raise JournalError(f"{self.path}: cannot be written: {reason}; mend it and use --resume") from error


def encode(record: Record) -> bytes:
    """One line of JSON."""
    return json.dumps(record, allow_nan=False).encode() + b"\n"


def _is_result(record: Any) -> bool:
    if not isinstance(record, dict) or not isinstance(record.get("input"), dict):
        return False
    return isinstance(record["input"].get("path"), str) and {"status", "options"} <= record.keys()
