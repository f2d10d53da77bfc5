"""Smoke tests of the benchmark runner, without timing."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", autouse=True)
def importable() -> Iterator[None]:
    """Run `benchmarks` from the checkout, as it is not an installed package."""
    sys.path.insert(0, str(ROOT))
    yield
    sys.path.remove(str(ROOT))


@pytest.fixture
def command() -> ModuleType:
    return importlib.import_module("benchmarks.__main__")


@pytest.fixture
def gpu() -> ModuleType:
    return importlib.import_module("benchmarks.gpu_assignment")


def test_every_benchmark_is_found(command: ModuleType) -> None:
    assert "gpu_assignment" in command.known()
    assert not {"peers", "__main__", "__init__"} & set(command.known())


def test_an_unknown_name_is_refused(command: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        command.main(["no_such_benchmark"])
    assert stopped.value.code == 2
    assert "no benchmark 'no_such_benchmark'; one of:" in capsys.readouterr().err


@pytest.mark.rare
def test_the_quick_form_finds_one_optimum_by_every_way(gpu: ModuleType) -> None:
    [(_, rows)] = gpu.tables(quick=True)
    assert [(row["scope"], row["network"]) for row in rows] == [
        ("placements", "compact"),
        ("flow", "compact"),
        ("flow", "compact"),
        ("flow", "paper"),
    ]
    for row in rows:
        if "OR-Tools" in str(row["method"]) and "No module named" in str(row.get("error")):
            continue  # the bench extra is not installed
        assert row["same optimum"] is True, row
        assert row["peak MB"] > 10


@pytest.mark.filterwarnings("ignore:Constructing LpVariable:DeprecationWarning")  # PuLP announces its version 4
def test_peers_in_this_process_agree_with_us(gpu: ModuleType, tmp_path: Path) -> None:
    """All but OR-Tools, which does not share a process with HiGHS; running tasks make costs carry a tie-break."""
    case = {"generator": "gpu-random", "seed": 36}
    ours = gpu.place(case, "network")()["cost"]
    for network in ("compact", "paper"):
        path = str(tmp_path / f"{network}.npz")
        gpu.save_gpu(case, network, path)()
        answers = [gpu.flow(path, "highs")(), gpu.networkx(path)(), gpu.pulp_manual(path)()]
        assert [answer["cost"] for answer in answers] == [ours] * 3


def test_linopy_agrees(gpu: ModuleType, tmp_path: Path) -> None:
    pytest.importorskip("linopy")
    path = str(tmp_path / "net.npz")
    gpu.save_network({"generator": "network-assignment", "machines": 10, "tasks": 15, "choices": 3}, path)()
    assert gpu.linopy(path)() == gpu.flow(path, "network")()


def test_a_job_that_fails_or_hangs_says_so() -> None:
    peers = importlib.import_module("benchmarks.peers")
    assert "AttributeError" in peers.measure("math:no_such_function").error
    assert "No module named 'no_such_peer'" in peers.measure("no_such_peer:run").error
    assert peers.measure("subprocess:check_call", patience_s=1, args=["sleep", "300"]).error == "stopped after 1 s"


def test_a_benchmark_that_fails_does_not_stop_the_others(
    command: ModuleType, gpu: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = ModuleType("benchmarks.other")
    other.tables = lambda quick: [("fine", [{"seconds": 0.25}])]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "benchmarks.other", other)
    monkeypatch.setattr(command, "known", lambda: ["gpu_assignment", "other"])

    def lacking(*, quick: bool) -> Any:
        raise ModuleNotFoundError("No module named 'ortools'")

    monkeypatch.setattr(gpu, "tables", lacking)
    assert command.main(["--quick"]) == 1
    printed = capsys.readouterr().out
    assert "No module named 'ortools'; install the 'bench' extra" in printed
    assert "fine" in printed
    assert "0.25" in printed


def test_writing_replaces_only_its_own_part(command: ModuleType, tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    command.write("one", [("first", [{"a": 1, "b": "x|y"}, {"c": True}])], readme)
    command.write("two", [("other", [{"a": 0.5}])], readme)
    before = readme.read_text()
    command.write("one", [("second", [{"a": 2}])], readme)
    after = readme.read_text()
    assert "| 1 | x\\|y |  |" in before
    assert "|  |  | yes |" in before
    assert "first" not in after
    assert "**second**" in after
    for text in (before, after):
        assert text.count("<!-- begin one -->") == text.count("<!-- end one -->") == 1
        assert "| 0.5 |" in text
        assert "commit " in text
        assert " cores, " in text


@pytest.mark.rare
def test_two_trees_are_asked_by_turns() -> None:
    paired = importlib.import_module("benchmarks.paired")
    code = next(iter(paired.cases(quick=True).values()))
    row = paired.paired("a case", code, (ROOT / "src", ROOT / "src"), calls=2)
    assert row["equal"] is True and row["ratio"] > 0 and row["before ms"] < row["certified before ms"]
    with pytest.raises(RuntimeError, match="needs commit no-such-commit from the repository's history"):
        paired.rows("no-such-commit")
