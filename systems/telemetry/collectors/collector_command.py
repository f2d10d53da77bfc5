"""Run one function as a command: arguments in, JSON out; errors are one line on standard error and an exit code."""

from __future__ import annotations

import json
import sys
from importlib import import_module

#: Module of each shipped command; the function has the command's name.
COMMANDS: dict[str, str] = {
    name: module
    for module, names in {
        "data_locations": "hdfs_blocks items run_history scrape",
        "derived_data": "access_cost cpu_performance normalised_performance processing_speed",
        "machine_metrics": "cpu_cores cpu_free disk_read_speed disk_throughput gpu_memory memory_free "
        "network_bandwidth network_throughput",
    }.items()
    for name in names.split()
}
#: Exit codes of sysexits.h: no input yet, and no such device on this node.
NO_INPUT, NO_SOURCE = 66, 69


class Unfit(Exception):
    """The command cannot answer on this node, or not yet."""

    def __init__(self, message: str, code: int = NO_SOURCE) -> None:
        self.code = code
        super().__init__(message)


def main() -> None:
    """Print the value of the command that the first argument names, for the other arguments."""
    _, name, *arguments = sys.argv
    function = getattr(import_module(f"flowlex.systems.telemetry.collectors.{COMMANDS[name]}"), name)
    try:
        value = function(*arguments)
    except Unfit as refusal:
        sys.stderr.write(f"{refusal}\n")
        sys.exit(refusal.code)
    except (ValueError, TypeError, KeyError, OSError) as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        sys.exit(64)
    sys.stdout.write(json.dumps(value, allow_nan=False) + "\n")


def seconds_of(text: str) -> float:
    """Read a duration that a run may take."""
    value = float(text)
    if not 0 < value <= 3_600:
        raise ValueError(f"{text} is no duration in seconds; give one above 0, at most 3600")
    return value
