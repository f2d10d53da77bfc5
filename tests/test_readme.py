"""Run every command and Python block of README, and the file of the guide to a model of one's own."""

import json
import re

import pytest

from tests.documents import ROOT, blocks, lines

pytestmark = pytest.mark.rare

#: Lines that need more than a checkout, and where they are tested instead.
ELSEWHERE = {
    "make": "targets of the Makefile, which install; this file checks that they exist",
}
README, GUIDE = ((ROOT / page).read_text() for page in ("README.md", "docs/howto/reuse-a-model.md"))
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
def test_reusing_a_model_works_word_for_word(shell):
    guide = blocks(GUIDE)
    (file,) = [text for _, text in guide if text.startswith("# ")]
    assert file.split()[1] == "shifts.py"
    (shell.folder / "shifts.py").write_text(file)
    said = [shell(f"{line} 2>&1") for language, text in guide if language == "console" for line in lines(text)]
    assert "2 instances: 2 optimal" in said[3]
    answer = json.loads((shell.folder / "out" / "week1.solution.json").read_text())
    assert answer["objective"] == 98 and answer["answer"]["x"]["w0,mon"] == 1
    assert "optimal, proven exactly" in said[4]
    (code,) = [text for language, text in guide if language == "python" and not text.startswith("# ")]
    (shell.folder / "code.py").write_text(code)
    assert shell("python code.py 2>&1").split() == ["98", "optimal", "100", "True", "True"]
    forged = answer | {"objective": 97}
    (shell.folder / "out" / "forged.solution.json").write_text(json.dumps(forged))
    refused = shell("flowlex verify out/forged.solution.json week1.json --models shifts.py 2>&1 || true")
    assert "refused" in refused and "97" in refused
    refused = shell("flowlex solve week1.json --set speed=3 --models shifts.py 2>&1 || true")
    assert "has no option 'speed'" in refused
    (shell.folder / "broken.json").write_text('{"kind": "shifts", "wage": {"a": "much"}, "demand": {"mon": 1}}')
    refused = shell("flowlex solve broken.json --models shifts.py 2>&1 || true")
    assert "broken.json" in refused and "wage.a" in refused
