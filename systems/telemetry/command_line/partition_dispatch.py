"""Dispatching a partition: one program per node, all at once, each timed.

The program is any command, run here without a shell; ``{node}`` and ``{items}`` in its arguments are replaced, so that
``ssh {node} infer`` reaches the node. Its share is given on its standard input, as JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO

#: Most bytes that a program may write to its log before it is ended.
MAX_LOG_BYTES = 100_000_000


@dataclass(frozen=True)
class Finished:
    """End of a node's program: exit code 0 is success, -9 means ended at the time limit or by a signal."""

    node: str
    items: int
    seconds: float
    exit_code: int
    problem: str = ""


def dispatch(
    shares: Mapping[str, Mapping[str, int]], command: Sequence[str], *, timeout_s: float, logs: Path
) -> list[Finished]:
    """Run the command once per node that has items (by block), in parallel; return the ends in order of nodes.

    Output goes to ``NODE.log`` in ``logs``; a program that takes longer than ``timeout_s`` is ended with its process
    group.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     done = dispatch({"a": {"x": 3}, "b": {}}, ["true"], timeout_s=60.0, logs=Path(folder))
    >>> [(run.node, run.items, run.exit_code) for run in done]
    [('a', 3, 0)]
    """
    logs.mkdir(parents=True, exist_ok=True)
    busy = {node: share for node, share in sorted(shares.items()) if sum(share.values())}
    with ThreadPoolExecutor(max(1, len(busy))) as pool:
        runs = [pool.submit(_run, node, share, command, timeout_s, logs) for node, share in busy.items()]
        return [run.result() for run in runs]


def _run(node: str, share: Mapping[str, int], command: Sequence[str], timeout_s: float, logs: Path) -> Finished:
    items = sum(share.values())
    filled = [part.replace("{node}", node).replace("{items}", str(items)) for part in command]
    began = time.monotonic()
    with tempfile.TemporaryFile() as given, (logs / f"{node}.log").open("wb") as log:
        given.write(json.dumps({"node": node, "items": items, "blocks": dict(share)}).encode())
        given.seek(0)
        environment = {**os.environ, "FLOWLEX_NODE": node, "FLOWLEX_ITEMS": str(items)}
        try:
            process = subprocess.Popen(
                filled, stdin=given, stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True
            )
        except OSError as error:
            return Finished(node, items, 0.0, 127, f"{filled[0]}: {error.strerror or error}")
        problem = _watch(process, log, began + timeout_s)
        seconds = time.monotonic() - began
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
    return Finished(node, items, seconds, code, problem or (f"exit code {code}" if code else ""))


def _watch(process: subprocess.Popen[bytes], log: IO[bytes], deadline: float) -> str:
    """Wait for the end of a program; return why to end it, or an empty text."""
    while time.monotonic() < deadline:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, min(1.0, deadline - time.monotonic())))
            return ""
        if os.fstat(log.fileno()).st_size > MAX_LOG_BYTES:
            return f"it printed more than {MAX_LOG_BYTES} bytes"
    return "it ran too long"
