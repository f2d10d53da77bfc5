"""What a worker process tells its parent, line by line."""

from __future__ import annotations

import json
from typing import Any, BinaryIO

__all__ = ["Channel"]


class Channel:
    """Lines of JSON to the parent."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def send(self, event: str, **content: Any) -> None:
        """Send one line."""
        self._stream.write(json.dumps({"event": event, **content}, allow_nan=False).encode() + b"\n")
        self._stream.flush()
