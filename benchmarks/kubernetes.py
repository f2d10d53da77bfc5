"""``flowlex place`` on drawn clusters: one-by-one passes, the plan and the proven most by priority, and
seconds of processor and wall, with the import of 50 000 pods."""

from __future__ import annotations

import json
import tempfile
import time
import warnings
from pathlib import Path

from benchmarks import Row, Tables
from flowlex.formulations.processor_clock import processor_seconds
from flowlex.systems.kubernetes.drawn_clusters import drawn_cluster
from flowlex.systems.kubernetes.objects import read_cluster
from flowlex.systems.kubernetes.one_by_one import SCORES, one_by_one
from flowlex.systems.kubernetes.placement_instance import Snapshot, read_kubernetes
from flowlex.systems.kubernetes.placement_plan import place_pods

#: Nodes, waiting pods, seconds of the plan.
SIZES = ((30, 200, 10), (300, 500, 20), (1000, 2000, 30))


#: Nodes and running pods of the import.
_IMPORT = (1000, 50_000)


def tables(quick: bool = False) -> Tables:
    rows: list[Row] = []
    for nodes, waiting, limit in SIZES[: 1 if quick else 3]:
        for rules in (True, False):
            rows += _cluster(nodes, waiting, 2 if quick else limit, rules)
    nodes, pods = (30, 300) if quick else _IMPORT
    return [
        ("Waiting pods bound by priority (1000, 100, 10, 0), with reading the objects", rows),
        ("Import of a cluster as an instance", [_import(nodes, pods)]),
    ]


class _Clock:
    """Processor and wall seconds since it was made."""

    def __init__(self) -> None:
        self.processor, self.wall = time.process_time(), time.perf_counter()

    def spent(self) -> Row:
        return {
            "processor seconds": time.process_time() - self.processor,
            "wall seconds": time.perf_counter() - self.wall,
        }


def _written(folder: str, objects: object) -> Path:
    path = Path(folder) / "objects.json"
    path.write_text(json.dumps(objects), encoding="utf-8")
    return path


def _cluster(nodes: int, waiting: int, limit: float, rules: bool) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        path = _written(folder, drawn_cluster(nodes, waiting, rules=rules, seed=1))
        about: Row = {"nodes": nodes, "waiting": waiting, "affinity and spread": "yes" if rules else "no"}
        rows: list[Row] = []
        for method, scores in (("default scheduler's order", SCORES[:1]), ("best of the passes (first plan)", SCORES)):
            clock = _Clock()
            snapshot = Snapshot.of(read_cluster(path), path)
            counts = one_by_one(snapshot.cluster, snapshot.first_state, scores=scores).counts()
            bound = ", ".join(str(counts.get((p, False), 0)) for p in (1000, 100, 10, 0))
            rows.append(about | {"method": method, "bound": bound} | clock.spent())
        clock, until = _Clock(), processor_seconds() + limit
        levels = place_pods(Snapshot.of(read_cluster(path), path), until=until).levels
        most = ", ".join("-" if level.most is None else str(level.most) for level in levels)
        bound = ", ".join(str(level.bound) for level in levels)
        return [*rows, about | {"method": f"plan, {limit:g} s", "bound": bound, "at most": most} | clock.spent()]


def _import(nodes: int, pods: int) -> Row:
    """Import a drawn cluster with small running pods beside it, each as long as the API server prints them."""
    drawn = drawn_cluster(nodes, pods // 25, seed=1)
    fields = [{"manager": "kubelet", "fieldsV1": {f"f:condition-{k}": {"f:status": {}} for k in range(60)}}]
    asked = {"requests": {"cpu": "10m", "memory": "16Mi"}}
    for k in range(pods - (len(drawn["items"]) - nodes)):
        meta = {
            "name": f"small-{k}",
            "namespace": f"team-{k % 40}",
            "labels": {"app": f"a{k % 500}"},
            "uid": f"small-{k}",
        }
        spec = {"nodeName": f"node-{k % nodes:04d}", "containers": [{"name": "main", "resources": asked}]}
        status = {"phase": "Running"}
        drawn["items"].append(
            {"kind": "Pod", "metadata": meta | {"managedFields": fields}, "spec": spec, "status": status}
        )
    with tempfile.TemporaryDirectory() as folder:
        path = _written(folder, drawn)
        listed, megabytes = len(drawn["items"]) - nodes, path.stat().st_size / 1e6
        del drawn
        clock = _Clock()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read_kubernetes(path)
        return {"nodes": nodes, "pods": listed, "MB": megabytes} | clock.spent()
