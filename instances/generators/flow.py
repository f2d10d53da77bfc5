"""Clusters for flow scheduling: the paper's testbed, a large one with heavy-tailed jobs, and small random ones.

The testbed's workloads and all distributions are reconstructed: the paper gives the cluster and the counts only.
"""

from __future__ import annotations

import numpy as np

from flowlex.instances.flow import Block, Constraint, FlowInstance, FlowJob, FlowTask, Machine, RunningOn
from flowlex.instances.generators.registry import Count, Share, Size, generator
from flowlex.instances.input_errors import InstanceError

_GPU = Constraint(kind="preferred", resources=("gpu",), utility=10)


@generator("flow-testbed")
def flow_testbed(
    *,
    seed: int = 0,
    batch_jobs: Count = 3,
    batch_tasks: Count = 120,
    service_tasks: Count = 40,
    image_tasks: Count = 10,
) -> FlowInstance:
    """Sirius' testbed: 20 servers of 24 slots in 2 racks, GPUs in the first, with batch, service and image jobs.

    - ``batch_jobs``, ``batch_tasks``: batches (priority 2) and the tasks of each; every task reads one block with three
      replicas.
    - ``service_tasks``: tasks of the service job (priority 0), of which up to 20 (one per machine) are guaranteed.
    - ``image_tasks``: tasks of the image job (priority 1), which gains from GPUs.
    """
    rng = np.random.default_rng(seed)
    machines = tuple(
        Machine(name=f"s{k:02}", slots=24, rack=f"rack{k // 10 + 1}", labels=("gpu",) if k < 10 else ())
        for k in range(20)
    )
    jobs = [
        FlowJob(
            name=f"batch{b}",
            priority=2,
            tasks=tuple(
                FlowTask(name=f"batch{b}-{k}", data=(_block(rng, machines, 64),)) for k in range(max(batch_tasks, 1))
            ),
        )
        for b in range(batch_jobs)
    ]
    if service_tasks:
        tasks = tuple(FlowTask(name=f"service-{k}") for k in range(service_tasks))
        jobs.append(FlowJob(name="service", tasks=tasks, priority=0, min_tasks=min(20, service_tasks)))
    if image_tasks:
        tasks = tuple(FlowTask(name=f"image-{k}", constraints=(_GPU,)) for k in range(image_tasks))
        jobs.append(FlowJob(name="image", tasks=tasks, priority=1))
    return FlowInstance(name=f"flow-testbed-{seed}", machines=machines, jobs=tuple(jobs))


