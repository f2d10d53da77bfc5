"""Export of changed models, and `integers -o`: files that state the same problem as the model."""

import json
from pathlib import Path

import pytest

from flowlex import generate, model_for
from flowlex.formulations.engines.highs import solve_arrays
from flowlex.formulations.program_files import read_program
from flowlex.formulations.solver_outcome import SolveOptions
from flowlex.instances.files import write_instance


@pytest.mark.parametrize("ending", ["mps", "lp.gz"])
def test_a_changed_model_with_several_objectives_writes_a_file_for_each(run, ending, tmp_path):
    instance = generate("gpu-random", seed=1, nodes=3, tasks=6)
    model = model_for(instance)
    changed = model.with_constraint("few", model.variables["x"].sum() <= 3)
    write_instance(instance, "a.json")
    Path("rules.json").write_text(json.dumps(changed.changes.plain()))
    result = run("export", "a.json", "--changes", "rules.json", "-o", f"few.{ending}")
    assert result.exit_code == 0, result.output
    solution = changed.solve("highs")
    stages = list(solution.stages)
    assert len(stages) > 1
    assert sorted(path.name for path in Path().glob("few*")) == sorted(
        f"few-{number}-{name}.{ending}" for number, name in enumerate(stages, 1)
    )
    for number, name in enumerate(stages, 1):
        arrays = read_program(f"few-{number}-{name}.{ending}").arrays
        found = solve_arrays(arrays, SolveOptions()).objective
        assert found == pytest.approx(float(solution.stages[name]), abs=1e-6)
    again = run("export", "a.json", "--changes", "rules.json", "-o", f"few.{ending}")
    assert again.exit_code == 2
    assert f"few-1-{stages[0]}.{ending}" in again.stderr
    to_stream = run("export", "a.json", "--changes", "rules.json", "--to", "lp", "-o", "-")
    assert to_stream.exit_code == 2
    assert "objectives in order, a file each" in " ".join(to_stream.stderr.replace("│", " ").split())


def test_a_changed_model_without_an_answer_says_why_it_writes_nothing(run):
    instance = generate("gpu-random", seed=1, nodes=3, tasks=6)
    model = model_for(instance)
    changed = model.with_constraint("many", model.variables["x"].sum() >= 30)
    write_instance(instance, "a.json")
    Path("rules.json").write_text(json.dumps(changed.changes.plain()))
    result = run("export", "a.json", "--changes", "rules.json", "-o", "many.lp")
    assert result.exit_code == 2
    assert "needs the optima of those before it: solving ended infeasible" in result.stderr
    assert not list(Path().glob("many*"))


@pytest.mark.parametrize("ending", ["mps", "lp"])
def test_integers_writes_the_model_without_implied_declarations(run, ending):
    text = "Maximize\n gain: 2 x[1] + y + 7\nSubject To\n c: x[1] + y <= 4.5\nBounds\n y <= 2\nGeneral\n x[1] y\nEnd\n"
    Path("a.lp").write_text(text.replace("x[1]", "x1").replace("4.5", "4"))
    result = run("integers", "a.lp", "-o", f"relaxed.{ending}")
    assert result.exit_code == 0, result.output
    relaxed = read_program(f"relaxed.{ending}")
    assert not relaxed.arrays.integrality.any()
    assert relaxed.arrays.maximize
    assert solve_arrays(relaxed.arrays, SolveOptions()).objective == 15
    Path("b.lp").write_text("Minimize\n obj: x\nSubject To\n c: x + 0.5 >= 2\nGeneral\n x\nEnd\n")
    assert run("integers", "b.lp", "-o", f"kept.{ending}").exit_code == 0
    kept = read_program(f"kept.{ending}")
    assert kept.arrays.integrality.tolist() == [True]  # without it the optimum would be 1.5, not 2
    assert solve_arrays(kept.arrays, SolveOptions()).objective == 2


def test_an_infeasible_rule_is_reported_with_the_option_that_would_help(run):
    run("generate", "jit-figure4", "-o", "figure4.json")
    one = {"change": "constraint", "name": "one", "relation": "<=", "rhs": 1}
    one["terms"] = [{"variable": "rate", "by": ["slot"]}]
    Path("rules.json").write_text(json.dumps({"changes": [one]}))
    short = run("solve", "figure4.json", "--changes", "rules.json", "--set", "share=1")
    assert short.exit_code == 1 and short.output.count("extra_slots") == 2  # in the table and in the error
