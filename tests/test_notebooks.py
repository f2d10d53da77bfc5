"""Notebooks: they import from `flowlex` only, and give again the outputs that they store."""

from __future__ import annotations

import ast
import re
from typing import Any

import pytest

from tests.documents import ROOT

nbformat = pytest.importorskip("nbformat", reason="the extra `notebook` is not installed")
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
#: Packages that a notebook may import, beside `flowlex` and `flowlex.testing`.
OTHERS = {"matplotlib", "numpy", "pandas", "pulp", "IPython"}
#: What differs between two equal outputs: addresses of objects and names that pandas and matplotlib draw.
CHANGING = re.compile(r"0x[0-9a-f]+|id=\"[^\"]*\"|Text\(.*?\)")


def code_cells(path: Any) -> list[Any]:
    return [cell for cell in nbformat.read(path, 4).cells if cell.cell_type == "code"]


def outputs(cell: Any) -> list[tuple[str, str]]:
    """Kind and text of each output; of pictures the kind alone, since fonts differ between machines."""
    found: list[tuple[str, str]] = []
    for each in cell.outputs:
        for kind, text in sorted(each.get("data", {each.get("name", ""): each.get("text", "")}).items()):
            shown = "" if kind.startswith("image/") else CHANGING.sub("", "".join(text))
            if kind == "stdout" and found and found[-1][0] == kind:  # printed lines come in pieces of any size
                found[-1] = kind, found[-1][1] + shown
            else:
                found.append((kind, shown))
    return [(kind, text) for kind, text in found if kind != "stderr"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_a_notebook_imports_from_flowlex_and_shows_what_it_gave(path):
    cells = code_cells(path)
    lines = [line for cell in cells for line in cell.source.splitlines() if not line.startswith("%")]
    for node in ast.walk(ast.parse("\n".join(lines))):
        names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
        names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            assert name in ("flowlex", "flowlex.testing") or name.partition(".")[0] in OTHERS, name
    assert any(outputs(cell) for cell in cells), "outputs are not stored: run the notebook and save it"


@pytest.mark.rare
@pytest.mark.timeout(900)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_a_notebook_gives_the_outputs_that_it_stores(path):
    client = pytest.importorskip("nbclient", reason="the extra `notebook` is not installed")
    made = nbformat.read(path, 4)
    client.NotebookClient(made, timeout=300, resources={"metadata": {"path": str(path.parent)}}).execute()
    again = [cell for cell in made.cells if cell.cell_type == "code"]
    for stored, now in zip(code_cells(path), again, strict=True):
        assert outputs(stored) == outputs(now), stored.source