@generator("flow-scale")
def flow_scale(
    *,
    seed: int = 0,
    machines: Size = 10_000,
    tasks: Count = 20_000,
    slots: Count = 3,
    machines_per_rack: Size = 40,
    replicas: Count = 3,
    blocks: Count = 2,
    priorities: Size = 12,
    gpu_share: Share = 0.1,
) -> FlowInstance:
    """A large cluster with heavy-tailed jobs as in the Google trace.

    - ``machines``, ``slots``, ``machines_per_rack``: the cluster; ``slots`` per machine.
    - ``tasks``: number of tasks. Job sizes follow a discrete Pareto law of exponent 1.2 (most jobs have one task, a few
      hundreds), cut at a twentieth of all tasks.
    - ``replicas``, ``blocks``: each task reads 1 to ``blocks`` blocks of 64 to 512 MB, each on ``replicas`` machines.
    - ``priorities``: classes 0 .. priorities - 1; middle ones are the commonest.
    - ``gpu_share``: share of machines with a ``gpu``; a twentieth of the jobs prefer one.
    """
    rng = np.random.default_rng(seed)
    labels = rng.random(machines) < gpu_share
    cluster = tuple(
        Machine(
            name=f"m{k}", slots=slots, rack=f"r{k // max(machines_per_rack, 1)}", labels=("gpu",) if labels[k] else ()
        )
        for k in range(machines)
    )
    jobs: list[FlowJob] = []
    left = tasks
    while left:
        job = heavy_tailed_job(
            rng,
            f"j{len(jobs)}",
            cluster,
            most=min(left, max(tasks // 20, 1)),
            replicas=replicas,
            blocks=blocks,
            priorities=priorities,
        )
        jobs.append(job)
        left -= len(job.tasks)
    return FlowInstance(name=f"flow-scale-{machines}-{tasks}-{seed}", machines=cluster, jobs=tuple(jobs))


def heavy_tailed_job(
    rng: np.random.Generator,
    name: str,
    cluster: tuple[Machine, ...],
    *,
    most: int,
    replicas: int = 3,
    blocks: int = 2,
    priorities: int = 12,
) -> FlowJob:
    """A job whose number of tasks has a heavy tail (see `flow_scale`)."""
    size = min(int(1 + rng.pareto(1.2)), most)
    wants_gpu = rng.random() < 0.05
    counts = rng.integers(1, blocks + 1, size=size) if blocks else np.zeros(size, np.int64)
    tasks = tuple(
        FlowTask(
            name=f"{name}-{k}",
            data=tuple(_block(rng, cluster, 64 * int(rng.integers(1, 9)), replicas) for _ in range(int(counts[k]))),
            constraints=(_GPU,) if wants_gpu else (),
        )
        for k in range(size)
    )
    return FlowJob(name=name, tasks=tasks, priority=int(rng.binomial(max(priorities - 1, 0), 0.5)))


@generator("flow-cell")
def flow_cell(
    *,
    seed: int = 0,
    cell: Count = 0,
    cells: Size = 4,
    machines: Size = 2500,
    slots: Size = 2,
    load: Share = 0.9,
    imbalance: Share = 0.0,
    running: Share = 0.5,
    remote: Share = 0.1,
) -> FlowInstance:
    """A cell of a simulated cluster too large for one file: its machines and tasks; some data lie in other cells.

    Make all ``cells`` with one ``seed``; together they are the cluster (``flowlex join``).

    - ``cell``, ``cells``: number of this cell, and how many there are.
    - ``machines``, ``slots``: machines of a cell, in racks of 50, and slots of a machine.
    - ``load``, ``imbalance``: tasks per slot; in a cell up to this share more or fewer. Job sizes follow a discrete
      Pareto law of exponent 1.2 as in the Google trace, cut at a twentieth of the cell's tasks.
    - ``remote``: share of the further replicas in other cells. Each task reads a block of 64 to 512 MB with three
      replicas, the first in its own cell.
    - ``running``: share of the slots with a running task: at its first replica, or anywhere if that machine is full;
      its age is log-normal (median ten minutes).
    """
    if cell >= cells:
        raise InstanceError(f"cell {cell} of {cells} cells; the first is 0")
    rng = np.random.default_rng([seed, cell])
    count = round(machines * slots * load * (1 + imbalance * rng.uniform(-1, 1)))
    sizes = np.minimum(1 + rng.pareto(1.2, count), max(count // 20, 1)).astype(np.int64)
    ends = np.minimum(np.cumsum(sizes), count)
    ends = ends[: int(np.searchsorted(ends, count)) + 1] if count else ends[:0]
    holders = rng.integers(machines, size=(count, 3))
    homes = np.where(rng.random((count, 3)) < remote * np.array([0, 1, 1]), rng.integers(cells, size=(count, 3)), cell)
    size_mb = 64 * rng.integers(1, 9, count)
    ages = np.round(600 * rng.lognormal(size=count), 1)
    free, runs, some = [slots] * machines, dict[int, int](), iter(rng.permutation(machines * slots) // slots)
    for t in rng.permutation(count)[: round(machines * slots * running)].tolist():
        at = int(holders[t, 0])
        while not free[at]:
            at = int(next(some))
        runs[t], free[at] = at, free[at] - 1

    def machine(c: int, m: int, slots: int) -> Machine:
        return Machine(name=f"c{c}-m{m}", slots=slots, rack=f"c{c}-r{m // 50}")

    pairs = list(zip(homes.ravel().tolist(), holders.ravel().tolist(), strict=True))
    others = sorted({pair for pair in pairs if pair[0] != cell})
    names = [f"c{c}-m{m}" for c, m in pairs]
    jobs, start = [], 0
    for j, end in enumerate(ends.tolist()):
        tasks = tuple(
            FlowTask(
                name=f"c{cell}-j{j}-{t - start}",
                data=(Block(size_mb=int(size_mb[t]), machines=tuple(dict.fromkeys(names[3 * t : 3 * t + 3]))),),
                running=RunningOn(machine=f"c{cell}-m{runs[t]}", elapsed_s=float(ages[t])) if t in runs else None,
            )
            for t in range(start, end)
        )
        jobs.append(FlowJob(name=f"c{cell}-j{j}", tasks=tasks))
        start = end
    return FlowInstance(
        name=f"flow-cell-{cell}-of-{cells}-{seed}",
        machines=(*(machine(cell, m, slots) for m in range(machines)), *(machine(c, m, 0) for c, m in others)),
        jobs=tuple(jobs),
    )


@generator("flow-random")
def flow_random(
    *,
    seed: int = 0,
    machines: Count = 6,
    jobs: Count = 4,
    most_tasks: Size = 4,
    most_slots: Count = 2,
    racks: Size = 2,
) -> FlowInstance:
    """A small random instance with every kind of constraint, for tests."""
    rng = np.random.default_rng(seed)
    cluster = tuple(
        Machine(
            name=f"m{k}",
            slots=int(rng.integers(0, most_slots + 1)),
            rack=f"r{int(rng.integers(racks))}",
            labels=tuple(label for label in ("gpu", "ssd") if rng.random() < 0.4),
        )
        for k in range(machines)
    )
    kinds = ("required", "forbidden", "preferred", "avoided")
    made = []
    for j in range(jobs):
        tasks = []
        for k in range(int(rng.integers(1, most_tasks + 1))):
            constraints = [
                Constraint(
                    kind=kinds[int(rng.integers(4))],
                    resources=(("gpu", "ssd", "rack:r0", "machine:m0")[int(rng.integers(4))],),
                    utility=int(rng.integers(1, 6)),
                )
            ][: int(rng.integers(0, 2))]
            data = (_block(rng, cluster, int(rng.integers(1, 9)), 2),) if machines and rng.random() < 0.5 else ()
            tasks.append(FlowTask(name=f"j{j}-{k}", constraints=tuple(constraints), data=data))
        made.append(
            FlowJob(
                name=f"j{j}",
                tasks=tuple(tasks),
                priority=int(rng.integers(0, 4)),
                weight=int(rng.integers(1, 4)),
                max_tasks=int(rng.integers(1, most_tasks + 1)) if rng.random() < 0.3 else None,
            )
        )
    return FlowInstance(name=f"flow-random-{seed}", machines=cluster, jobs=tuple(made))


def _block(rng: np.random.Generator, machines: tuple[Machine, ...], size_mb: int, replicas: int = 3) -> Block:
    chosen = rng.integers(len(machines), size=replicas)
    return Block(size_mb=size_mb, machines=tuple(dict.fromkeys(machines[int(k)].name for k in chosen)))
