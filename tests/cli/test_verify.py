"""``flowlex verify``: proven, refused, unreadable; a file or a batch."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flowlex import generate, model_for
from flowlex.cli.app import app
from flowlex.instances import write_instance
from flowlex.instances.min_cost_flow import NetworkInstance


def run(*arguments: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["verify", *map(str, arguments)])
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A network of optimum 7 with its solution."""
    data = {"supply": (2, 0, -2), "tail": (0, 1, 0), "head": (1, 2, 2), "lower": (0, 0, 0), "upper": (1, None, 4)}
    instance = NetworkInstance(name="hand", cost=(1, 1, 5), **data)  # type: ignore[arg-type]
    made = tmp_path / "instances"
    made.mkdir()
    write_instance(instance, made / "hand.json")
    model_for(instance).solve("network").save(made / "hand.solution.json")
    return made


def test_a_true_file_is_proven(folder: Path) -> None:
    code, said, _ = run(folder / "hand.solution.json", folder / "hand.json")
    assert code == 0
    assert said.strip().endswith("hand.solution.json: optimal, proven exactly: 12 checks")


def test_a_false_file_is_refused_with_its_figures(folder: Path) -> None:
    document = json.loads((folder / "hand.solution.json").read_text())
    file = folder / "false.solution.json"
    file.write_text(json.dumps(document | {"objective": 6, "bound": 6}))
    code, said, _ = run(file, folder / "hand.json")
    assert code == 1
    assert said.splitlines()[1] == "  objective: stated 6, recomputed 7"
    code, said, _ = run(file, folder / "hand.json", "--json")
    report = json.loads(said)
    assert (code, report["exit_code"], report["ok"]) == (1, 1, False)
    assert "objective" in [claim["name"] for claim in report["claims"] if claim["verdict"] == "refused"]


def test_a_file_without_its_proof_is_quoted(folder: Path, tmp_path: Path) -> None:
    document = json.loads((folder / "hand.solution.json").read_text())
    file, instance = tmp_path / "hand.solution.json", folder / "hand.json"
    file.write_text(json.dumps(document | {"proof": {}, "certificate": None}))
    code, said, _ = run(file, instance)
    assert code == 3 and "quoted, not proven: no answer is better, status, bound" in said
    assert run(file, instance, "--accept-quoted")[0] == 0
    for more, expected in (((), 3), (("--accept-quoted",), 0)):
        code, said, _ = run(file, instance, "--json", *more)
        report = json.loads(said)
        assert (code, report["exit_code"], report["verdict"]) == (expected, expected, "quoted")
        verdicts = {claim["name"]: claim["verdict"] for claim in report["claims"]}
        assert (verdicts["status"], verdicts["bound"], verdicts["objective"]) == ("quoted", "quoted", "proven")
    (tmp_path / "false.solution.json").write_text(json.dumps(document | {"objective": 6}))
    assert run(tmp_path, instance, "--accept-quoted")[0] == 1
    (tmp_path / "false.solution.json").write_text("")
    assert run(tmp_path, instance)[0] == 2


def test_a_folder_is_verified_in_one_call(folder: Path, tmp_path: Path) -> None:
    code, said, _ = run(folder, folder)
    assert (code, len(said.splitlines())) == (0, 1)
    document = json.loads((folder / "hand.solution.json").read_text())
    false = tmp_path / "false"
    false.mkdir()
    for name, change in (("cost", {"objective": 6, "bound": 6}), ("other", {"fingerprint": f"sha256:{0:064}"})):
        (false / f"{name}.solution.json").write_text(json.dumps(document | change))
    code, said, complaint = run(false, folder)
    assert (code, said.splitlines()[-1]) == (1, "0 proven, 0 quoted, 1 refused, 1 unreadable")
    assert "no file there is the instance of this solution" in complaint
    empty = tmp_path / "empty"
    empty.mkdir()
    code, _, complaint = run(empty, folder)
    assert code == 2
    assert "no *.solution.json files" in complaint


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "the file is empty"),
        ('{"kind": "min-cost-flow-sol', "line 1, column 10: not JSON"),
        ('{"kind": NaN}', "NaN is not a number"),
        ("[]", "not a solution file"),
        ('{"version": 7}', "version: 7 is not 3"),
    ],
)
def test_files_that_cannot_be_read_say_why(folder: Path, tmp_path: Path, content: str, says: str) -> None:
    file = tmp_path / "x.solution.json"
    file.write_text(content)
    code, _, complaint = run(file, folder / "hand.json")
    assert code == 2
    assert says in complaint
    code, _, complaint = run(file, tmp_path / "missing.json")
    assert code == 2
    assert "missing.json does not exist" in complaint


def test_an_instance_in_the_place_of_a_solution_is_named(folder: Path, tmp_path: Path) -> None:
    hand = folder / "hand.json"
    network = tmp_path / "network.min"
    network.write_text("p min 2 1\nn 1 1\nn 2 -1\na 1 2 0 1 5\n")
    for file, place in ((hand, hand), (network, hand), (hand, folder)):
        code, _, complaint = run(file, place)
        assert code == 2
        assert f"{file.name}: this is an instance of kind 'min-cost-flow', not a solution; name the file" in complaint
    code, _, complaint = run(folder / "hand.solution.json", folder / "hand.solution.json")
    assert code == 2
    assert "this is a solution of a 'min-cost-flow' instance; name the instance itself" in complaint


def test_rules_are_printed_and_demanded(tmp_path: Path) -> None:
    """An answer that was solved without the rule that one asks for is refused."""
    instance = generate("network-random")
    write_instance(instance, tmp_path / "one.json")
    model = model_for(instance)
    changed = model.with_constraint("quiet", model.variables["flow"].sel(tail="0").sum() <= 20)
    (tmp_path / "rules.json").write_text(json.dumps(changed.changes.plain()))
    changed.solve("highs").save(tmp_path / "ruled.solution.json")
    model.solve("network").save(tmp_path / "free.solution.json")
    code, said, _ = run(tmp_path / "ruled.solution.json", tmp_path / "one.json")
    assert code == 0 and said.splitlines()[1].endswith("rules it holds under: quiet (<= 20)")
    demand = "--changes", tmp_path / "rules.json"
    assert run(tmp_path / "ruled.solution.json", tmp_path / "one.json", *demand)[0] == 0
    code, said, _ = run(tmp_path / "free.solution.json", tmp_path / "one.json", *demand)
    assert code == 1 and "solved without quiet (<= 20)" in said
    (tmp_path / "rules.json").write_text('{"version": 1, "changes": []}')
    code, said, _ = run(tmp_path / "ruled.solution.json", tmp_path / "one.json", *demand)
    assert code == 1 and "solved with quiet (<= 20)" in said
    (tmp_path / "rules.json").write_text('{"rules": []}')
    assert run(tmp_path / "ruled.solution.json", tmp_path / "one.json", *demand)[0] == 2


@pytest.mark.parametrize("name", ["\x1b[31mred.solution.json", "two\nlines.solution.json", "bell\x07.solution.json"])
def test_no_name_of_a_file_reaches_the_terminal_as_a_command(folder: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("{")
    (tmp_path / f"good{name}").write_text((folder / "hand.solution.json").read_text())
    for arguments in ((tmp_path / name,), (tmp_path / f"good{name}",), (tmp_path / f"no{name}",), (tmp_path,)):
        _, said, complained = run(*arguments, folder / "hand.json")
        assert not {"\x1b", "\x07"} & {*said, *complained}
