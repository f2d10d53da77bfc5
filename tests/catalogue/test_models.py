"""Named tiny instances with known answers: every model by every engine and option that must not change the answer.

A comment on each entry derives its answer by hand.
"""

from itertools import product
from typing import Any

import pytest

from flowlex import model_for
from flowlex.formulations import ENGINES
from flowlex.instances.files import instance_from_document


def grid(**choices: tuple[Any, ...]) -> list[dict[str, Any]]:
    """Every combination of options."""
    return [dict(zip(choices, values, strict=True)) for values in product(*choices.values())]


DETOUR = {
    "kind": "min-cost-flow",
    "supply": [2, 0, -2],
    "tail": [0, 1, 0],
    "head": [1, 2, 2],
    "lower": [0, 0, 0],
    "upper": [1, None, 4],
    "cost": [1, 1, 5],
}
TWO_READERS = {
    "kind": "gpu-assignment",
    "disk_mb_per_s": 200.0,
    "rack_mb_per_s": 100.0,
    "between_racks_mb_per_s": 50.0,
    "nodes": [{"name": n, "rack": "r", "gpus": [{"name": f"{n}.0", "memory_gb": 10.0}]} for n in ("n0", "n1")],
    "jobs": [
        {"name": j, "tasks": [{"name": f"t{j}", "memory_gb": 8.0, "shards": [{"size_mb": 400.0, "replicas": ["n0"]}]}]}
        for j in "ab"
    ],
}
FOUR_WORKERS = {
    "kind": "load-partition",
    "nodes": [{"name": f"n{i}", "configuration": 1.0} for i in range(4)],
    "blocks": [{"name": f"b{i}", "items": 8, "holders": [f"n{i}"]} for i in range(2)],
    "links": [
        {"source": a, "target": b, "seconds_per_item": c}
        for a, b, c in (("n0", "n2", 1.0), ("n0", "n3", 3.0), ("n1", "n2", 2.0), ("n1", "n3", 2.0))
    ],
    "seconds_per_item": 1.0,
}
TWO_SHARES = {
    "kind": "allocation",
    "gpu_types": [{"name": "v100", "count": 1}, {"name": "k80", "count": 1}],
    "job_types": [{"name": "t", "steps_per_s": {"v100": 2.0, "k80": 1.0}}],
    "jobs": [{"name": "a", "job_type": "t"}, {"name": "b", "job_type": "t"}],
}
ONE_TRANSFER = {
    "kind": "jit-bandwidth",
    "machines": [{"name": m, "out_mbps": 80.0, "in_mbps": 80.0} for m in "ac"],
    "slot_s": 1.0,
    "unit_mb": 5.0,
    "jobs": [
        {
            "name": "j",
            "computations": [{"name": "c", "seconds": 1.0}],
            "transfers": [
                {"name": "t", "size_mb": 10.0, "sender": "a", "receiver": "c", "feeds": "c", "deadline_s": 4.0}
            ],
        }
    ],
}
TWO_TASKS = {
    "kind": "flow-scheduling",
    "machines": [{"name": "M0", "slots": 1}, {"name": "M1", "slots": 1}],
    "jobs": [
        {
            "name": "j",
            "tasks": [{"name": "t0", "costs": {"M0": 1, "M1": 4}}, {"name": "t1", "costs": {"M0": 2, "M1": 8}}],
        }
    ],
}

#: name: (document, combinations of options, objective)
CATALOGUE: dict[str, tuple[dict[str, Any], list[dict[str, Any]], float]] = {
    # one unit over node 1 at cost 1 + 1 (capacity 1), the other directly at cost 5
    "detour": (DETOUR, [{}], 7),
    # each job gets a GPU under any policy: 400 MB from the node's disk at 200 MB/s, 400 MB within the rack at 100 MB/s
    "two readers": (TWO_READERS, grid(policy=("FSP", "FS", "FSU"), network=("compact", "paper")), 6),
    # all workers are equal: 4 items each, 4 from n0 to n2 at 1 s, 4 from n1 to n3 at 2 s
    "four workers": (FOUR_WORKERS, grid(objective=("targets", "makespan"), level=("node", "item")), 12),
    # equal jobs run half of the time on each GPU, which is their equal share: 1 of it each
    "two shares": (TWO_SHARES, grid(policy=("max_min", "water_filling")), 1),
    # two units in four slots: at most one per slot
    "one transfer": (ONE_TRANSFER, grid(program=("P1", "P2"), share=(1.0,), presolve=(None, False)), 1),
    # the published sum of |loads| ** load over the four slots: 4 + 4 + 1 + 1
    "one transfer, weighed": (ONE_TRANSFER, grid(program=("P3", "P4"), share=(1.0,)), 10),
    # 4 + 2 beats 1 + 8; no preset's own costs tell the machines apart
    "two tasks": (TWO_TASKS, grid(preset=("none", "quincy", "borg"), order=("auto", "weights")), 6),
    "two tasks, by phases": (TWO_TASKS, grid(preset=("none", "quincy", "borg"), order=("phases",)), 6),
}
#: Entries that some engines refuse: programs that are no networks, and stages in exact integers.
ONLY = {
    "two shares": ("pulp", "highs"),
    "one transfer": ("pulp", "highs"),
    "one transfer, weighed": ("pulp", "highs"),
    "two tasks, by phases": ("network",),
}
CASES = [
    pytest.param(name, engine, options, id=f"{name}-{engine}-{options}")
    for name, (_, choices, _) in CATALOGUE.items()
    for engine in ONLY.get(name, tuple(ENGINES))
    for options in choices
]


@pytest.mark.parametrize(("name", "engine", "options"), CASES)
def test_the_answer_is_known(name: str, engine: Any, options: dict[str, Any]) -> None:
    document, _, objective = CATALOGUE[name]
    instance = instance_from_document({"version": 1, "name": name, **document})
    solution = model_for(instance, **options).solve(engine)
    assert solution.status == "optimal"
    assert solution.objective == pytest.approx(objective)
    assert solution.bound == pytest.approx(objective)
    assert solution.certificate is not None and solution.certificate.ok
