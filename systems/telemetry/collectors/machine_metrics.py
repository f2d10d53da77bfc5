"""Metrics of the machine from psutil, or of the container if a control group limits the command.

Units: cores (not whole under a quota), fractions from 0 to 1, MB of 2^20 bytes, bytes per second.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil

from flowlex.systems.telemetry.collectors.collector_command import NO_SOURCE, Unfit, seconds_of

GROUPS = Path("/sys/fs/cgroup")
MB = 2**20


def _limits(name: str) -> list[tuple[Path, str]]:
    """Return the texts of a limit in this process's control group (version 2) and its parents."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    place = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), "")
    # In a container the path may be that of the host; then the mounted root is the container's own group.
    folder = GROUPS / place if (GROUPS / place).is_dir() else GROUPS
    groups = (group for group in (folder, *folder.parents) if group.is_relative_to(GROUPS))
    return [(group, (group / name).read_text().strip()) for group in groups if (group / name).is_file()]


def _quota() -> tuple[float, Path | None]:
    """Return the cores of the CPU quota (infinite if there is none), and the group that sets it."""
    least, where = float("inf"), None
    for folder, text in _limits("cpu.max"):
        most, period = text.split()
        if most != "max" and int(most) / int(period) < least:
            least, where = int(most) / int(period), folder
    return least, where


def cpu_cores() -> float | int:
    """Cores that programs may use: those of the CPU affinity, or the control group's quota if that is less."""
    cores = len(os.sched_getaffinity(0))
    quota, _ = _quota()
    return cores if quota >= cores else round(quota, 3)


def _used_s(group: Path) -> float:
    """CPU seconds that a control group has used."""
    figures = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
    return int(figures["usage_usec"]) / 1e6


def cpu_free(seconds: str = "0.25") -> float:
    """Idle fraction of the cores that programs may use here, over some seconds.

    Under a quota: the unused fraction of the quota, or less if the machine is busier.
    """
    wait = seconds_of(seconds)
    quota, group = _quota()
    cores = len(os.sched_getaffinity(0))
    used, began = (_used_s(group) if group else 0.0), time.monotonic()
    idle = 1 - psutil.cpu_percent(wait) / 100
    if group is None or quota >= cores:
        return round(min(1.0, max(0.0, idle)), 4)
    taken = (_used_s(group) - used) / (time.monotonic() - began)
    return round(min(1.0, max(0.0, min(quota - taken, idle * cores) / quota)), 4)


def memory_free() -> int:
    """Available memory in MB: of the machine, or of the control group if that is less."""
    free = psutil.virtual_memory().available
    for folder, text in _limits("memory.max"):
        used = folder / "memory.current"
        if text != "max" and used.is_file():
            figures = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            # Inactive pages of files are reclaimed first, so they count as free.
            free = min(free, int(text) - int(used.read_text()) + int(figures.get("inactive_file", 0)))
    return max(0, free) // MB


def network_throughput(seconds: str = "0.25") -> dict[str, int]:
    """Bytes received and sent per second on all interfaces but loopback."""

    def counters() -> tuple[int, int]:
        found = [c for name, c in psutil.net_io_counters(pernic=True).items() if name != "lo"]
        return sum(c.bytes_recv for c in found), sum(c.bytes_sent for c in found)

    return _rates(counters, seconds, ("received_bytes_per_s", "sent_bytes_per_s"))


def disk_throughput(seconds: str = "0.25") -> dict[str, int]:
    """Bytes read and written per second on all disks."""

    def counters() -> tuple[int, int]:
        per_disk = psutil.disk_io_counters(perdisk=True) or {}
        # Partitions have no folder of their own in /sys/block; loop and ram disks are not disks.
        disks = (c for name, c in per_disk.items() if (Path("/sys/block") / name).is_dir())
        found = [c for c in disks if c]
        return sum(c.read_bytes for c in found), sum(c.write_bytes for c in found)

    return _rates(counters, seconds, ("read_bytes_per_s", "write_bytes_per_s"))


def _rates(counters: Any, seconds: str, names: tuple[str, str]) -> dict[str, int]:
    before, began = counters(), time.monotonic()
    time.sleep(seconds_of(seconds))
    after, took = counters(), time.monotonic() - began
    rates = (round(max(0, b - a) / took) for a, b in zip(before, after, strict=True))
    return dict(zip(names, rates, strict=True))


def network_bandwidth(bytes_per_s: str = "") -> int:
    """Bytes per second of this node's fastest interface, unless the argument gives it.

    Virtual machines do not report it: give the argument there.
    """
    if bytes_per_s:
        stated = int(float(bytes_per_s))
        if stated <= 0:
            raise ValueError(f"{bytes_per_s} is no bandwidth in bytes per second")
        return stated
    speeds = [s.speed for name, s in psutil.net_if_stats().items() if name != "lo" and s.isup and s.speed > 0]
    if not speeds:
        raise Unfit("no interface says its speed; state the bytes per second as an argument", NO_SOURCE)
    return max(speeds) * 1_000_000 // 8


def disk_read_speed(path: str, megabytes: str = "16") -> int:
    """Bytes per second of reading a data file, bypassing the page cache if the file system allows it."""
    size = int(float(megabytes) * MB)
    if not 0 < size <= 1024 * MB:
        raise ValueError(f"{megabytes} MB are not read for a measurement; give above 0, at most 1024")
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, size, os.POSIX_FADV_DONTNEED)
        began, got = time.monotonic(), 0
        while got < size and (chunk := os.read(descriptor, min(MB, size - got))):
            got += len(chunk)
        took = time.monotonic() - began
    finally:
        os.close(descriptor)
    if not got:
        raise Unfit(f"{path} is empty; name a file of some MB", NO_SOURCE)
    return round(got / max(took, 1e-9))


def gpu_memory() -> list[dict[str, int]]:
    """Total and used memory of each GPU in MB, from nvidia-smi."""
    program = shutil.which("nvidia-smi")
    if program is None:
        raise Unfit("this node has no nvidia-smi")
    query = ["--query-gpu=index,memory.total,memory.used", "--format=csv,noheader,nounits"]
    answer = subprocess.run([program, *query], capture_output=True, text=True)
    if answer.returncode:
        raise Unfit(f"nvidia-smi failed: {answer.stderr.strip() or answer.stdout.strip()}")
    rows = [[int(field) for field in line.split(",")] for line in answer.stdout.splitlines() if line.strip()]
    return [{"gpu": index, "total_mb": total, "used_mb": used} for index, total, used in rows]
