"""Snapshots of a journal's state: writing, reading back in a separate process, finding the newest readable one."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Generic, TypeVar

from flowlex.service.scheduler_protocol import Core, Document
from flowlex.service.write_ahead_log import Journal

_LOG = logging.getLogger(__name__)
C = TypeVar("C", bound=Core)


def newest_readable(states: Iterable[tuple[int, Path | None]], load: Callable[[Path | None], C]) -> tuple[int, C]:
    """Return the first readable state, and its number."""
    first: Exception | None = None
    for number, path in states:
        try:
            return number, load(path)
        except Exception as error:
            _LOG.error("%s; going on from the state before", error)
            first = first or error
    assert first is not None
    raise first


class Snapshots(Generic[C]):
    """The states of a journal.

    ``read_back``: starts a process that exits with 0 if a state can be read back; None: read it back in this process.
    """

    def __init__(
        self,
        journal: Journal,
        load: Callable[[Path | None], C],  # creates the core from a snapshot, or (None) from the beginning
        every: int = 10_000,  # records after which a snapshot is due
        read_back: Callable[[Path], subprocess.Popen[bytes]] | None = None,
    ) -> None:
        self.journal, self._load, self._every, self._read_back = journal, load, every, read_back
        self._writing: tuple[Path, Future[Any]] | None = None  # the newest state
        self._reading: subprocess.Popen[bytes] | None = None  # of the newest state

    @property
    def due(self) -> bool:
        """Whether to take a snapshot; never while one is written or read back, since reading back drops older ones."""
        return self._is_written() and self._is_read_back() and self.journal.records >= self._every

    def begin(self, carried: Iterable[Document]) -> Path | None:
        """Begin a new log with the ``carried`` records; return the file for the state before it."""
        try:
            return self.journal.begin_log(carried)
        except OSError as error:
            _LOG.error("no snapshot: %s", error)
            return None

    def wait_for(self, path: Path, written: Future[Any]) -> None:
        """Read a state back once it is written."""
        self._writing = path, written

    def _is_written(self) -> bool:
        if self._writing is None:
            return True
        path, written = self._writing
        if not written.done():
            return False
        self._writing = None
        if error := written.exception():
            _LOG.error("no snapshot: %s", error)
        elif self._read_back is not None:
            self._reading = self._read_back(path)
        elif self._readable(path):
            self.journal.accept()
        return True

    def newest(self) -> tuple[int, C]:
        """Return the newest readable state, and its number."""
        states = self.journal.states()
        number, core = newest_readable(states, self._load)
        if number == states[0][0]:
            self.journal.accept()
        return number, core

    def close(self, core: C, carried: Iterable[Document]) -> None:
        """Take a last snapshot, which the next start reads back."""
        try:
            if self.journal.records:
                self.journal.snapshot(core.save, carried)
        except OSError as error:
            _LOG.error("no last snapshot: %s", error)

    def stop_reading(self) -> None:
        """End the process that reads a state back."""
        if self._reading is not None:
            self._reading.kill()
            self._reading.wait()

    def _is_read_back(self) -> bool:
        if self._reading is None:
            return True
        code = self._reading.poll()
        if code is None:
            return False
        self._reading = None
        if code == 0:
            self.journal.accept()
        else:
            _LOG.error("the newest state cannot be read back (exit code %s); the older ones and their logs stay", code)
        return True

    def _readable(self, path: Path) -> bool:
        try:
            self._load(path)
        except Exception as error:  # after any error, the older states and their logs stay
            _LOG.error("the newest state cannot be read back: %s", error)
            return False
        return True
