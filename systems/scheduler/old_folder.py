"""Read the state folder of the service of earlier versions: a snapshot, and a log of lines with a checksum.

``state-N`` is the state before the first line of ``log-N.jsonl``. Answers to keys, which had no holder, are left out.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path

from flowlex.systems.scheduler.database import Settings
from flowlex.systems.scheduler.snapshot_and_log import CORES, replay


def read_folder(folder: Path) -> tuple[Settings, bytes, int]:
    """Return settings, the state after the last record, and the number of records read since the snapshot.

    Raises `ValueError`: the folder is damaged or no folder of a service.
    """
    try:
        document = json.loads((folder / "service.json").read_bytes())
        settings = Settings(document["kind"], document["options"], float(document["epoch_s"]))
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise ValueError(f"{folder / 'service.json'} cannot be read ({error}); name the --state folder") from error
    state = max(folder.glob(f"state-{9 * '[0-9]'}"), default=None)
    core, count = CORES[settings.kind].continued(settings.options, None if state is None else state.read_bytes()), 0
    first = 0 if state is None else int(state.name[-9:])
    last = max((int(path.stem[-9:]) for path in folder.glob(f"log-{9 * '[0-9]'}.jsonl")), default=first)
    for path in (folder / f"log-{number:09d}.jsonl" for number in range(first, last + 1)):
        if not path.is_file():
            raise ValueError(f"{path} is missing; restore the folder from a backup")
        *lines, _ = path.read_bytes().split(b"\n")  # a last line that a kill cut off was not acknowledged
        for number, line in enumerate(lines, 1):
            if line[8:9] != b" " or line[:8] != b"%08x" % zlib.crc32(line[9:]):
                raise ValueError(f"{path}: line {number} is damaged; restore the folder from a backup")
            record = json.loads(line[9:])
            replay(core, record)
            count += "decided" in record or "events" in record
    return settings, core.save(), count
