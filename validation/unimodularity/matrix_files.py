"""Matrices in files of SciPy, Matrix Market and CMR.

Reading is total: any bytes give a matrix, nothing, or an `InstanceError` that names place and reason.
"""

from __future__ import annotations

import io
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp

from flowlex.instances.file_storage import read_bytes
from flowlex.instances.instance_base import InstanceError
from flowlex.validation.unimodularity.named_matrix import canonical
from flowlex.validation.unimodularity.proof_types import VerdictError

Proof = TypeVar("Proof")

#: What `flowlex.check` reads, for messages and help texts.
FORMATS = ".mps, .lp (also .gz), .npz, .mtx, CMR dense or sparse text, DIMACS networks, flowlex instances"

#: Entries of a file's matrix beyond this are refused before memory is asked for.
MOST_LINES = 2**31 - 1


def parse_matrix(data: bytes, name: str) -> sp.csc_array | None:
    """The matrix in a file of SciPy, Matrix Market or CMR; None if the content is of no such kind.

    Raises `InstanceError`: the file begins like one of these and is not; names the place and the reason.
    """
    if name.endswith(".npz"):
        return canonical(_npz(data))
    if name.endswith(".mtx") or data.startswith(b"%%MatrixMarket"):
        return canonical(_matrix_market(data))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InstanceError(f"not a matrix in any known format (it reads {FORMATS})") from error
    head = text.lstrip()[:1]
    return canonical(_cmr_text(text)) if head and (head.isdigit() or head in "+-") else None


def read_proof(path: Path, parse: Callable[[str], Proof], what: str) -> Proof:
    """Read a proof that a command stored; ``what`` was expected is named in errors.

    Raises `InstanceError`: the file cannot be read, or ``parse`` refuses it.
    """
    try:
        return parse(read_bytes(path).decode())
    except UnicodeDecodeError as error:
        raise InstanceError(f"not UTF-8 text, so no {what}", path=path) from error
    except VerdictError as error:
        raise InstanceError(str(error), path=path) from error


#: What SciPy raises for files that it did not write.
_UNREADABLE = (
    *(ValueError, LookupError, OSError, EOFError, TypeError, AttributeError, RuntimeError, MemoryError),
    *(OverflowError, StopIteration, zipfile.BadZipFile),
)


def _npz(data: bytes) -> Any:
    try:
        matrix: Any = sp.load_npz(io.BytesIO(data))
        if matrix.format in ("csc", "csr"):
            matrix.check_format(full_check=True)
        elif matrix.format == "coo":
            _inside(matrix)
    except _UNREADABLE as error:
        raise InstanceError(f"not a sparse matrix saved by SciPy ({_first_line(error)})") from error
    return matrix


def _inside(matrix: Any) -> None:
    for coordinates, side in zip(matrix.coords, matrix.shape, strict=True):
        if coordinates.size and not (int(coordinates.min()) >= 0 and int(coordinates.max()) < side):
            raise ValueError("an index lies outside the matrix")


def _matrix_market(data: bytes) -> Any:
    from scipy.io import mmread

    try:
        with warnings.catch_warnings():
            # Matrix or array: either is read. SciPy 1.18 warns of another default for what older ones cannot be told.
            warnings.simplefilter("ignore", DeprecationWarning)
            return mmread(io.BytesIO(data))
    except _UNREADABLE as error:
        raise InstanceError(f"not a Matrix Market file ({_first_line(error) or 'it ends too early'})") from error


def _cmr_text(text: str) -> sp.csc_array:
    """CMR's dense format (``m n``, then m rows) or sparse format (``m n k``, then k lines ``row column value``)."""
    lines = ((number, line.split()) for number, line in enumerate(text.splitlines(), 1) if line.strip())
    number, head = next(lines)
    sizes = [_integer(word, number) for word in head]
    if len(sizes) not in (2, 3):
        raise InstanceError(
            f"the first line has {len(sizes)} numbers; a dense matrix starts with 'rows columns', "
            "a sparse one with 'rows columns nonzeros'",
            place=f"line {number}",
        )
    if min(sizes) < 0 or max(sizes) > MOST_LINES:
        raise InstanceError(f"sizes {' x '.join(map(str, sizes[:2]))} are out of range", place=f"line {number}")
    entries = (_dense_entries if len(sizes) == 2 else _sparse_entries)(sizes, lines)
    places = np.array(list(entries), dtype=np.int64).reshape(-1, 2).T
    return sp.csc_array((np.array(list(entries.values()), dtype=np.int64), tuple(places)), shape=(sizes[0], sizes[1]))


def _dense_entries(sizes: list[int], lines: Iterator[tuple[int, list[str]]]) -> dict[tuple[int, int], int]:
    rows, columns = sizes
    entries: dict[tuple[int, int], int] = {}
    row = 0
    for number, words in lines:
        if row == rows:
            raise InstanceError(f"more than the {rows} rows announced", place=f"line {number}")
        if len(words) != columns:
            raise InstanceError(f"row {row} has {len(words)} entries, {columns} were announced", place=f"line {number}")
        for column, word in enumerate(words):
            if word != "0":
                entries[row, column] = _integer(word, number)
        row += 1
    if row < rows:
        raise InstanceError(f"the file ends after {row} of {rows} rows; is it cut off?")
    return entries


def _sparse_entries(sizes: list[int], lines: Iterator[tuple[int, list[str]]]) -> dict[tuple[int, int], int]:
    rows, columns, nonzeros = sizes
    entries: dict[tuple[int, int], int] = {}
    given: dict[tuple[int, int], int] = {}
    for number, words in lines:
        if len(words) != 3:
            raise InstanceError(f"expected 'row column value', got {len(words)} words", place=f"line {number}")
        row, column, value = (_integer(word, number) for word in words)
        if not (1 <= row <= rows and 1 <= column <= columns):
            reason = f"entry ({row}, {column}) lies outside {rows} x {columns} (indices start at 1)"
            raise InstanceError(reason, place=f"line {number}")
        if (row, column) in given:
            reason = f"entry ({row}, {column}) is given twice, first in line {given[row, column]}"
            raise InstanceError(reason, place=f"line {number}")
        given[row, column], entries[row - 1, column - 1] = number, value
    if len(entries) != nonzeros:
        raise InstanceError(f"{len(entries)} entries found, {nonzeros} announced; is the file cut off?")
    return entries


def _integer(word: str, number: int) -> int:
    try:
        value = int(word)
    except ValueError as error:
        raise InstanceError(f"{word[:40]!r} is no integer", place=f"line {number}") from error
    if abs(value) >= 2**53:
        raise InstanceError(f"{word[:40]} is out of range (limit 2**53)", place=f"line {number}")
    return value


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0][:200]
