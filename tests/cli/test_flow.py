"""``flowlex flow``: rounds in, optima out while the stream is open."""

from __future__ import annotations

import subprocess
import sys

LOG = "p min 3 2\nn 1 2\nn 3 -2\na 1 2 0 2 1\na 2 3 0 2 1\nc EOI\n"


def test_a_log_prints_each_optimum_and_writes_solutions(run, tmp_path):
    (tmp_path / "log").write_text(LOG + "x 1 2 0 2 5\nc EOI\nx 2 3 0 1 1\nc EOI\n")
    said = run("flow", "log", "--live", "-o", "answers", "--quiet")
    assert said.exit_code == 1 and "no flow satisfies 1 of the rounds" in said.stderr
    assert [line for line in said.stdout.splitlines() if line.startswith("s ")] == ["s 4", "s 12"]
    assert "c INFEASIBLE no flow satisfies the network: node" in said.stdout
    written = sorted(path.name for path in (tmp_path / "answers").iterdir())
    assert written == ["round-000001.sol", "round-000002.sol", "round-000003.sol"]
    assert (tmp_path / "answers" / written[1]).read_text().splitlines()[1:] == ["s 12", "f 1 2 2", "f 2 3 2"]


def test_a_bad_line_a_second_round_and_contradicting_options_are_refused(run, tmp_path):
    (tmp_path / "log").write_text(LOG + "x 1 9 0 2 5\nc EOI\n")
    said = run("flow", "log", "--live")
    assert said.exit_code == 2 and "log: line 7: node 9 does not exist" in said.stderr
    assert "s 4" in said.stdout
    said = run("flow", "log")
    assert said.exit_code == 2 and "log: line 8: a second round; say --live" in said.stderr
    assert run("flow", "log", "--quiet", "--assignments").exit_code == 2
    assert run("flow", "nothing").exit_code == 2


def test_an_answer_comes_before_the_next_round_is_sent(tmp_path):
    command = [sys.executable, "-c", "from flowlex.cli import main; main()", "flow", "--live"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        said = []
        for text in (LOG, "x 1 2 0 2 3\nc EOI\n"):
            process.stdin.write(text)
            process.stdin.flush()
            while (line := process.stdout.readline()) != "c EOI\n":
                said.append(line.strip())
        process.stdin.write("c EOS\n")
        process.stdin.close()
        assert process.wait(timeout=120) == 0
    assert [line for line in said if line.startswith("s")] == ["s 4", "s 8"]
