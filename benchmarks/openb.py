"""The published comparison of policies on the openb trace (GPU allocation over submitted load), with our policies.

Online: `fgd` with at most one move of a placed pod for an arrival that does not fit. Hindsight: GPU-weighted admission
over all submitted pods, with its certified bound. Published: means of ten seeds in the expected results of the
comparison's own simulator (Weng et al., *Beware of Fragmentation*, section 6).
"""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import Row, Tables
from flowlex.formulations.solver_outcome import SolveOptions
from flowlex.instances.generators import generate
from flowlex.instances.pods import PodInstance
from flowlex.models.pods.methods.placement_policies import POLICIES
from flowlex.models.pods.model import PodPlacement
from flowlex.models.pods.online_arrivals import ArrivalCurve, gpus_of, submit_all
from flowlex.systems.traces.openb import read_openb

#: Folder of the trace; FLOWLEX_OPENB overrides it.
TRACE = Path(os.environ.get("FLOWLEX_OPENB", Path(__file__).parents[1].parent / "shared" / "data" / "openb"))
#: Time limit of a whole placement, in seconds.
LIMIT = 240
LOADS = (0.9, 0.95, 1.0, 1.3)
#: Percent of all GPUs at 100 % of submitted load.
PUBLISHED = {"random": 85.4, "dot-product": 90.6, "gpu-clustering": 91.7, "gpu-packing": 91.8, "best-fit": 92.8,
             "fgd": 95.2}  # fmt: skip


def tables(quick: bool = False) -> Tables:
    if not TRACE.is_dir():
        raise FileNotFoundError(f"{TRACE} is not there; set FLOWLEX_OPENB to the folder of the openb lists")
    seeds, seen = range(42, 43 if quick else 52), range(42, 43 if quick else 45)
    rows = [_hindsight(seed, load) for seed in seen for load in LOADS[2:]]  # at lower loads, all submitted pods fit
    return [
        (f"GPUs allocated, percent of all, mean of {len(seeds)} seeds", _policies(seeds)),
        ("The trace, by strict priority, and clusters made from it", [_whole(*case) for case in _wholes(quick)]),
        ("Hindsight: most GPUs of what was submitted, percent of all", rows),
        (f"Hindsight, mean of {len(seen)} seeds", _means(rows)),
    ]


def _means(rows: list[Row]) -> list[Row]:
    """Return the means over seeds and the largest gap, by load."""
    table = pd.DataFrame(rows).groupby("submitted", sort=False)
    means = table[["hindsight", "bound"]].mean().round(2).assign(**{"largest gap %": table["gap %"].max()})
    return [{"submitted": load, **row} for load, row in means.to_dict("index").items()]


def _instance(seed: int) -> PodInstance:
    lists = {"nodes": TRACE / "openb_node_list_gpu_node.csv.gz", "pods": TRACE / "openb_pod_list_default.csv.gz"}
    instance: Any = generate("openb-arrivals", seed=seed, **lists)
    return instance


def _wholes(quick: bool) -> list[tuple[str, PodInstance]]:
    pods = TRACE / "openb_pod_list_default.csv.gz"
    gpu, every = (read_openb(TRACE / f"openb_node_list_{which}_node.csv.gz", pods) for which in ("gpu", "all"))
    cases = [("GPU nodes", gpu)] if quick else [("GPU nodes", gpu), ("all nodes", every)]
    return cases if quick else [*cases, ("drawn from all", drawn(every, 5_000, 20_000))]


def drawn(trace: PodInstance, nodes: int, pods: int, seed: int = 0) -> PodInstance:
    """Draw nodes and pods from a trace, with replacement."""
    rng = np.random.default_rng(seed)
    chosen = [
        [part[k].model_copy(update={"name": f"{i + 1}-{part[k].name}"}) for i, k in enumerate(picks.tolist())]
        for part, picks in (
            (trace.nodes, rng.integers(len(trace.nodes), size=nodes)),
            (trace.pods, rng.integers(len(trace.pods), size=pods)),
        )
    ]
    return PodInstance(name=f"{trace.name}-{nodes}x{pods}", nodes=tuple(chosen[0]), pods=tuple(chosen[1]))


def _whole(name: str, instance: PodInstance) -> Row:
    """Admit by priority, then balance to a gap of 1 %; report the peak memory, too."""
    started, wall = time.process_time(), time.perf_counter()
    found = PodPlacement(instance, absolute_gap=0.001).solve("highs", gap=0.01, time_limit_s=LIMIT)
    assert found.certificate is not None
    row: Row = {"nodes": f"{name} ({len(instance.nodes)})", "pods": len(instance.pods)}
    row["admitted"] = ", ".join(f"{many:g} of {most:g}" for many, _, most in found.admitted.values())
    many, _, most = list(found.admitted.values())[-1]
    row["last gap %"] = round(100 * (most / many - 1), 2)
    row |= {"deviation": found.objective, "proven": found.bound, "claim": found.certificate.claim}
    row |= {"cpu s": round(time.process_time() - started, 1), "wall s": round(time.perf_counter() - wall, 1)}
    return row | {"peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}


def _curves(seed: int) -> dict[str, ArrivalCurve]:
    instance = _instance(seed)
    curves = {policy: submit_all(instance, policy, seed=seed) for policy in POLICIES}
    return curves | {"online (fgd, one move)": submit_all(instance, "fgd", moves=1, seed=seed)}


def _policies(seeds: range) -> list[Row]:
    runs = [_curves(seed) for seed in seeds]
    rows: list[Row] = []
    for name in runs[0]:
        at = 100 * np.array([[run[name].at(load) for load in LOADS] for run in runs])
        row: Row = {"policy": name}
        row |= {f"at {load:.0%}": round(float(mean), 2) for load, mean in zip(LOADS, at.mean(axis=0), strict=True)}
        row |= {"least at 100%": round(float(at[:, 2].min()), 2), "most at 100%": round(float(at[:, 2].max()), 2)}
        rows.append(row | {"published at 100%": PUBLISHED.get(name, ""), "moves": runs[0][name].moved})
    return rows


def _hindsight(seed: int, load: float) -> Row:
    """Maximise the GPUs of admitted pods among those submitted up to ``load``; report bound and processor seconds."""
    whole = _instance(seed)
    view = whole.arrays
    until = int(np.searchsorted(np.cumsum(gpus_of(view)) / view.cards.sum(), load, side="right"))
    instance = whole.model_copy(update={"pods": whole.pods[:until]})
    started = time.process_time()
    model = PodPlacement(instance, admission="weighted", worth="gpu")
    found = model._admit("highs", SolveOptions())
    unit, cards = float(model.levels.unit[0]), float(view.cards.sum())
    got, most = (100 * units * unit / cards for units in (found.admitted[0], found.most[0]))
    row: Row = {"seed": seed, "submitted": f"{load:.0%}", "hindsight": round(got, 2), "bound": round(most, 2)}
    return row | {"gap %": round(100 * (most - got) / got, 3), "cpu s": round(time.process_time() - started, 1)}


def draw(path: str | Path, seed: int = 42) -> None:
    """Plot one seed: fraction of unallocated GPUs over submitted load."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.5))
    for name, curve in _curves(seed).items():
        axes.plot(100 * curve.submitted, 100 * (1 - curve.allocated), label=name, lw=2 if "online" in name else 1)
    axes.plot([0, 100], [100, 0], ":", color="gray", label="all that is submitted")
    axes.set(xlim=(75, 120), ylim=(0, 25), xlabel="submitted, % of all GPUs", ylabel="not allocated, % of all GPUs")
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=100)
