"""Bytes of files: read whole, plain or gzip, to a bound; written whole or not at all; values as JSON."""

from __future__ import annotations

import contextlib
import gzip
import io
import math
import os
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from flowlex.instances.errors import InstanceError
from flowlex.instances.locations import location

__all__ = ["MAX_UNPACKED", "json_value", "opened", "read_bytes", "read_head", "read_most", "write_atomically"]

#: What a gzip file may unfold to, in bytes: ten megabytes of it can hold ten thousand.
MAX_UNPACKED = 1 << 30

#: Bytes read at a time: a stream asked for more allocates that much before it has read anything.
_CHUNK = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"


def read_bytes(path: str | Path, *, most: int = MAX_UNPACKED) -> bytes:
    """Return the file's bytes, decompressed if they are gzip (by content), to at most ``most``."""
    path = location(path)
    try:
        with path.open("rb") as stream:  # a device or pipe need not end
            data = stream.read() if path.is_file() else read_most(stream, most + 1)
    except OSError as error:
        raise InstanceError(f"cannot be read: {error.strerror or error}", path=path) from error
    except Exception as error:  # a store raises what its client library raises: no access, no such host
        raise InstanceError(f"cannot be read: {type(error).__name__}: {error}", path=path) from error
    if not data:
        raise InstanceError("the file is empty", path=path)
    if len(data) > most and not path.is_file():
        raise InstanceError(f"gives more than {most >> 20} MB; save what it gives in a file first", path=path)
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


@contextlib.contextmanager
def opened(path: str | Path) -> Iterator[BinaryIO]:
    """The bytes of a file as a stream, decompressed if they are gzip (by content); ``-`` is standard input.

    Raises
    ------
    InstanceError
        It cannot be read, or its gzip data are damaged.
    """
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


def read_most(stream: BinaryIO | gzip.GzipFile, most: int) -> bytes:
    """The stream's bytes, to at most ``most``; takes no more memory than twice what there is."""
    parts = []
    while most > 0 and (part := stream.read(min(most, _CHUNK))):
        parts.append(part)
        most -= len(part)
    return b"".join(parts)


def read_head(path: Path, most: int = 65_536) -> bytes:
    """The first bytes of a regular file, decompressed if they are gzip; none where they cannot be read."""
    try:
        if not path.is_file():
            return b""
        with path.open("rb") as stream:
            packed = stream.read(2) == _GZIP_MAGIC
        with gzip.open(path, "rb") if packed else path.open("rb") as stream:
            return bytes(stream.read(most))
    except (OSError, EOFError, zlib.error):
        return b""


def write_atomically(path: str | Path, data: bytes, *, as_is: bool = False) -> None:
    """Write a whole file or nothing: a temporary file in the same folder, flushed, then renamed.

    A name that ends in ``.gz`` is compressed, unless ``as_is``; the same data give the same bytes.
    """
    path = Path(path)
    if path.suffix == ".gz" and not as_is:
        data = gzip.compress(data, mtime=0)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def json_value(value: Any) -> Any:
    """The same value as strict JSON can hold it; what is not finite becomes null."""
    if isinstance(value, dict):
        return {str(key): json_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [json_value(item) for item in value]
    if hasattr(value, "tolist"):  # arrays and scalars of NumPy
        return json_value(value.tolist())
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return str(value)
