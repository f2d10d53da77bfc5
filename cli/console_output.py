"""Output for people: messages on standard error, tables on standard output, files written atomically."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from flowlex.instances.input_errors import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.console import Console, Group

    from flowlex.instances.instance_base import Instance

_Read = TypeVar("_Read")


#: Words of a cell that are longer than this may be broken.
LONG_WORD = 24
#: Rows of a long table that are printed.
PREVIEW_ROWS = 20
#: Least seconds between plain progress lines, and before the first.
EVERY_S = 20.0


def printable(text: object) -> str:
    """Return text that any stream can encode and no terminal obeys: file names may contain any bytes but two."""
    said = str(text).encode("utf-8", "backslashreplace").decode()
    kept = "" if isinstance(text, Path) else "\n\t"
    return "".join(
        char if char.isprintable() or char in kept else char.encode("unicode_escape").decode() for char in said
    )


def text_of(value: Any) -> str:
    """A cell of a table, without control characters for the terminal."""
    if value is None or value != value:  # missing or NaN: frames have both
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    return "".join(char if char.isprintable() or char == "\n" else " " for char in printable(value))


def cells(title: str, columns: Mapping[str, Any]) -> dict[str, Any]:
    """Columns and first rows of a table as plain data for `rows_table`."""
    return {
        "title": title,
        "columns": list(columns),
        "rows": [list(map(text_of, row)) for row in islice(zip(*columns.values(), strict=True), PREVIEW_ROWS)],
        "total": len(next(iter(columns.values()), ())),
    }


def complain(message: str) -> None:
    """Print an error for a person on standard error."""
    typer.secho(f"Error: {printable(message)}", err=True, fg="red")


def note(message: str) -> None:
    """Print a remark on standard error."""
    typer.echo(printable(message), err=True)


def noted(read: Callable[[], _Read]) -> _Read:
    """Return what a function reads, and print its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = read()
    for warning in caught:
        note(f"{warning.message}")
    return found


class Progress:
    """Plain progress lines on standard error if it is not a terminal."""

    def __init__(self, verb: str, total: int) -> None:
        self._verb, self._total = verb, total
        self._began = self._said = time.monotonic()

    def update(self, finished: int, bad: int) -> None:
        """Report progress (``bad``: number of failures), unless the last report is recent or this is the end."""
        now = time.monotonic()
        if now - self._said < EVERY_S or finished == self._total:
            return
        self._said = now
        wrong = f", {bad} without answer" if bad else ""
        note(f"{self._verb}: {finished} of {self._total} done after {(now - self._began) / 60:.1f} min{wrong}")


def console() -> Console:
    """Rich console on standard output; wide if it is not a terminal, so that nothing is cut."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else 160)


def facts_table(title: str, facts: Mapping[str, Any]) -> Group:
    """Make a table of two columns: name and value."""
    return rows_table(title, ("", ""), facts.items(), header=False)


def rows_table(
    title: str, columns: Iterable[str], rows: Iterable[Iterable[Any]], *, header: bool = True, total: int | None = None
) -> Group:
    """Make a table of any values; ``total`` is the number of rows if only some are shown."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    names = [printable(column) for column in columns]
    texts = [[text_of(cell) for cell in row] for row in rows]
    shown = _fitting(names, texts, console().width) if header else list(range(len(names)))
    table = Table(show_header=header)
    for number in shown:
        table.add_column(Text(names[number]), overflow="fold")
    for cells in texts:
        table.add_row(*(Text(cells[number]) for number in shown))
    left_out = [name for number, name in enumerate(names) if number not in shown]
    facts = [f"{len(texts)} of {total} rows"] if total is not None and total > len(texts) else []
    facts += [f"left out in a narrow window: {', '.join(left_out)}"] if left_out else []
    table.caption = "; ".join(facts) or None
    return Group(Text(printable(title), style="bold"), table)  # a table's own title would wrap at its width


def _fitting(names: list[str], texts: list[list[str]], width: int) -> list[int]:
    """Return the columns that fit without breaking words; drop uninformative ones first, then the last ones."""
    needs, says = [], []
    for number, name in enumerate(names):
        cells = [row[number] for row in texts]
        longest = max((len(word) for cell in cells for word in cell.split()), default=0)
        needs.append(max(len(name), min(longest, LONG_WORD)) + 3)
        says.append(len(set(cells)) > 1 or (bool(cells) and cells[0] not in ("", "-", "0")))
    kept = list(range(len(names)))
    for number in sorted(kept[1:], key=lambda number: (says[number], -number)):
        if sum(needs[number] for number in kept) < width:
            break
        kept.remove(number)
    return kept


def refuse_existing(force: bool, *paths: str | Path | None) -> None:
    """Refuse, before any work, to overwrite an existing file without ``--force``."""
    from flowlex.instances import file_storage

    for path in paths:
        if path is not None and str(path) not in ("", "-"):
            try:
                file_storage.refuse_existing(path, force=force, remedy="--force")
            except FileExistsError as error:
                raise typer.BadParameter(f"{path} {error.strerror}") from None


def picture_suffix(path: str, option: str, *more: str) -> str:
    """Return the format of a plot from its file name, in lower case; refuse formats unknown and not in ``more``."""
    from flowlex.formulations.plot_style import FORMATS

    suffix, *known = path.rpartition(".")[2].lower(), *FORMATS, *more
    if suffix not in known:
        endings = ", ".join(f".{name}" for name in known[:-1])
        raise typer.BadParameter(f"{path!r} does not end in {endings} or .{known[-1]}", param_hint=option)
    return suffix


def write_picture(path: str, draw: Callable[[], Axes], option: str) -> None:
    """Draw a plot and write it in the format of its file name; ``option`` is the command-line option."""
    from flowlex.formulations.plot_style import picture_bytes, quiet_backend

    suffix = picture_suffix(path, option)
    with quiet_backend():
        write_output(path, picture_bytes(draw(), suffix))


def write_output(path: str, data: bytes) -> None:
    """Write a file atomically, compressed if its name ends in ``.gz``; ``-`` is standard output."""
    if path == "-":
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    from flowlex.instances.file_storage import write_atomically

    try:
        write_atomically(Path(path), data)
    except OSError as error:
        raise OSError(error.errno, f"cannot be written: {error.strerror or error}", path) from error


def write_instance_output(instance: Instance, path: str) -> None:
    """Write an instance file, and summarise on standard error its content and omissions; ``-`` is standard output."""
    from flowlex.instances.files import instance_bytes

    write_output(path, instance_bytes(instance, path))
    facts = instance.summary().items()
    if path != "-":
        sizes = ", ".join(f"{what} {text_of(size)}" for what, size in list(facts)[:4])
        note(f"{path}: {instance.kind}: {sizes}")
    for what, size in facts:
        if what.startswith("left pending, "):  # pods that an importer could not express
            note(f"{counted(int(size), 'pod')} {what}")
