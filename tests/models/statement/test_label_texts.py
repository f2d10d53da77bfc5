"""Labels with commas in names: each has its own name in programs, rules, files and certificates."""

import json
from pathlib import Path

import pytest

from flowlex import generate, model_for, verify
from flowlex.formulations.block_labels import label_text, label_texts
from flowlex.instances.files import instance_from_document
from flowlex.models.solution import ModelError


def test_parts_with_commas_are_quoted() -> None:
    columns = [["a,b", "a", 'a"', "a"], ["c", "b,c", "b", "b"]]
    texts = ['"a,b",c', 'a,"b,c"', '"a""",b', "a,b"]
    assert label_texts(columns) == texts
    assert [label_text(parts) for parts in zip(*columns, strict=True)] == texts
    assert label_texts([["a,b"]]) == ["a,b"]  # a label of one part is no list


def test_tasks_and_gpus_with_commas_in_their_names_do_not_share_labels(tmp_path: Path) -> None:
    text = generate("gpu-random", seed=1, nodes=2, tasks=4, running=0.0).model_dump_json()
    document = json.loads(text)
    jobs = [job for job in document["jobs"] if job["tasks"]]
    names = [task["name"] for job in jobs for task in job["tasks"]]
    gpus = [gpu["name"] for node in document["nodes"] for gpu in node["gpus"]]
    for old, new in ((names[0], "a"), (names[1], "a,b"), (gpus[0], "b,c"), (gpus[1], "c")):
        text = text.replace(json.dumps(old), json.dumps(new))
    instance = instance_from_document(json.loads(text))
    model = model_for(instance)
    columns = model.formulation.column_names()
    assert len(set(columns)) == len(columns)
    x = model.variables["x"]
    changed = model.with_constraint("pairs", x.sum(by=["task", "gpu"]) <= 1).with_constraint("few", x.sum() <= 3)
    labels = changed.problem.blocks["x"].index.plain_texts()
    assert len(set(labels)) == len(labels)
    assert '"a,b",c' in labels and '"a,b","b,c"' in labels
    solution = changed.solve("highs")
    assert solution.certificate is not None and solution.certificate.verdict == "proven"
    assert verify(solution.to_dict(), instance).ok
    assert solution.stated is not None and solution.stated.values is not None
    answer = changed.interpret(solution.stated.values)
    assert answer.stages == solution.stages
    with pytest.raises(ModelError, match="a,b,c"):
        changed.interpret({"x": {"a,b,c": 1}})
