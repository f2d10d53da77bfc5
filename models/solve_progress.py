"""A line on a terminal while a problem is solved: objective, best value, bound and gap."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TextIO

#: Seconds before anything is shown.
_PATIENCE_S = 2.0


class ProgressLine:
    """Rewrites one line of a stream; shows nothing in the first two seconds, and nothing where it is no terminal.

    Parameters
    ----------
    names, signs, offsets
        Of the objectives in order: name, -1 if it is maximised, constant. Values come as minimisations without it.
    stream
        Standard error if not given.
    """

    def __init__(
        self, names: Sequence[str], signs: Sequence[int], offsets: Sequence[float], stream: TextIO | None = None
    ) -> None:
        self.names, self.signs, self.offsets = names, signs, offsets
        self.stream = sys.stderr if stream is None else stream
        self.began, self._shown = time.perf_counter(), 0

    @property
    def visible(self) -> bool:
        """Whether the stream is a terminal."""
        isatty = getattr(self.stream, "isatty", None)
        return bool(isatty is not None and isatty())

    def __call__(self, stage: int, value: float | None, bound: float | None) -> None:
        """Show where the solve is."""
        seconds = time.perf_counter() - self.began
        if seconds < _PATIENCE_S or not self.visible:
            return
        words = [f"{self.names[stage]}: "] if stage < len(self.names) else []
        best, limit = (self._own(stage, each) for each in (value, bound))
        words.append("no answer yet" if best is None else f"best {best:.8g}")
        if limit is not None:
            words.append(f", bound {limit:.8g}")
        if best is not None and limit is not None:
            words.append(f", gap {100 * abs(best - limit) / max(1.0, abs(best)):.3g} %")
        self._write("".join(words) + f"  {seconds:.0f} s; Ctrl-C ends with the best answer")

    def _own(self, stage: int, value: float | None) -> float | None:
        if value is None or stage >= len(self.names):
            return value
        return self.signs[stage] * value + self.offsets[stage]

    def _write(self, text: str) -> None:
        self.stream.write("\r" + text.ljust(self._shown))
        self.stream.flush()
        self._shown = len(text)

    def end(self) -> None:
        """Remove the line."""
        if self._shown:
            self._write("")
            self.stream.write("\r")
            self.stream.flush()
            self._shown = 0
