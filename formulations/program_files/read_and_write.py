"""Read and write model files by the ending of their names.

The files are parsed here, not by HiGHS: its reader drops or misreads what it does not know without a word (a constant
in a row, a repeated variable in the objective, the word MAXIMISE, unknown sections, a bound set named like its
column), and to find all of that one has to parse the file anyway.
"""

from __future__ import annotations

import gzip
import os
import tempfile
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeAlias, cast

from flowlex.formulations.program_files.lp_format import lp_lines, parse_lp
from flowlex.formulations.program_files.mps_format import mps_lines, parse_mps
from flowlex.formulations.program_files.named_program import SEMI, NamedProgram, ProgramFileError, switched

Format: TypeAlias = Literal["mps", "lp"]
#: Most bytes that a gzip file may unfold to.
_MOST_UNPACKED = 1 << 30


def program_format(path: str | Path) -> Format:
    """The format of a model file, by the ending of its name.

    Raises `ProgramFileError`: it ends in neither ``.mps`` nor ``.lp`` (nor those with ``.gz``).
    """
    kind = Path(path).name.lower().removesuffix(".gz").rpartition(".")[2]
    if kind not in ("mps", "lp"):
        raise ProgramFileError("expected a name that ends in .mps, .lp, .mps.gz or .lp.gz", path=path)
    return cast("Format", kind)


def parse_program(data: bytes, kind: Format, *, beyond: bool = False) -> NamedProgram:
    """Read the text of a model file.

    Parameters
    ----------
    data
        The file's content, unpacked.
    kind
        ``mps`` (fixed or free) or ``lp`` (the format of CPLEX).
    beyond
        Also read files with a quadratic objective, as far as they are linear; ``NamedProgram.beyond`` then says what
        is missing. Semi-continuous columns stay as they are, instead of getting a binary one each.

    Raises
    ------
    ProgramFileError
        The text is no such file, is read differently by different solvers, or states more than a linear or integer
        program; names line, reason and remedy.
    """
    if b"\0" in data:
        raise ProgramFileError("not a text file (it holds zero bytes)")
    data = data.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n")
    if not data.strip():
        raise ProgramFileError("the file is empty")
    try:
        data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ProgramFileError("not UTF-8 text; save it as UTF-8", place=f"line {line}") from error
    program = (parse_mps if kind == "mps" else parse_lp)(data)
    if program.beyond and not beyond:
        raise ProgramFileError(f"{program.beyond}; only linear and integer programs are read")
    if program.semi:
        program = replace(program, beyond=program.beyond or SEMI) if beyond else switched(program)
    return program


def read_program(path: str | Path, *, beyond: bool = False) -> NamedProgram:
    r"""Read a linear or integer program from an ``.mps`` or ``.lp`` file, also packed (``.gz``).

    Parameters
    ----------
    path
        The file.
    beyond
        See `parse_program`.

    Raises
    ------
    ProgramFileError
        See `parse_program`; names the file.
    OSError
        The file cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> path = Path(tempfile.mkdtemp(), "small.lp")
    >>> _ = path.write_text("Maximise\n gain: 3 x + 2 x\nSubject To\n c: x + 3 <= 5\nEnd\n")
    >>> program = read_program(path)
    >>> program.arrays.cost, program.arrays.row_upper, program.row_names
    (array([5.]), array([2.]), ['c'])
    """
    try:
        kind = program_format(path)
        return parse_program(_unpacked(Path(path).read_bytes()), kind, beyond=beyond)
    except ProgramFileError as error:
        raise error.at(path) from error.__cause__


def _unpacked(data: bytes) -> bytes:
    """The content of a file that may be packed, whatever its name says."""
    if data[:2] != b"\x1f\x8b":
        return data
    try:
        unpacker = zlib.decompressobj(wbits=31)
        found = unpacker.decompress(data, _MOST_UNPACKED)
    except zlib.error as error:
        raise ProgramFileError(f"damaged or truncated gzip data ({error})") from error
    if unpacker.unconsumed_tail:
        raise ProgramFileError(f"unfolds to more than {_MOST_UNPACKED >> 20} MB; unpack it first")
    if not unpacker.eof:
        raise ProgramFileError("damaged or truncated gzip data (it ends too early)")
    return found


def program_bytes(program: NamedProgram, kind: Format) -> bytes:
    """The text of a model file.

    Sense, constant, integrality, infinite and fixed bounds, rows with two sides and names are kept: HiGHS reads a
    program with the same optimum, and `parse_program` the same names. Names that the format cannot hold (blanks,
    brackets in LP files, over 200 characters) are written as similar ones, and as they are in comment lines.

    Raises
    ------
    ProgramFileError
        The program has numbers that no file states, or the format cannot state it.
    """
    if program.beyond:
        raise ProgramFileError(f"{program.beyond}; only linear and integer programs are written")
    lines = (mps_lines if kind == "mps" else lp_lines)(program)
    return ("\n".join(lines) + "\n").encode()


def write_program(program: NamedProgram, path: str | Path) -> None:
    """Write a program as an ``.mps`` or ``.lp`` file by the name's ending, packed if it ends in ``.gz``.

    The file is written whole or not at all; one that is there is replaced.

    Parameters
    ----------
    program
        What to write; see `program_bytes`.
    path
        The file.

    Raises
    ------
    ProgramFileError
        See `program_bytes` and `program_format`.
    """
    try:
        data = program_bytes(program, program_format(path))
    except ProgramFileError as error:
        raise error.at(path) from error.__cause__
    target = Path(path)
    if target.name.lower().endswith(".gz"):
        data = gzip.compress(data, 6, mtime=0)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        umask = os.umask(0)
        os.umask(umask)
        Path(temporary).chmod(0o666 & ~umask)
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
