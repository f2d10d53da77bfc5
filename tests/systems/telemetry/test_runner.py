"""Running a command: only from the folder, without a shell, limited time and output, no secrets in its environment."""

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from flowlex.systems.telemetry.command_runner import (
    BAD_OUTPUT,
    NOT_ALLOWED,
    TIMED_OUT,
    CommandRefused,
    Run,
    allowed_programs,
    find_program,
)
from flowlex.systems.telemetry.command_runner import (
    run_command as run_or_cancel,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "allowed").mkdir()
    return tmp_path / "allowed"


def run_command(*arguments: Any, **options: Any) -> Run:
    run = run_or_cancel(*arguments, **options)
    assert run is not None
    return run


def put(folder: Path, name: str, script: str, mode: int = 0o755) -> Path:
    path = folder / name
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(mode)
    return path


def alive_within(group: int) -> list[str]:
    """Return the processes of a group after a moment, without zombies."""
    time.sleep(0.1)
    alive = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, of_group = path.read_text().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(of_group) == group and state != "Z":
            alive.append(path.parent.name)
    return alive


@pytest.mark.parametrize(
    ("script", "value"),
    [
        ("echo 0.25", 0.25),
        ("echo 7", 7),
        ("echo free text", "free text"),
        ("""echo '{"a": [1, 2]}'""", {"a": [1, 2]}),
        ("echo NaN", "NaN"),
        ("""printf '"\\\\ud800"'""", '"\\ud800"'),
        ("cat", "given"),
    ],
)
def test_output_becomes_the_value(folder: Path, script: str, value: object) -> None:
    put(folder, "program", script)
    run = run_command(["program"], [folder], timeout_s=5, stdin=b"given")
    assert (run.value, run.exit_code, run.error) == (value, 0, "")


def test_arguments_go_to_no_shell(folder: Path) -> None:
    put(folder, "program", 'printf "%s" "$1"')
    for argument in ["$(touch broken)", "; touch broken", "`id`", "a b", "*"]:
        assert run_command(["program", argument], [folder], timeout_s=5).value == argument
    assert not (folder / "broken").exists()


def test_exit_code_and_complaint_are_kept(folder: Path) -> None:
    put(folder, "program", "echo 5; echo no  sensor >&2; exit 3")
    run = run_command(["program"], [folder], timeout_s=5)
    assert (run.value, run.exit_code, run.error) == (None, 3, "no sensor")
    put(folder, "dies", "kill -9 $$")
    assert run_command(["dies"], [folder], timeout_s=5).exit_code == -9


@pytest.mark.parametrize(
    "script", ["sleep 300", "sleep 300 >&- 2>&-", "sleep 300 & echo 1", "(sleep 300) & exec >&-; sleep 300"]
)
def test_the_time_limit_ends_the_whole_group(folder: Path, script: str) -> None:
    put(folder, "program", f"echo $$ > {folder}/pid\n{script}")
    started = time.monotonic()
    run = run_command(["program"], [folder], timeout_s=1)
    assert time.monotonic() - started < 60
    assert (run.value, run.exit_code) == (None, TIMED_OUT)
    assert "too long" in run.error
    group = int((folder / "pid").read_text())
    assert alive_within(group) == []


def test_the_output_limit(folder: Path) -> None:
    put(folder, "program", "while :; do echo 0123456789; done")
    run = run_command(["program"], [folder], timeout_s=20, max_bytes=1000)
    assert run.exit_code == TIMED_OUT and "too much" in run.error


@pytest.mark.parametrize(("script", "message"), [("true", "printed nothing"), ("printf '\\377'", "not UTF-8")])
def test_output_that_is_no_value(folder: Path, script: str, message: str) -> None:
    put(folder, "program", script)
    run = run_command(["program"], [folder], timeout_s=5)
    assert run.exit_code == BAD_OUTPUT and message in run.error


