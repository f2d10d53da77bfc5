"""README is run: every command and every piece of Python in it, and its guide to adding a model word for word."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from tests.documents import ROOT, blocks, lines

#: Lines that need more than a checkout, and where else they are tested.
ELSEWHERE = {
    "make": "targets of the Makefile, which install; this file checks that they exist",
    "flowlex solve --from-telemetry": "needs a running service: tests/telemetry/test_end_to_end.py",
}
NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,P100\nn1,96000,393216,0,\n"
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
    "p0,12000,16384,1,460,,LS,Running,0,100,0\n"
)


README, GUIDE = (ROOT / "README.md").read_text().split("## Adding a model")
CONSOLE = [text for language, text in blocks(README) if language == "console"]
PYTHON = [text for language, text in blocks(README) if language == "python"]


def public_traces(folder: Path) -> None:
    """Hand-sized files under the names that README gives to public traces."""
    for prefix in ("", "openb_"):
        (folder / f"{prefix}node{'_list' if prefix else 's'}.csv").write_text(NODES)
        (folder / f"{prefix}pod{'_list' if prefix else 's'}.csv").write_text(PODS)
    tables = {
        "machine_events": ["0,7,0,plat,0.5,0.25", "0,8,0,plat,1,1"],
        "task_events": ["600000000,,100,0,,0,user,3,9,0.1,0.1,0.0001,1"],
    }
    for table, rows in tables.items():
        place = folder / "clusterdata-2011" / table
        place.mkdir(parents=True)
        (place / "part-00000-of-00001.csv.gz").write_bytes(gzip.compress(("\n".join(rows) + "\n").encode()))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("console", CONSOLE, ids=[lines(text)[0].split("#")[0].strip() for text in CONSOLE])
def test_every_command_runs(console, shell):
    public_traces(shell.folder)
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
