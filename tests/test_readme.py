"""Run every command and Python block of README, and the files of the guide to adding a model."""

from __future__ import annotations

import re

import pytest

from tests.documents import ROOT, blocks, lines

#: Lines that need more than a checkout, and where they are tested instead.
ELSEWHERE = {
    "make": "targets of the Makefile, which install; this file checks that they exist",
}
README, GUIDE = ((ROOT / page).read_text() for page in ("README.md", "docs/howto/adding-a-model.md"))
CONSOLE = [text for language, text in blocks(README) if language == "console"]
PYTHON = [text for language, text in blocks(README) if language == "python"]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("console", CONSOLE, ids=[lines(text)[0].split("#")[0].strip() for text in CONSOLE])
def test_every_command_runs(console, shell):
    makefile = (ROOT / "Makefile").read_text()
    for line in lines(console):
        if line.startswith("make "):
            assert re.search(rf"^{line.split()[1]}:", makefile, re.MULTILINE)
        elif not line.startswith(tuple(ELSEWHERE)):
            shell(line)


@pytest.mark.parametrize("code", PYTHON, ids=range(len(PYTHON)))
def test_every_piece_of_python_runs(code, shell):
    (shell.folder / "code.py").write_text(code)
    assert shell("python code.py")


@pytest.mark.timeout(600)
def test_adding_a_model_works_word_for_word(shell):
    guide = blocks(GUIDE)
    files = [text for _, text in guide if text.startswith("# ")]
    assert [text.split()[1] for text in files] == ["pyproject.toml", "transport.py"]
    for text in files:
        (shell.folder / text.split()[1]).write_text(text)
    said = [shell(line) for language, text in guide if language == "console" for line in lines(text)]
    assert "optimal" in said[3] and "8.5" in said[3]
    (code,) = [text for language, text in guide if language == "python" and not text.startswith("# ")]
    (shell.folder / "code.py").write_text(code)
    expected = code.rpartition("# ")[2].strip()
    assert shell("python code.py").strip() == expected == "8.5 1.5"
    refused = shell("flowlex solve tiny.json --set speed=3 2>&1 || true")
    assert "has no option 'speed'" in refused