def test_the_environment_holds_nothing_of_the_agents(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOWLEX_TELEMETRY_TOKEN", "flx_secret")
    put(folder, "program", "env")
    run = run_command(["program"], [folder], timeout_s=5, environment={"FLOWLEX_NODE": "n"})
    assert isinstance(run.value, str)
    assert "flx_secret" not in run.value and "FLOWLEX_NODE=n" in run.value


def test_only_the_allow_list_runs(folder: Path, tmp_path: Path) -> None:
    put(tmp_path, "outside", "echo 1")
    put(folder, "inside", "echo 1")
    put(folder, "plain", "echo 1", mode=0o644)
    put(folder, "shared", "echo 1", mode=0o757)
    (folder / "link").symlink_to(tmp_path / "outside")
    (folder / "inner").symlink_to(folder / "inside")
    (folder / "sub").mkdir()
    refused = {
        "../outside": "not a plain file name",
        "/bin/sh": "not a plain file name",
        "sub/x": "not a plain file name",
        "..": "not a plain file name",
        "sh": "not in this node's command folder",
        "link": "a link that leaves the command folder",
        "plain": "not an executable file",
        "shared": "may be changed by everybody",
        "sub": "not an executable file",
    }
    for program, message in refused.items():
        with pytest.raises(CommandRefused, match=message):
            find_program(program, [folder])
        run = run_command([program], [folder], timeout_s=5)
        assert (run.value, run.exit_code) == (None, NOT_ALLOWED)
    assert allowed_programs([folder]) == ["inner", "inside"]


def test_a_file_that_is_no_program(folder: Path) -> None:
    (folder / "broken").write_bytes(b"\x7fELF nonsense")
    (folder / "broken").chmod(0o755)
    run = run_command(["broken"], [folder], timeout_s=5)
    assert run.exit_code == NOT_ALLOWED and "cannot be started" in run.error


def test_a_cancelled_run_ends_soon_and_has_no_result(folder: Path) -> None:
    put(folder, "program", f"echo $$ > {folder}/pid\nsleep 300")
    cancel = threading.Event()
    threading.Timer(0.3, cancel.set).start()
    started = time.monotonic()
    assert run_or_cancel(["program"], [folder], timeout_s=300, cancel=cancel) is None
    assert time.monotonic() - started < 60
    assert alive_within(int((folder / "pid").read_text())) == []


def test_complaints_are_limited_too(folder: Path) -> None:
    put(folder, "program", "while :; do echo 0123456789 >&2; done")
    run = run_command(["program"], [folder], timeout_s=30)
    assert run.exit_code == TIMED_OUT and "too much" in run.error
    put(folder, "wordy", "i=0; while [ $i -lt 900 ]; do echo first $i >&2; i=$((i+1)); done; exit 3")
    run = run_command(["wordy"], [folder], timeout_s=30)
    assert run.exit_code == 3 and run.error.startswith("first 0 first 1")


@pytest.mark.parametrize(
    "leave",
    [
        "setsid sleep 60 >/dev/null 2>&1 &",
        "(setsid sh -c 'sleep 60 & sleep 60' >/dev/null 2>&1 &)",
        "env -i /usr/bin/setsid -f sleep 60 >/dev/null 2>&1",
    ],
)
def test_what_leaves_the_group_ends_with_the_run(folder: Path, leave: str) -> None:
    marker = f"6{time.time_ns() % 10**9:09d}"  # a unique duration identifies our sleep processes
    put(folder, "program", leave.replace("60", marker) + "\necho 1")
    assert run_command(["program"], [folder], timeout_s=20).value == 1
    assert sleepers(marker) == []


def test_a_killed_agent_leaves_no_command_behind(folder: Path, tmp_path: Path) -> None:
    marker = f"6{time.time_ns() % 10**9:09d}"
    put(folder, "program", f"setsid -f sleep {marker}; sleep {marker}")
    code = (
        "import sys; from pathlib import Path; from flowlex.systems.telemetry.command_runner import run_command\n"
        "run_command(['program'], [Path(sys.argv[1])], timeout_s=300)"
    )
    agent = subprocess.Popen([sys.executable, "-c", code, str(folder)])
    until = time.monotonic() + 30
    while len(sleepers(marker)) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    assert len(sleepers(marker)) == 2
    agent.kill()
    agent.wait()
    until = time.monotonic() + 30
    while sleepers(marker) and time.monotonic() < until:
        time.sleep(0.05)
    assert sleepers(marker) == []


def sleepers(marker: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if words[:2] == [b"sleep", marker.encode()]:
            found.append(path.parent.name)
    return found


def test_a_folder_that_everybody_may_write_to_is_refused(folder: Path) -> None:
    put(folder, "program", "echo 1")
    folder.chmod(0o777)
    with pytest.raises(CommandRefused, match=r"everybody may write to the command folder .*; run chmod o-w on it"):
        find_program("program", [folder])
    assert allowed_programs([folder]) == []
    folder.chmod(0o1777)
    assert allowed_programs([folder]) == []
    folder.chmod(0o755)
    assert allowed_programs([folder]) == ["program"]
