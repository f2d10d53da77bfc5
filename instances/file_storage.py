"""File storage: paths and URLs, reading at once or as a stream, atomic writing, and values as JSON."""

from __future__ import annotations

import contextlib
import errno
import gzip
import hashlib
import io
import json
import math
import os
import re
import sys
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

from flowlex.instances.input_errors import InstanceError

#: Most bytes that a gzip file may decompress to: 10 MB of gzip can hold 10 GB.
MAX_UNPACKED = 1 << 30

#: Bytes per read: a stream allocates the requested amount before it reads anything.
_CHUNK = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"


def read_bytes(path: str | Path, *, most: int = MAX_UNPACKED) -> bytes:
    """Return the file's bytes; content that is gzip is decompressed, to at most ``most`` bytes."""
    path = location(path)
    data = read_packed(path, most)
    if not data:
        raise InstanceError("the file is empty", path=path)
    if data[:2] != _GZIP_MAGIC:
        if path.suffix == ".gz":
            raise InstanceError("the name ends in .gz but the content is not gzip; rename or recompress it", path=path)
        return data
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            data = read_most(stream, most + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InstanceError(f"damaged or truncated gzip data ({error})", path=path) from error
    if len(data) > most:
        raise InstanceError(
            f"unfolds to more than {most >> 20} MB; unpack it first if it is what you expect", path=path
        )
    if not data:
        raise InstanceError("the gzip file holds nothing", path=path)
    return data


def read_text(path: str | Path) -> str:
    """`read_bytes` as UTF-8 text."""
    try:
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InstanceError(f"not UTF-8 text (byte {error.start}); save it as UTF-8", path=path) from error


def read_packed(path: Path, most: int = MAX_UNPACKED) -> bytes:
    """Return the stored bytes: of a file up to this machine's memory, of a pipe or device at most ``most``."""
    try:
        if path.is_file():
            size, memory = path.stat().st_size, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
            if size > memory:
                fix = "split it, or use a larger machine"
                raise InstanceError(f"has {size >> 20} MB, this machine only {memory >> 20} MB; {fix}", path=path)
            with path.open("rb") as stream:
                return stream.read()
        if path.is_fifo():
            data = _read_pipe(path, most + 1)
        else:
            with path.open("rb") as stream:
                data = read_most(stream, most + 1)
    except (InstanceError, MemoryError):
        raise
    except OSError as error:
        raise InstanceError(f"cannot be read: {error.strerror or error}", path=path) from error
    except Exception as error:  # a remote store raises exceptions of its client library: no access, no such host
        raise InstanceError(f"cannot be read: {type(error).__name__}: {error}", path=path) from error
    if len(data) > most:
        raise InstanceError(f"gives more than {most >> 20} MB; save what it gives in a file first", path=path)
    return data


def _read_pipe(path: Path, most: int) -> bytes:
    """Read a pipe to its end; refuse a pipe without a writer, which would never end."""
    descriptor, first = os.open(path, os.O_RDONLY | os.O_NONBLOCK), None
    with os.fdopen(descriptor, "rb", buffering=0) as stream:
        with contextlib.suppress(BlockingIOError):  # a writer has the pipe open
            first = os.read(descriptor, min(most, _CHUNK))
        if first == b"":
            raise OSError(0, "nobody writes to this pipe; start the writer first, or give '-' and standard input")
        os.set_blocking(descriptor, True)
        return (first or b"") + read_most(stream, most - len(first or b""))


@contextlib.contextmanager
def opened(path: str | Path) -> Iterator[BinaryIO]:
    """The bytes of a file as a stream, decompressed if they are gzip (by content); ``-`` is standard input."""
    try:
        with contextlib.ExitStack() as stack:
            plain = sys.stdin.buffer if str(path) == "-" else stack.enter_context(location(path).open("rb"))
            stream = plain if hasattr(plain, "peek") else io.BufferedReader(cast("io.RawIOBase", plain))
            packed = stream.peek(2)[:2] == _GZIP_MAGIC
            yield cast("BinaryIO", gzip.GzipFile(fileobj=stream) if packed else stream)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InstanceError(f"damaged or truncated gzip data ({error})", path=path) from error
    except OSError as error:
        raise InstanceError(f"cannot be read: {error.strerror or error}", path=path) from error


def read_most(stream: BinaryIO | io.FileIO | gzip.GzipFile, most: int) -> bytes:
    """Read at most ``most`` bytes of a stream; uses an eighth more memory than it returns."""
    found = io.BytesIO()
    while most > 0 and (part := stream.read(min(most, _CHUNK))):
        most -= found.write(part)
    return found.getvalue()


def read_head(path: Path, most: int = 65_536) -> bytes:
    """Return the first bytes of a regular file, decompressed if they are gzip; empty if it cannot be read."""
    try:
        if not path.is_file():
            return b""
        with path.open("rb") as stream:
            packed = stream.read(2) == _GZIP_MAGIC
        with gzip.open(path, "rb") if packed else path.open("rb") as stream:
            return bytes(stream.read(most))
    except (OSError, EOFError, zlib.error):
        return b""


def refuse_existing(path: str | Path, *, force: bool, remedy: str = "force=True") -> None:
    """Raise `FileExistsError`, naming the remedy, if the file exists and ``force`` is not set."""
    if not force and Path(path).is_file():
        raise FileExistsError(errno.EEXIST, f"is there already; use {remedy} to overwrite it", str(path))


def write_atomically(path: str | Path, data: bytes, *, as_is: bool = False) -> None:
    """Write a whole file or nothing: a temporary file in the same folder, flushed, then renamed.

    A name that ends in ``.gz`` is compressed, unless ``as_is``; the same data give the same bytes.
    """
    path = Path(path)
    if path.suffix == ".gz" and not as_is:
        data = gzip.compress(data, 6, mtime=0)  # level 9 takes ten times as long for a twentieth less
    folder, name = path.parent, f".{path.name}."
    try:
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=name, suffix=".part")
    except FileNotFoundError:
        folder.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=name, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o666 & ~_umask())  # noqa: PTH101  (a batch writes thousands of small files)
        os.replace(temporary, path)  # noqa: PTH105
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def json_value(value: Any) -> Any:
    """Convert a value to types of strict JSON; numbers that are not finite become null."""
    if value is None or type(value) in (str, int, bool):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): json_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [json_value(item) for item in value]
    if hasattr(value, "tolist"):  # arrays and scalars of NumPy
        return json_value(value.tolist())
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return str(value)


