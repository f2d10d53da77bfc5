"""Gavel's file of throughputs."""

from pathlib import Path

import pytest

from flowlex import solve
from flowlex.instances import InstanceError
from flowlex.systems.traces import read_gavel
from flowlex.validation.certificates import verify

GAVEL = Path("../shared/data/gavel/simulation_throughputs.json.gz")


@pytest.mark.skipif(not GAVEL.exists(), reason="the Gavel throughput file is not here")
def test_the_published_throughputs_are_read_and_solved() -> None:
    instance = read_gavel(GAVEL, jobs=24, sharing=True, seed=2)
    assert [t.name for t in instance.gpu_types] == ["k80", "p100", "v100"]
    shared, alone = (solve(instance, "highs", sharing=flag) for flag in (True, False))
    assert shared.objective is not None and alone.objective is not None
    assert shared.objective >= alone.objective > 0
    document = shared.to_dict()
    assert verify(document, instance).ok


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]", "must be an object: GPU type"),
        ("{", "not JSON"),
        ("{}", "no GPU type"),
        ('{"v100": {"x": {"null": 1}}}', "a job type reads"),
        ('{"v100": {"(\'m\', 1)": {}}}', "no throughput alone"),
        ('{"v100": {"(\'m\', 1)": {"null": -1}}}', "a number of at least 0, found -1"),
    ],
)
def test_throughput_files_that_are_none_say_why(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "throughputs.json"
    path.write_text(text)
    with pytest.raises(InstanceError, match=says) as error:
        read_gavel(path)
    assert str(path) in str(error.value)
