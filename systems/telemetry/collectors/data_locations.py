"""Data locations and run history: items, blocks of HDFS, past runs, metrics of other services."""

from __future__ import annotations

import json
import math
import os
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flowlex.systems.telemetry.collectors.collector_command import NO_SOURCE, Unfit, seconds_of

_MOST_BYTES = 16_000_000


def items(place: str) -> Any:
    """Return the items on this node: the number of files below a folder, or the content of a JSON manifest.

    A manifest is a count, or a list of ``{"name", "items", "holders"}``.
    """
    path = Path(place)
    if path.is_dir():
        return sum(len(files) for _, _, files in os.walk(path))
    if not path.is_file():
        raise Unfit(f"{place} is neither a folder of items nor a manifest", NO_SOURCE)
    return json.loads(_text(path))


def run_history(place: str) -> dict[str, float]:
    """Return the last run in a file of JSON lines ``{"items": number, "seconds": number}``, which programs append."""
    path = Path(place)
    if not path.is_file():
        raise Unfit(f"{place} is not there yet; a program appends a line after each run", NO_SOURCE)
    with path.open("rb") as stream:
        stream.seek(max(0, path.stat().st_size - 4_096))
        lines = [line for line in stream.read().decode(errors="replace").splitlines() if line.endswith("}")]
    if not lines:
        raise Unfit(f"{place} holds no run yet", NO_SOURCE)
    run = json.loads(lines[-1])
    found = {key: float(run[key]) for key in ("items", "seconds")}
    if not all(math.isfinite(value) and value > 0 for value in found.values()):
        raise ValueError(f"the last run of {place} has items or seconds that are no positive number")
    return found


def hdfs_blocks(url: str, folder: str, item_bytes: str = "0") -> list[dict[str, Any]]:
    """Blocks of the files of an HDFS folder that have a replica on this node, over WebHDFS (``http://host:9870``).

    A block has its length divided by ``item_bytes`` items, at least one; 0: one item per block. HDFS host names must be
    the agents' names; the first holder is the first that HDFS lists. Each node lists its own blocks with all their
    holders.
    """
    node, length = os.environ.get("FLOWLEX_NODE", ""), float(item_bytes)
    base = f"{url.rstrip('/')}/webhdfs/v1/"
    found = []
    for path in _hdfs_files(base, folder):
        query = "?op=GETFILEBLOCKLOCATIONS"
        located = _json(base + urllib.parse.quote(path.lstrip("/")) + query)["BlockLocations"]["BlockLocation"]
        for block in located:
            if node in block["hosts"]:
                count = max(1, math.ceil(block["length"] / length)) if length else 1
                found.append({"name": f"{path}@{block['offset']}", "items": count, "holders": block["hosts"]})
    return found


def _hdfs_files(base: str, folder: str) -> Iterator[str]:
    listed = _json(base + urllib.parse.quote(folder.strip("/")) + "?op=LISTSTATUS")
    for status in listed["FileStatuses"]["FileStatus"]:
        if status["type"] == "FILE":
            name = status["pathSuffix"]
            yield f"{folder.rstrip('/')}/{name}" if name else folder


def scrape(url: str, *names: str, wait: str = "3") -> dict[str, float]:
    """Return metrics of a Prometheus endpoint, such as node_exporter, by name, summed over all label sets.

    Examples of names: ``node_load1``; ``node_cpu_seconds_total{mode="idle"}``, where all given labels must match.
    """
    from prometheus_client.parser import text_string_to_metric_families

    if not names:
        raise ValueError("name at least one sample, such as node_load1")
    text = _fetch(url, seconds_of(wait)).decode()
    wanted = {name: _selector(name) for name in names}
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            for name, (base, labels) in wanted.items():
                if sample.name == base and labels.items() <= sample.labels.items() and math.isfinite(sample.value):
                    found[name] = found.get(name, 0.0) + sample.value
    missing = sorted(wanted.keys() - found.keys())
    if missing:
        raise Unfit(f"{url} has no finite sample {missing[0]}", NO_SOURCE)
    return {name: found[name] for name in names}


def _selector(text: str) -> tuple[str, dict[str, str]]:
    name, _, rest = text.partition("{")
    pairs = [part.split("=", 1) for part in rest.rstrip("}").split(",") if part]
    return name, {key.strip(): value.strip().strip('"') for key, value in pairs}


def _json(url: str) -> Any:
    return json.loads(_fetch(url, 5.0))


def _fetch(url: str, timeout_s: float) -> bytes:
    """Fetch a URL without a proxy, with bounds on length and time."""
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{url} is no address; give http://host:port/...")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    until, parts = time.monotonic() + timeout_s, []
    with opener.open(url, timeout=timeout_s) as response:
        while chunk := response.read(65_536):
            parts.append(chunk)
            if sum(map(len, parts)) > _MOST_BYTES or time.monotonic() > until:
                raise Unfit(f"{url} answers more than {_MOST_BYTES} bytes, or longer than {timeout_s:g} s")
    return b"".join(parts)


def _text(path: Path) -> str:
    if path.stat().st_size > _MOST_BYTES:
        raise Unfit(f"{path} is longer than {_MOST_BYTES} bytes")
    return path.read_text()
