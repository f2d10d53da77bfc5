"""Read a saved state back in a separate process: ``python -m flowlex.service.verify_snapshot FOLDER STATE``.

It exits with 0 if the state loads and saving it again gives the same bytes.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path


def start_read_back(folder: Path, state: Path) -> subprocess.Popen[bytes]:
    """Start the process."""
    command = [sys.executable, "-m", "flowlex.service.verify_snapshot", str(folder), str(state)]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def is_whole(folder: Path, state: Path) -> bool:
    """Return whether a state of a service's folder loads and gives the same bytes when saved again."""
    from flowlex.service.service_folder import loader_of

    with tempfile.TemporaryDirectory() as place:
        again = Path(place, "state")
        loader_of(folder)(state).save(again)
        return again.read_bytes() == state.read_bytes()


if __name__ == "__main__":
    sys.exit(0 if is_whole(Path(sys.argv[1]), Path(sys.argv[2])) else 1)
