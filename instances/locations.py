"""Where a file lies: a path of this machine, or a URL of any kind that fsspec knows (s3, gs, https, ...)."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Any, cast

from flowlex.instances.errors import InstanceError

__all__ = ["is_url", "location", "resolved", "seen"]

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
#: What stores say of the state of a file, whatever they call it.
_STATE = ("ETag", "etag", "LastModified", "Last-Modified", "last_modified", "mtime", "modified", "updated", "created")


def is_url(place: object) -> bool:
    """Whether a place is a URL and no path of this machine."""
    return _URL.match(str(place)) is not None


def location(place: str | Path) -> Path:
    """A place as a path: one of this machine, or one that reads, lists and joins alike behind a URL.

    Raises
    ------
    InstanceError
        The packages that this kind of URL needs are not installed, or no store is of this kind.

    Examples
    --------
    >>> location("instances") / "a.json"
    PosixPath('instances/a.json')
    """
    if not is_url(place):
        return Path(place)
    try:
        from upath import UPath

        found = UPath(str(place))
        _ = found.fs
    except ImportError as error:
        remedy = "pip install 'flowlex[distributed]' and what the message names"
        raise InstanceError(f"URLs need more packages ({error}); {remedy}", path=str(place)) from error
    except (ValueError, OSError) as error:
        raise InstanceError(f"no such store of files ({error}); check the URL", path=str(place)) from error
    return cast("Path", found)


def resolved(place: Path) -> Path:
    """The file behind all links, which stands for all its names; a URL, or a link that leads in a circle, is itself.

    A link into ``/proc`` is itself too: what it leads to has another name in every process.
    """
    if is_url(place):
        return place
    real = Path(os.path.realpath(place))
    return place.absolute() if real.is_relative_to("/proc") else real


def seen(place: Path) -> tuple[int, int]:
    """Size and state (a number that differs when the file changed) of a file.

    Raises
    ------
    OSError
        It cannot be looked at.
    """
    if not is_url(place):
        found = place.stat()
        return found.st_size, found.st_mtime_ns
    about: dict[str, Any] = cast("Any", place).fs.info(cast("Any", place).path)
    state = "".join(f"{name}={about[name]};" for name in _STATE if about.get(name) is not None)
    return int(about.get("size") or -1), int(hashlib.sha256(state.encode()).hexdigest()[:12], 16) if state else 0
