"""The events of a run, in order; all metrics are computed from them, and they can be stored in a file.

A file has JSON lines: a header (event ``run``: simulator, policy, seed, ...), then one event per line with its time
``at_s``. Equal runs give equal bytes.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from flowlex.instances.file_storage import write_atomically
from flowlex.instances.instance_base import InstanceError
from flowlex.systems.simulation.event_queue import SimulationError

Record = dict[str, Any]


class RunLog:
    """An append-only list of events.

    ``header``: description of the run: plain values by name.
    """

    def __init__(self, header: Mapping[str, Any] | None = None) -> None:
        self.header: Record = {"event": "run", **(header or {})}
        self.records: list[Record] = []

    def add(self, at_s: float, event: str, **fields: Any) -> None:
        """Append one event; times must not decrease."""
        if self.records and at_s < self.records[-1]["at_s"]:
            raise SimulationError(f"an event at {at_s:g} s was logged late", at_s=self.records[-1]["at_s"], event=event)
        self.records.append({"at_s": at_s, "event": event, **fields})

    def __len__(self) -> int:
        return len(self.records)

    def of(self, *events: str) -> Iterator[Record]:
        """The records of some kinds of event, in order."""
        return (record for record in self.records if record["event"] in events)

    def lines(self) -> Iterator[str]:
        """Yield the lines of the file."""
        for record in (self.header, *self.records):
            yield json.dumps(record, allow_nan=False, separators=(",", ":")) + "\n"

    def write(self, path: str | Path) -> None:
        """Write the whole file or nothing; a name that ends in ``.gz`` is compressed."""
        write_atomically(Path(path), "".join(self.lines()).encode())

    @classmethod
    def read(cls, path: str | Path) -> RunLog:
        """Read a file that `write` made.

        Raises
        ------
        InstanceError
            A line is no event; the error names file and line.
        """
        log, number = cls(), 0
        try:
            data = Path(path).read_bytes()
            text = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
            for number, line in enumerate(text.splitlines(), 1):
                record = json.loads(line)
                if not isinstance(record, dict) or ("at_s" in record) is (number == 1) or "event" not in record:
                    raise ValueError("no event of a simulation")
                if number == 1:
                    log.header = record
                else:
                    log.records.append(record)
        except (OSError, ValueError, EOFError) as error:
            raise InstanceError(str(error), place=f"line {number}" if number else "", path=path) from error
        return log
