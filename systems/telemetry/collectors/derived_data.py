"""Processors: derive data from stored data. The input is the document of ``GET /v1/agents/{node}/inputs/{name}``."""

from __future__ import annotations

import json
import sys
from typing import Any

from flowlex.systems.telemetry.collectors.collector_command import NO_INPUT, Unfit


def _given() -> dict[str, Any]:
    given: dict[str, Any] = json.load(sys.stdin)
    return given


def cpu_performance(required: str = "0.5") -> float:
    """Performance by CPU load: ``min(1, CpuFree / CpuReq)``, 1 is best (reconstructed from the paper).

    Reads the last value of its first input, the idle fraction; ``required`` is CpuReq, the fraction the program needs.
    """
    needs = float(required)
    if not 0 < needs <= 1:
        raise ValueError("CpuReq must be a fraction above 0, at most 1")
    last = _given()["last"]
    if not last:
        raise Unfit("no idle fraction is stored yet", NO_INPUT)
    free = float(next(iter(last.values()))["value"])
    return round(min(1.0, free / needs), 4)


def processing_speed() -> float:
    """Items per second from the run history: all items over all seconds of the window.

    Reads the history of its first input; each value is ``{"items": number, "seconds": number}``. Without a window the
    last run counts.
    """
    given = _given()
    entries = [entry for entries in given["history"].values() for entry in entries if entry["exit_code"] == 0]
    runs = [entry["value"] for entry in entries or given["last"].values()]
    items, seconds = sum(run["items"] for run in runs), sum(run["seconds"] for run in runs)
    if seconds <= 0:
        raise Unfit("no run is stored yet", NO_INPUT)
    return round(float(items / seconds), 6)


def normalised_performance() -> dict[str, float]:
    """Performance of every node (scope ``all``): its first input divided by the best of all nodes; 1 is best.

    The input may be cores, items per second, or the evaluation of another processor.
    """
    given = _given()
    found = {}
    for node, data in given["nodes"].items():
        numbers = [entry["value"] for entry in data["last"].values() if isinstance(entry["value"], int | float)]
        if numbers and numbers[0] >= 0:
            found[node] = float(numbers[0])
    best = max(found.values(), default=0.0)
    if best <= 0:
        raise Unfit("no node has a positive value of the input yet", NO_INPUT)
    return {node: round(value / best, 6) for node, value in sorted(found.items())}


def access_cost(
    item_bytes: str, bandwidth: str = "network_bandwidth", disk: str = "disk_read_speed"
) -> dict[str, float]:
    """Seconds to move one item from this node to each other node (scope ``all``).

    The item is read from this node's disk and crosses both nodes' interfaces; the slower interface counts:
    ``item_bytes / disk + item_bytes / min(bandwidth here, bandwidth there)`` (ours; the paper names bandwidth, disk
    and block locations as the parts of the cost). Without a disk speed, only the network counts.
    """
    size = float(item_bytes)
    if size <= 0:
        raise ValueError(f"{item_bytes} is no length of an item in bytes")
    given = _given()
    node = given["node"]
    speed = {
        other: float(data["last"][bandwidth]["value"])
        for other, data in given["nodes"].items()
        if bandwidth in data["last"]
    }
    if node not in speed:
        raise Unfit(f"no {bandwidth} of this node is stored yet", NO_INPUT)
    reads = given["nodes"][node]["last"].get(disk)
    read_s = size / float(reads["value"]) if reads else 0.0
    return {other: round(read_s + size / min(speed[node], speed[other]), 9) for other in sorted(speed) if other != node}
