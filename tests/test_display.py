"""Display in notebooks and narrow terminals: short texts, correct sizes, complete words."""

import io

from rich.console import Console

from flowlex import generate, model_for
from flowlex.cli import console_output


def test_instances_show_their_sizes_not_their_data():
    instance = generate("gpu-scale", gpus=200, tasks=300, jobs=10)
    assert repr(instance) == str(instance) and len(repr(instance)) < 200 and "GPUs 200" in repr(instance)
    shown = instance._repr_html_()
    assert len(shown) < 4000 and "<td>200</td>" in shown and "gpu-assignment instance" in shown


def test_models_formulations_and_solutions_show_their_own_sizes():
    model = model_for(generate("gpu-figure1"))
    html = model._repr_html_()
    assert "a task runs on a GPU" in html and "\\sum" in html and "GPU memory" not in html  # no counts of the cluster
    assert f"<td style='text-align:left'>{model.formulation.node_count}</td>" in html  # of the network
    blocks = model.formulation._repr_html_()
    assert "flow network" in blocks and all(name in blocks for name in model.formulation.arc_blocks)
    program = model.formulation.to_linear_program()._repr_html_()
    assert "constraints" in program and "variables" in program
    solution = model.solve("network")
    assert "objective" in solution._repr_html_() and str(solution.status) in solution._repr_html_()


def test_a_narrow_window_breaks_no_word_and_says_what_it_leaves_out(monkeypatch):
    lines = io.StringIO()
    narrow = Console(width=40, file=lines)
    monkeypatch.setattr(console_output, "console", lambda: narrow)
    rows = [("task-1", "running", "node-with-a-name", "0", 3.5), ("task-2", "waiting", "another-node", "0", 0.25)]
    narrow.print(console_output.rows_table("Answer", ("task", "state", "node", "moved_mb", "seconds"), rows))
    said = lines.getvalue()
    assert "node-with-a-name" in said and "running" in said and "task-2" in said
    assert "left out in a narrow" in said and "moved_mb" in said.split("left out")[1]
    assert max(map(len, said.splitlines())) <= 40
    lines.truncate(0)
    wide = Console(width=120, file=lines)
    monkeypatch.setattr(console_output, "console", lambda: wide)
    wide.print(console_output.rows_table("Answer", ("task", "state", "node", "moved_mb", "seconds"), rows))
    assert "left out" not in lines.getvalue() and "moved_mb" in lines.getvalue()
