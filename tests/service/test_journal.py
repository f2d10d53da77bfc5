"""The log on disk: truncated last records are dropped, other damage is refused, snapshots keep the folder small."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from flowlex.service.write_ahead_log import Journal, JournalError


def records(folder: Path) -> list[int]:
    journal = Journal(folder)
    found = [record["n"] for record in journal.read(0)]
    journal.close()
    return found


def write(folder: Path, *numbers: int) -> Path:
    journal = Journal(folder)
    list(journal.read(0))
    journal.append([{"n": number} for number in numbers])
    journal.close()
    return folder / "log-000000000.jsonl"


def test_records_survive_and_a_torn_last_line_goes(folder):
    path = write(folder, 1, 2)
    write(folder, 3)
    assert records(folder) == [1, 2, 3]
    whole = path.read_bytes()
    for cut in range(1, 12):
        path.write_bytes(whole[:-cut])
        assert records(folder) == [1, 2]
        path.write_bytes(whole)
    path.write_bytes(whole[:-4])
    write(folder, 4)  # continues after the last complete record
    assert records(folder) == [1, 2, 4]


def test_a_damaged_line_in_the_middle_is_refused(folder):
    path = write(folder, 1, 2, 3)
    path.write_bytes(path.read_bytes().replace(b'"n":2', b'"n":7'))
    with pytest.raises(JournalError, match="line 2 is damaged; restore the folder from a backup"):
        records(folder)


def test_one_process_at_a_time(folder):
    journal = Journal(folder)
    with pytest.raises(JournalError, match="in use by another service"):
        Journal(folder)
    journal.close()
    Journal(folder).close()


def test_the_two_newest_states_and_their_logs_are_kept(folder):
    write(folder, 1)
    journal = Journal(folder)
    list(journal.read(0))
    for number in (1, 2, 3):
        path = journal.snapshot(lambda path, n=number: path.write_text(f"state {n}"))
        assert path.read_text() == f"state {number}"
        journal.append([{"n": number + 1}])
        if number != 2:  # state 2 is never verified, so no older file is deleted
            journal.accept()
    journal.close()
    logs = [f"log-{number:09}.jsonl" for number in (2, 3)]
    assert sorted(path.name for path in folder.iterdir()) == ["lock", *logs, "state-000000002", "state-000000003"]
    journal = Journal(folder)
    assert [(number, path and path.read_text()) for number, path in journal.states()] == [
        (3, "state 3"),
        (2, "state 2"),
    ]
    assert [r["n"] for r in journal.read(3)] == [4]
    assert [r["n"] for r in journal.read(2)] == [3, 4]  # the older state and the logs give the same state
    (folder / logs[0]).unlink()
    with pytest.raises(JournalError, match=r"log-000000002\.jsonl is missing"):
        list(journal.read(2))
    journal.close()


def test_a_full_disk_leaves_what_was_there(folder, monkeypatch):
    write(folder, 1)
    journal = Journal(folder)
    list(journal.read(0))
    real = os.write

    def some(file, data):
        if len(data) < 12:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(file, data[:10])

    monkeypatch.setattr("flowlex.service.write_ahead_log.os.write", some)
    with pytest.raises(OSError, match="No space left"):
        journal.append([{"n": 2}])
    monkeypatch.undo()
    journal.append([{"n": 3}])
    journal.close()
    assert records(folder) == [1, 3]
