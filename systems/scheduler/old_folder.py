"""Read the state folder of the service of earlier versions: a snapshot, and a log of lines with a checksum.

``state-N`` is the state before the first line of ``log-N.jsonl``. Its answers to idempotency keys are not taken over,
as they named no holder.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flowlex.systems.scheduler.core_protocol import replay
from flowlex.systems.scheduler.database import SchedulerDatabase, Settings
from flowlex.systems.scheduler.kinds import loader_of


def read_folder(folder: Path, database: SchedulerDatabase) -> int:
    """Store the state after the last record; return the number of records read since the snapshot.

    Raises `ValueError`: the folder is damaged or no folder of a service, or the database is in use already.
    """
    try:
        document = json.loads((folder / "service.json").read_bytes())
        settings = Settings(document["kind"], document["options"], float(document["epoch_s"]))
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise ValueError(f"{folder / 'service.json'} cannot be read ({error}); name the --state folder") from error
    if database.begun() is not None:
        raise ValueError(f"{database.place} belongs to a service already; name a new database")
    load = loader_of(settings)
    newest = max(_numbers(folder, "state-"), default=0)
    state = folder / f"state-{newest:09d}"
    core, count = load(state.read_bytes() if state.is_file() else None), 0
    for record in _records(folder, newest):
        if "decided" in record or "events" in record:
            replay(core, record)
            count += 1
    database.begin_with(settings, core.save())
    return count


def _numbers(folder: Path, kind: str) -> list[int]:
    names = (path.name.removeprefix(kind).removesuffix(".jsonl") for path in folder.glob(f"{kind}*"))
    return [int(name) for name in names if name.isdigit()]


def _records(folder: Path, since: int) -> Iterator[dict[str, Any]]:
    last = max(_numbers(folder, "log-"), default=since)
    for number in range(since, last + 1):
        path = folder / f"log-{number:09d}.jsonl"
        if not path.is_file():
            raise ValueError(f"{path} is missing; restore the folder from a backup")
        *lines, _ = path.read_bytes().split(b"\n")  # a last line that a kill cut off was not acknowledged
        for count, line in enumerate(lines, 1):
            if line[8:9] != b" " or line[:8] != b"%08x" % zlib.crc32(line[9:]):
                raise ValueError(f"{path}: line {count} is damaged; restore the folder from a backup")
            yield json.loads(line[9:])
