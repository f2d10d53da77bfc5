"""Random allocation instances: few jobs, unequal data, pairs, users, limits and deadlines."""

from typing import Any

import numpy as np

from flowlex.instances import AllocationInstance


def random_instance(seed: int, *, jobs: int = 6, limits: bool = True, tight: float = 0.0) -> AllocationInstance:
    """``tight`` above 0 gives half of the jobs deadlines that need this fraction of their best speed."""
    rng = np.random.default_rng(seed)
    types = [f"gpu{j}" for j in range(int(rng.integers(1, 4)))]
    kinds: list[dict[str, Any]] = []
    for k in range(int(rng.integers(2, 5))):
        speeds = {t: float(10 ** rng.uniform(-1, 2)) for t in types if rng.random() < 0.85}
        speeds = speeds or {types[0]: 1.0}
        kinds.append({"name": f"k{k}", "gpus": int(rng.choice([1, 1, 1, 2])), "steps_per_s": speeds})
    pairs = []
    for a, one in enumerate(kinds):
        for other in kinds[a:]:
            both = one["steps_per_s"].keys() & other["steps_per_s"].keys()
            for t in sorted(both):
                if one["gpus"] == other["gpus"] and rng.random() < 0.6:
                    kept = rng.uniform(0.3, 1.0, 2)
                    kept[1] = kept[0] if one is other else kept[1]
                    speeds = (one["steps_per_s"][t] * kept[0], other["steps_per_s"][t] * kept[1])
                    pairs.append({"job_types": (one["name"], other["name"]), "gpu_type": t, "steps_per_s": speeds})
    members = []
    for m in range(jobs):
        kind = kinds[int(rng.integers(len(kinds)))]
        steps, best = float(10 ** rng.uniform(2, 4)), max(kind["steps_per_s"].values())
        late = steps / best / tight if tight and rng.random() < 0.5 else None
        members.append(
            {
                "name": f"j{m}",
                "job_type": kind["name"],
                "weight": float(rng.choice([0.5, 1.0, 1.0, 3.0])),
                "steps_left": steps,
                "running_s": float(rng.choice([0.0, 100.0])),
                "isolated_s": float(rng.choice([0.0, 60.0])),
                "entity": f"u{int(rng.integers(2))}",
                "deadline_s": late,
            }
        )
    rules: list[dict[str, Any]] = []
    if limits:
        rules = [
            {"job": "j0", "most_gpus": float(rng.uniform(0.2, 1.0))},
            {"entity": "u1", "gpu_type": types[0], "most_gpus": float(rng.uniform(0.5, 2))},
            {"job": "j1", "least_gpus": float(rng.uniform(0.0, 0.2))},
        ]
    return AllocationInstance.model_validate(
        {
            "name": f"random-{seed}",
            "gpu_types": [
                {"name": t, "count": int(rng.integers(2, 4)), "usd_per_hour": float(j + 1)} for j, t in enumerate(types)
            ],
            "job_types": kinds,
            "jobs": members,
            "pairs": pairs,
            "entities": [{"name": "u0", "weight": 1.0}, {"name": "u1", "weight": 2.0, "inside": "fifo"}],
            "limits": rules,
        }
    )


def extreme_instance(seed: int) -> AllocationInstance | None:
    """A small instance with numbers from 1e-13 to 1e15, pairs, entities, limits, deadlines; None: it is refused."""
    rng = np.random.default_rng(seed)

    def number() -> float:
        kinds = (1.0, 3.0, round(float(rng.uniform(0.01, 50)), 2), float(10 ** rng.uniform(-3, 3)), 1 / 3)
        far = (1.7e-13, 1e-9, 1e15, 3e9, float(10 ** rng.uniform(-13, 15)))
        return float(rng.choice(kinds if rng.random() < 0.75 else far))

    types = [{"name": f"g{j}", "count": int(rng.choice([1, 2, 5])), "usd_per_hour": number()} for j in range(2)]
    kinds = [
        {"name": f"型{k}", "gpus": int(rng.choice([1, 1, 2])), "steps_per_s": {t["name"]: number() for t in types}}
        for k in range(int(rng.integers(1, 4)))
    ]
    entities = [
        {"name": f"e{k}", "weight": number(), "inside": ("fair", "fifo")[k]} for k in range(int(rng.choice([0, 2])))
    ]
    jobs = [
        {
            "name": f"j {m}",
            "job_type": kinds[int(rng.integers(len(kinds)))]["name"],
            "weight": number(),
            "steps_left": number(),
            "running_s": float(rng.choice([0.0, number()])),
            "entity": f"e{m % 2}" if entities else None,
            "deadline_s": 1000 * number() if rng.random() < 0.2 else None,
        }
        for m in range(int(rng.integers(1, 7)))
    ]
    pairs = []
    for a, one in enumerate(kinds):
        for other in kinds[a:]:
            speeds = (number(), number())
            if one["gpus"] == other["gpus"] and rng.random() < 0.5:
                both = speeds if one is not other else (speeds[0], speeds[0])
                pairs.append({"job_types": (one["name"], other["name"]), "gpu_type": "g0", "steps_per_s": both})
    limits = [{"job": "j 0", "most_gpus": float(rng.choice([0.5, 1 / 3, 1.0]))}] if rng.random() < 0.2 else []
    parts = {"gpu_types": types, "job_types": kinds, "jobs": jobs, "pairs": pairs, "entities": entities}
    try:
        return AllocationInstance.model_validate({"kind": "allocation", **parts, "limits": limits})
    except ValueError:
        return None