def json_text(document: Mapping[str, Any]) -> str:
    """A document as JSON: a line for each field, and for each entry of a field; deeper parts are not broken.

    Python's own indentation of all levels takes five times as long.

    Examples
    --------
    >>> print(json_text({"kind": "a", "stages": {"first": 1, "second": [2, 3]}}), end="")
    {
     "kind": "a",
     "stages": {
      "first": 1,
      "second": [2, 3]
     }
    }
    """
    try:  # most documents are plain already, and the encoder is compiled
        return _written(document)
    except (TypeError, ValueError):
        return _written(json_value(document))


def _written(document: Mapping[str, Any]) -> str:
    fields, encode = [], json.JSONEncoder(allow_nan=False, default=json_value).encode

    def write(value: Any) -> str:
        # An encoder for each number takes ten times as long.
        return repr(value) if type(value) is int else encode(value)

    for name, value in document.items():
        if hasattr(value, "tolist"):
            value = value.tolist()
        if isinstance(value, dict) and value:
            text = "{\n  " + ",\n  ".join(f"{write(str(key))}: {write(entry)}" for key, entry in value.items()) + "\n }"
        elif isinstance(value, list | tuple) and value:
            text = "[\n  " + ",\n  ".join(map(write, value)) + "\n ]"
        else:
            text = write(value)
        fields.append(f"{write(name)}: {text}")
    return "{\n " + ",\n ".join(fields) + "\n}\n"


_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
#: Names that file stores use for the version or the time of change of a file.
_STATE = ("ETag", "etag", "LastModified", "Last-Modified", "last_modified", "mtime", "modified", "updated", "created")


def is_url(place: object) -> bool:
    """Return whether a place is a URL rather than a local path."""
    return _URL.match(str(place)) is not None


def location(place: str | Path) -> Path:
    """Return a place as a path: a local one, or for a URL a `UPath`, which reads, lists and joins the same way.

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
    """Return the file behind all symbolic links; a URL or a circular link is returned as it is.

    So is a link into ``/proc``, because its target has another name in every process.
    """
    if is_url(place):
        return place
    real = Path(os.path.realpath(place))
    return place.absolute() if real.is_relative_to("/proc") else real


def seen(place: Path) -> tuple[int, int]:
    """Return the size of a file, and a number that changes when the file changes."""
    if not is_url(place):
        found = place.stat()
        return found.st_size, found.st_mtime_ns
    about: dict[str, Any] = cast("Any", place).fs.info(cast("Any", place).path)
    state = "".join(f"{name}={about[name]};" for name in _STATE if about.get(name) is not None)
    return int(about.get("size") or -1), int(hashlib.sha256(state.encode()).hexdigest()[:12], 16) if state else 0
