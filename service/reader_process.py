"""The process that answers queries, ``python -m flowlex.service.reader_process FOLDER``, next to the deciding service.

It starts with the state recovered from the log of the service's folder, and then receives every record written to disk.
It applies events together with the next decision, or when a query names an unknown task. Readers therefore see the
state of the last decision while the service takes events and decides.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from flowlex.service.scheduler_protocol import (
    Core,
    Document,
    NoReaderError,
    RefusedEvent,
    SlowAnswer,
    UnknownTask,
    replay,
)
from flowlex.service.state_snapshot_files import newest_readable
from flowlex.service.write_ahead_log import LogFolder, Position, record_of

_LOG = logging.getLogger(__name__)
_MOST_BEHIND = 100_000
#: Delivers an answer: JSON, or the exception to raise.
Deliver = Callable[[bytes | Exception], None]


class Follower:
    """A core that follows the service's core and answers queries.

    ``folder``: of the service. ``load``: creates the core from a state, or (None) from the beginning. ``end``: position
    in the log at the start.
    """

    def __init__(self, folder: LogFolder, load: Callable[[Path | None], Core], end: Position) -> None:
        self.core: Core
        number, self.core = newest_readable((each for each in folder.states() if each[0] <= end[0]), load)
        for _, _, record in folder.lines(number, end):
            replay(self.core, record)
        self._end = end
        self._later: list[Document] = []  # records since the last decision
        self._same: dict[str, bytes] = {}  # answers that are valid until the next records, by query
        self._busy = threading.Lock()  # held while a slow answer is computed

    def take(self, end: Position, lines: bytes) -> None:
        """Process lines of the log that end at a position."""
        if end <= self._end:
            return
        self._end = end
        records = [record for line in lines.splitlines() if (record := record_of(line)) is not None]
        self._later += records
        if any("decided" in record for record in records):
            self._catch_up()

    def _catch_up(self) -> None:
        records, self._later = self._later, []
        self._same.clear()
        for record in records:
            replay(self.core, record)

    def ask(self, question: str, arguments: Sequence[Any], deliver: Deliver) -> None:
        """Answer a query; slow ones one at a time on another thread. A saved state includes all records."""
        if question == "save":
            self._catch_up()
        if question in self._same:
            return deliver(self._same[question])
        try:
            try:
                found = getattr(self.core, question)(*arguments)
            except KeyError:
                if not self._later:
                    raise
                self._catch_up()
                found = getattr(self.core, question)(*arguments)
        except KeyError:
            deliver(UnknownTask(*arguments))
        except Exception as error:
            deliver(error if isinstance(error, RefusedEvent) else NoReaderError(f"{type(error).__name__}: {error}"))
        else:
            if not isinstance(found, SlowAnswer):
                answer = _json(found)
                if not arguments:
                    self._same[question] = answer
                deliver(answer)
            elif self._busy.acquire(blocking=False):
                threading.Thread(target=self._find, args=(found, deliver), daemon=True).start()
            else:
                deliver(_json(found.otherwise))

    def _find(self, slow: SlowAnswer, deliver: Deliver) -> None:
        try:
            found: bytes | Exception = _json(slow.find())
        except Exception as error:
            found = NoReaderError(f"{type(error).__name__}: {error}")
        self._busy.release()
        deliver(found)


def _json(found: BaseModel | Document | None) -> bytes:
    return (found.model_dump_json(exclude_unset=True) if isinstance(found, BaseModel) else json.dumps(found)).encode()


class ReaderProcess:
    """Readers in a separate process; if it has ended, the next query starts it again.

    ``without``: goals of a saved state to leave out.
    """

    def __init__(self, without: Sequence[str] = ()) -> None:
        self._without = tuple(without)
        self._turn = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._messages: queue.SimpleQueue[tuple[Any, ...] | None] = queue.SimpleQueue()
        self._open: dict[int, Future[bytes]] = {}
        self._count = 0
        self._folder: LogFolder | None = None

    def start(self, folder: LogFolder) -> None:
        """Restart with the state recovered from a folder's log."""
        with self._turn:
            self._stop()
            self._folder = folder
            self._begin()

    def _begin(self) -> None:
        """Start the process; it receives every record from here on, also those already in the log."""
        assert self._folder is not None
        self._messages, self._open = queue.SimpleQueue(), {}
        place = map(str, (self._folder.folder, *self._folder.end))
        command = [sys.executable, "-m", "flowlex.service.reader_process", *place]
        process = subprocess.Popen([*command, *self._without], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._process = process
        for work, of in ((self._write, self._messages), (self._read, self._open)):
            threading.Thread(target=work, args=(process, of), name="readers", daemon=True).start()

    def tell(self, end: Position, lines: bytes) -> None:
        """Send lines of the log that are on disk, up to a position."""
        if self._messages.qsize() > _MOST_BEHIND:  # it hangs
            with self._turn:
                self._stop()
        elif self._process is not None:
            self._messages.put(("take", end, lines))

    def ask(self, question: str, *arguments: Any) -> Future[bytes]:
        """Query the core of the process."""
        future: Future[bytes] = Future()
        with self._turn:
            if self._process is None and self._folder is not None:
                self._begin()
            self._count += 1
            self._open[self._count] = future
            self._messages.put(("ask", self._count, question, arguments))
        return future

    def close(self) -> None:
        """End the process."""
        with self._turn:
            self._stop()

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        self._messages.put(None)

    def _write(self, process: subprocess.Popen[bytes], messages: queue.SimpleQueue[tuple[Any, ...] | None]) -> None:
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError), process.stdin as stream:
            while (message := messages.get()) is not None:
                pickle.dump(message, stream)
                stream.flush()

    def _read(self, process: subprocess.Popen[bytes], open_: dict[int, Future[bytes]]) -> None:
        assert process.stdout is not None
        with process.stdout as stream, contextlib.suppress(EOFError, OSError, pickle.UnpicklingError):
            while True:
                number, found = pickle.load(stream)
                resolve(open_.pop(number), found)
        with self._turn:
            if self._process is process:
                _LOG.error("the process that answers questions has ended (exit code %s)", process.wait())
                self._stop()
            for future in open_.values():
                resolve(future, NoReaderError("the process that answers questions has ended; ask again"))
            open_.clear()


def resolve(future: Future[bytes], found: bytes | Exception) -> None:
    """Give a future its answer."""
    if future.set_running_or_notify_cancel():
        if isinstance(found, Exception):
            future.set_exception(found)
        else:
            future.set_result(found)


def _main(folder: Path, end: Position, without: Sequence[str]) -> None:
    from flowlex.service.service_folder import loader_of

    answers, turn = os.fdopen(os.dup(1), "wb"), threading.Lock()
    os.dup2(2, 1)  # output of a goal or a solver is no answer
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends with the service
    follower = Follower(LogFolder(folder), loader_of(folder, without), end)
    os.nice(10)  # decisions come first, once it is there: on a busy machine it would take minutes to begin
    gc.collect()
    gc.freeze()  # exclude the cluster's objects from garbage collection

    def deliver(number: int, found: bytes | Exception) -> None:
        with turn:
            pickle.dump((number, found), answers)
            answers.flush()

    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            kind, *rest = pickle.load(sys.stdin.buffer)
            if kind == "take":
                follower.take(*rest)
            else:
                number, question, arguments = rest
                follower.ask(question, arguments, partial(deliver, number))


if __name__ == "__main__":
    _main(Path(sys.argv[1]), (int(sys.argv[2]), int(sys.argv[3])), sys.argv[4:])
