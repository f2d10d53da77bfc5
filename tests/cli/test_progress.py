"""Progress output on a terminal during a solve."""

import io
import os
import pty
import re
import subprocess
import sys

from rich.console import Console

from flowlex.cli import console_output
from flowlex.cli.progress import progress_bar
from flowlex.instances import generate
from flowlex.instances.files import write_instance


def seen_on_a_terminal(*arguments: object, enough: str) -> str:
    """Return the terminal output of a command until it matches the pattern ``enough``."""
    here, there = pty.openpty()
    command = [sys.executable, "-P", "-m", "flowlex", *map(str, arguments)]
    process = subprocess.Popen(command, stdin=there, stdout=there, stderr=there, env=os.environ | {"TERM": "xterm"})
    os.close(there)
    text = ""
    while not re.search(enough, text):
        try:
            text += os.read(here, 1 << 16).decode("utf-8", "replace")
        except OSError:  # the command ended
            break
    process.kill()
    process.wait()
    os.close(here)
    return text


def test_a_single_solve_tells_its_best_answer_and_bound_as_they_move(tmp_path) -> None:
    path = tmp_path / "pods.json"
    write_instance(generate("pods-scale", nodes=60, pods=300, seed=1), path)
    enough = r"solving: best [\d.e-]+, bound [\d.e-]+, gap [\d.e-]+ %.* \d+ s"
    text = seen_on_a_terminal("solve", path, "--gap", 0, "--time-limit", 90, enough=enough)
    assert re.search(enough, text), text[-2000:]


def test_a_quick_solve_shows_nothing_and_a_file_gets_no_line() -> None:
    for terminal in (True, False):
        out = io.StringIO()
        with progress_bar("solving", single=True, console=Console(file=out, force_terminal=terminal)) as bar:
            bar.update(bar.add_task("solving", total=1, said="compiling", bad=""), completed=1)
        assert "solving" not in out.getvalue()
        assert bool(out.getvalue()) == terminal  # control characters only


def test_several_have_a_bar() -> None:
    out = io.StringIO()
    with progress_bar("solving", single=False, console=Console(file=out, force_terminal=True, width=80)) as bar:
        bar.update(bar.add_task("solving", total=3, said="", bad="1 without answer"), completed=2)
    assert "2/3" in out.getvalue() and "1 without answer" in out.getvalue()


def test_a_pipe_gets_plain_lines_now_and_then(monkeypatch, capsys) -> None:
    clock = iter([0.0, 19.0, 21.0, 30.0, 45.0, 90.0])
    monkeypatch.setattr(console_output.time, "monotonic", lambda: next(clock))
    lines = console_output.Progress("measuring", 5)
    for finished in range(1, 6):
        lines.update(finished, bad=finished // 4)
    told = ["measuring: 2 of 5 done after 0.3 min", "measuring: 4 of 5 done after 0.8 min, 1 without answer"]
    assert capsys.readouterr().err.splitlines() == told
