"""``flowlex place`` on drawn clusters: one-by-one passes, the plan and the proven most by priority, and seconds."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

from benchmarks import Row, Tables
from flowlex.formulations.processor_clock import processor_seconds
from flowlex.systems.kubernetes.drawn_clusters import drawn_cluster
from flowlex.systems.kubernetes.objects import read_cluster
from flowlex.systems.kubernetes.one_by_one import SCORES, one_by_one
from flowlex.systems.kubernetes.placement_instance import Snapshot
from flowlex.systems.kubernetes.placement_plan import place_pods

#: Nodes, waiting pods, seconds of the plan.
SIZES = ((30, 200, 10), (300, 500, 20), (1000, 2000, 40))


def tables(quick: bool = False) -> Tables:
    rows: list[Row] = []
    for nodes, waiting, limit in SIZES[: 1 if quick else 3]:
        for rules in (True, False):
            rows += _cluster(nodes, waiting, 2 if quick else limit, rules)
    return [("Waiting pods bound by priority (1000, 100, 10, 0), processor seconds with reading the objects", rows)]


def _cluster(nodes: int, waiting: int, limit: float, rules: bool) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "objects.json"
        path.write_text(json.dumps(drawn_cluster(nodes, waiting, rules=rules, seed=1)), encoding="utf-8")
        about: Row = {"nodes": nodes, "waiting": waiting, "affinity and spread": "yes" if rules else "no"}
        began = time.process_time()
        snapshot = Snapshot.of(read_cluster(path), path)
        rows: list[Row] = []
        for method, scores in (("default scheduler's order", SCORES[:1]), ("best of the passes (first plan)", SCORES)):
            counts = one_by_one(snapshot.cluster, snapshot.first_state, scores=scores).counts()
            bound = ", ".join(str(counts.get((p, False), 0)) for p in (1000, 100, 10, 0))
            rows.append(about | {"method": method, "bound": bound, "seconds": time.process_time() - began})
        began = time.process_time()
        fresh = Snapshot.of(read_cluster(path), path)
        plan = place_pods(fresh, until=processor_seconds() + limit)
        levels = plan.levels
        most = ", ".join("-" if level.most is None else str(level.most) for level in levels)
        bound = ", ".join(str(level.bound) for level in levels)
        spent = time.process_time() - began
        return [*rows, about | {"method": f"plan, {limit:g} s", "bound": bound, "at most": most, "seconds": spent}]
