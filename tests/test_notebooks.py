"""Notebooks give again the outputs that they store."""

import re
from typing import Any

import pytest

from tests.documents import ROOT

nbformat = pytest.importorskip("nbformat", reason="the extra `notebook` is not installed")
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
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
