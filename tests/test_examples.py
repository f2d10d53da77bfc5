"""Run every example of `examples/` and look for its answer."""

import runpy

import pytest

from tests.documents import ROOT

pytestmark = pytest.mark.rare

#: What each example prints, computed by hand or shown elsewhere to be right.
ANSWERS = {
    "01_own_problem": "wages: 118\noptimal, proven exactly",
    "02_change_a_model": "different nodes: +66.56 s, optimal",
    "03_verify": "objective: stated 125, recomputed 126",
    "04_batch": "exit code: 1",
    "05_total_unimodularity": "3 x 3 submatrix of determinant 2",
    "06_mutants": "take: lost lower bound: answers",
    "07_live_scheduler": "c waits: its cheapest place, on 'm",
    "08_gpu_assignment": "6436.40 s of transfer; optimal, proven exactly",
    "09_jit_bandwidth": "'level_4': 3",
    "10_pod_placement": "not enough GPU memory on node-1, node-2",
    "11_from_pulp": "12 optimal, proven exactly: 4 checks\nat most one cake: 11",
}


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_an_example_gives_its_answer(path, capsys):
    runpy.run_path(str(path))
    assert ANSWERS[path.stem] in capsys.readouterr().out
