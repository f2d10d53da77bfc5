"""The statement of every policy: what is printed is what the constraints hold."""

from typing import Any

import pytest

from flowlex import GpuAssignment, generate
from flowlex.formulations.language.program_conversion import flat_program
from tests.formulations.language.test_printed_rows import read

VARIANTS: list[dict[str, Any]] = [
    {"policy": "FSP"},
    {"policy": "FS"},
    {"policy": "FSU"},
    {"policy": "FSP", "waiting": "priced", "stop_price": 0.5},
    {"policy": "FS", "waiting": "priced"},
    {"network": "published"},
    {"network": "published", "policy": "FSU"},
]


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_printed_rows_are_the_constraints(options: dict[str, Any]) -> None:
    model = GpuAssignment(generate("gpu-random", seed=1), **options)
    problem = model.problem
    program = flat_program(problem, None)
    names, latex = program.column_names(), model.to_latex()
    assert set(problem.rows) == set(model.constraints)
    for name, row in problem.rows.items():
        assert f"\\text{{{name.replace('_', chr(92) + '_')}:}}" in latex
        block = program.constraint_blocks[name]
        held: list[dict[str, float]] = [{} for _ in range(block.count)]
        e = block.expression
        for r, c, v in zip(e.row.tolist(), e.column.tolist(), e.value.tolist(), strict=True):
            held[r][names[c]] = v
        for member in range(row.index.count):
            printed = read(problem.written_row(row, member))
            assert printed == (held[member], block.relation, block.rhs[member])


def test_formulas_of_a_large_round_are_those_of_a_small_one() -> None:
    small, large = (GpuAssignment(generate("gpu-scale", gpus=g, tasks=3 * g, jobs=2, racks=2)) for g in (16, 100))
    lines = [model.to_latex().replace(tasks, "n").split("\\\\\n") for model, tasks in ((small, "48"), (large, "300"))]
    rows = [[line for line in each if "\\{0, 1\\}" not in line] for each in lines]  # members are some pairs only
    assert rows[0] == rows[1] and len(rows[0]) == 6
    assert "aligned" in large._repr_html_()
