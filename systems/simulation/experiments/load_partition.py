"""Load partition over time: Hu et al., Computer Systems & Applications 28(11), 2019.

Four equal workers process 400 items while other programs run on them. Each run: read the values last stored by the
service, evaluate, partition (`LoadPartition`), dispatch, process, time every node, write the history. The speed of a
node is the free fraction of its processor to the power ``sensitivity`` (1: the program needs only the processor).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from flowlex.instances.load import Block, LoadNode, LoadPartitionInstance, RunRecord
from flowlex.models.load.model import LoadPartition
from flowlex.systems.simulation.event_queue import Kernel
from flowlex.systems.simulation.random_streams import Streams
from flowlex.systems.telemetry.instance_from_service import from_telemetry

Floats = NDArray[np.float64]
_WORKERS, _ITEMS, _ITEM_S = 4, 400, 0.5
_STEP_S, _REST_S = 1.0, 5.0
_EVALUATIONS = ("configuration", "cpu_load", "history")


class Information(Protocol):
    """A running node information service, empty at first."""

    @property
    def url(self) -> str:
        """Address of the service."""
        ...

    def write(self, node: str, name: str, value: Any) -> None:
        """Store a value of a node."""
        ...


class _Workers:
    """Nodes with drifting background load, of which a service stores a noisy value at intervals."""

    def __init__(self, seed: int, noise: float, drift: float, sensitivity: float, interval_s: float) -> None:
        streams = Streams(seed)
        self.walk, self.measure = streams.of("background"), streams.of("measurement")
        self.noise, self.drift, self.sensitivity, self.interval_s = noise, drift, sensitivity, interval_s
        self.busy: Floats = streams.of("start").uniform(0.05, 0.75, _WORKERS)
        self.kernel = Kernel()
        self.stored = self._sample()
        self.stored_s = 0.0
        self.history: list[list[RunRecord]] = [[] for _ in range(_WORKERS)]
        self.kernel.after(_STEP_S, self._background)
        self.kernel.after(interval_s, self._collect)

    def _background(self) -> None:
        """Change the load of other programs: a random walk between 5 and 75 % of the processor."""
        self.busy = np.clip(self.busy + self.walk.normal(0.0, self.drift, _WORKERS), 0.05, 0.75)
        self.kernel.after(_STEP_S, self._background)

    def _sample(self) -> Floats:
        free: Floats = np.clip(1.0 - self.busy + self.measure.normal(0.0, self.noise, _WORKERS), 0.02, 1.0)
        return free

    def _collect(self) -> None:
        self.stored, self.stored_s = self._sample(), self.kernel.now_s
        self.tell("cpu_free", self.stored.tolist())
        self.kernel.after(self.interval_s, self._collect)

    def tell(self, name: str, values: list[Any]) -> None:
        """Report new values of all nodes; without a service, they are only kept here."""

    def shares(self, evaluation: str) -> list[int]:
        """Partition by an evaluation, with the model."""
        nodes = tuple(
            LoadNode(
                name=f"w{k}",
                configuration=1.0,
                cpu_free=float(self.stored[k]),
                cpu_required=1.0,
                history=tuple(self.history[k][-3:]) or (RunRecord(items=1, seconds=_ITEM_S),),
            )
            for k in range(_WORKERS)
        )
        blocks = tuple(Block(name=f"b{k}", items=_ITEMS // _WORKERS, holders=(f"w{k}",)) for k in range(_WORKERS))
        model = LoadPartition(LoadPartitionInstance(nodes=nodes, blocks=blocks), capacity=evaluation)  # type: ignore[arg-type]
        return [int(target) for target in model.targets.tolist()]

    def process(self, items: list[int]) -> Floats:
        """Let every node process its items; return the seconds of each, and write the history."""
        begun, left = self.kernel.now_s, np.array(items, float)
        finish = np.where(left > 0, np.inf, 0.0)
        while not np.isfinite(finish).all():
            speed = (1.0 - self.busy) ** self.sensitivity / _ITEM_S
            until = min(self.kernel.next_s(), self.kernel.now_s + float((left / speed)[left > 0].min()))
            seconds = until - self.kernel.now_s
            left = np.where(left > speed * seconds + 1e-9, left - speed * seconds, 0.0)
            self.kernel.run(until)
            finish = np.where((left <= 0) & np.isinf(finish), self.kernel.now_s - begun, finish)
        for k, count in enumerate(items):
            if count:
                self.history[k].append(RunRecord(items=count, seconds=float(finish[k])))
        return finish


class _Served(_Workers):
    """Workers whose values the scheduler reads from a running service, with a prefix for their data names."""

    def __init__(self, service: Information, prefix: str, *setting: Any) -> None:
        self.service, self.prefix = service, prefix
        super().__init__(*setting)
        self.tell("cpu_cores", [1.0] * _WORKERS)
        self.tell("items", [_ITEMS // _WORKERS] * _WORKERS)
        self.tell("cpu_free", self.stored.tolist())
        self.tell("processing_speed", [1.0 / _ITEM_S] * _WORKERS)

    def tell(self, name: str, values: list[Any]) -> None:
        """Write the values to the service, as collectors do."""
        for k, value in enumerate(values):
            self.service.write(f"w{k}", f"{self.prefix}.{name}", value)

    def shares(self, evaluation: str) -> list[int]:
        """Partition with the model, from the values of the service."""
        known = ("items", "cpu_cores", "cpu_free", "processing_speed")
        names = {name: f"{self.prefix}.{name}" for name in known}
        instance = from_telemetry(self.service.url, names=names, max_age_s=3600.0)
        model = LoadPartition(instance, capacity=evaluation)  # type: ignore[arg-type]
        return [int(target) for target in model.targets.tolist()]

    def process(self, items: list[int]) -> Floats:
        """Let every node process its items; write its run, and its speed over the last three runs, to the service."""
        finish = super().process(items)
        self.tell("run_history", [[record.items, record.seconds] for record in (runs[-1] for runs in self.history)])
        done = [[(record.items, record.seconds) for record in runs[-3:]] for runs in self.history]
        self.tell("processing_speed", [sum(n for n, _ in runs) / sum(s for _, s in runs) for runs in done])
        return finish


def served(
    seed: int, quick: bool, *, service: Information, drift: float = 0.01, noise: float = 0.1, interval_s: float = 10.0
) -> Mapping[str, float]:
    """The closed loop: read the service, partition, dispatch, run, time, write the history, partition again."""
    numbers: dict[str, float] = {}
    for evaluation in _EVALUATIONS:
        workers = _Served(service, evaluation, seed, noise, drift, 0.6, interval_s)
        ends = _ends(workers, evaluation, 3 if quick else 8)
        uneven = np.ptp(ends, axis=1) / ends.mean(axis=1)
        for run, (finish, apart) in enumerate(zip(ends.max(axis=1).tolist(), uneven.tolist(), strict=True), start=1):
            numbers |= {f"finish_{evaluation}@{run}": finish, f"uneven_{evaluation}@{run}": apart}
        numbers[f"uneven_{evaluation}"] = float(uneven[1:].mean())
    return numbers


def _ends(workers: _Workers, evaluation: str, runs: int) -> Floats:
    """(runs, workers) seconds of each worker in each run."""
    ends = []
    for _ in range(runs):
        ends.append(workers.process(workers.shares(evaluation)))
        workers.kernel.run(workers.kernel.now_s + _REST_S)
    return np.array(ends)


#: Times within a run, as fractions of the mean finish.
_MOMENTS = np.arange(0, 41) / 20


def evaluations(
    seed: int,
    quick: bool,
    *,
    noise: float = 0.1,
    drift: float = 0.01,
    sensitivity: float = 0.6,
    interval_s: float = 10.0,
) -> Mapping[str, float]:
    """Measure unevenness ((last - first) / mean finish) and finish by evaluation; the first run is warm-up."""
    numbers = {}
    for evaluation in _EVALUATIONS:
        workers = _Workers(seed, noise, drift, sensitivity, interval_s)
        ends = _ends(workers, evaluation, 4 if quick else 12)[1:]
        numbers[f"uneven_{evaluation}"] = float((np.ptp(ends, axis=1) / ends.mean(axis=1)).mean())
        numbers[f"finish_s_{evaluation}"] = float(ends.max(axis=1).mean())
        after = ends / ends.mean(axis=1, keepdims=True)
        numbers |= {f"at_work_{evaluation}@{x:g}": float((after > x).sum(axis=1).mean()) for x in _MOMENTS}
    return numbers


def changes(seed: int, quick: bool, *, calm: float = 0.002, wild: float = 0.1) -> Mapping[str, float]:
    """Measure the history evaluation in a calm and in a changing environment."""
    measure = partial(evaluations, seed, quick)
    before, after = measure(drift=calm), measure(drift=wild)
    return {"uneven_calm": before["uneven_history"], "uneven_wild": after["uneven_history"]}


def reading(seed: int, quick: bool, *, collect_s: float = 0.5, drift: float = 0.02) -> Mapping[str, float]:
    """Compare reading stored values with collecting on request: age and error of values, waiting time saved."""
    workers = _Workers(seed, 0.0, drift, 1.0, 10.0)
    reads = Streams(seed).of("reads")
    age, error, waiting = [], [], []
    for _ in range(50 if quick else 500):
        workers.kernel.run(workers.kernel.now_s + float(reads.exponential(7.0)))
        age.append(workers.kernel.now_s - workers.stored_s)
        error.append(float(np.abs(workers.stored - (1.0 - workers.busy)).mean()))
        waiting.append(float(reads.exponential(collect_s, _WORKERS).max()))  # a synchronous read waits for the slowest
    return {"age_s": float(np.mean(age)), "error": float(np.mean(error)), "synchronous_s": float(np.mean(waiting))}
