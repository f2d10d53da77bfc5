"""Check the text of model files where HiGHS gives no message: invalid numbers, and the line where it stops.

HiGHS silently reads the coefficient ``abc`` as 0 and ``1,5`` as 1. So numbers are checked here, in the layout
that HiGHS has chosen: free (fields between blanks) or fixed (fields at columns 25 and 50).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from flowlex.instances.instance_base import InstanceError

_NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eEdD][+-]?\d+)?$")
_INFINITY = re.compile(rb"[+-]?inf(inity)?$", re.IGNORECASE)
#: Bounds that come with a number.
_WITH_VALUE = (b"UP", b"LO", b"FX", b"SC", b"LI", b"UI")
#: Sections whose lines may end in a comment, and how many fields come before it.
_FEWEST_FIELDS = {b"COLUMNS": 3, b"RHS": 2, b"RANGES": 2, b"BOUNDS": 2}
#: Most lines that may follow before a statement is complete, and most readings of a refused file.
_LONGEST_STATEMENT, _MOST_READINGS = 10, 200


def check_mps(data: bytes, *, fixed: bool) -> None:
    """Raise `InstanceError` for an invalid number, and for a truncated file."""
    section = b""
    for number, line in enumerate(data.splitlines(), 1):
        words = line.split()
        if not words or line.startswith(b"*"):
            continue
        if not line[:1].isspace():
            section = words[0].upper()
            continue
        for word in _values(section, line, words, fixed):
            if not _NUMBER.match(word) and not (section == b"BOUNDS" and _INFINITY.match(word)):
                text = word.decode("utf-8", "replace")[:40]
                raise InstanceError(f"{text!r} is no finite number", place=f"line {number}")
    if section != b"ENDATA":
        raise InstanceError("the MPS file has no ENDATA line at its end; is it cut off?")


def without_comments(data: bytes) -> bytes:
    """Remove from an MPS file what follows a ``$`` behind the fields of a line; HiGHS reads some of it as a row.

    A file with a ``$`` in the names of its rows is left as it is, and so is a line that would have too few fields.
    """
    if b"$" not in data:
        return data
    lines, section = data.splitlines(), b""
    for place, line in enumerate(lines):
        if line[:1].strip() and not line.startswith(b"*"):
            section = line.split()[0].upper()
        elif section == b"ROWS" and b"$" in line:
            return data
        elif section in _FEWEST_FIELDS:
            plain = re.split(rb"\s\$", line, maxsplit=1)[0]
            lines[place] = plain if len(plain.split()) >= _FEWEST_FIELDS[section] else line
    return b"\n".join([*lines, b""])


def _values(section: bytes, line: bytes, words: list[bytes], fixed: bool) -> Iterator[bytes]:
    """The words of a line that should be numbers."""
    if section in (b"COLUMNS", b"RHS", b"RANGES") and b"'MARKER'" not in words:
        if fixed:
            yield from (field.strip() for field in (line[24:36], line[49:61]) if field.strip())
        else:
            yield from (words[1:] if len(words) % 2 else words)[1::2]
    if section == b"BOUNDS" and words[0].upper() in _WITH_VALUE:
        yield line[24:36].strip() if fixed else words[-1]


def failing_line(data: bytes, readable: Callable[[bytes], bool]) -> str:
    """Name the first line of an LP file with which ``readable`` no longer accepts it."""
    lines = data.splitlines()
    readings = 0

    def good(count: int) -> bool:
        nonlocal readings
        readings += 1
        return readable(b"\n".join([*lines[:count], b"End", b""]))

    low, high = 0, len(lines)
    while high - low > 1 and readings < _MOST_READINGS:
        middle = (low + high) // 2
        later = range(middle, min(middle + _LONGEST_STATEMENT, high))
        complete = next((count for count in later if good(count)), None)
        low, high = (low, middle) if complete is None else (complete, high)
    return f"line {low + 1}" if high - low == 1 and high > 1 else ""
