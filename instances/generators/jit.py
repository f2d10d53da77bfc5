"""Generators of just-in-time bandwidth instances: the paper's example, its cluster, and random small ones."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from flowlex.instances.generators.neural_networks import NETWORKS, PAPER_TABLE, forward, iteration, table
from flowlex.instances.generators.registry import Count, Rate, Size, chosen, generator
from flowlex.instances.jit import BackgroundCopy, Computation, JitInstance, Job, Machine, Transfer

#: Sizes of the paper's background copies, Gbit.
COPY_GIGABITS = (5, 10, 20, 30, 40)


@generator("jit-figure4")
def jit_figure4(*, seed: int = 0) -> JitInstance:
    """The paper's example of latest arrival times: five computations, four transfers, three machines.

    The DAG's edges are reconstructed from the numbers of the text (T4 waits for T1 through a path of
    computation 1 + 2); ``seed`` has no effect.
    """
    rate = 8.0  # Mbit/s: one MB a second, so that the example's unit sizes and rates read as printed
    machines = tuple(Machine(name=f"m{k}", out_mbps=rate, in_mbps=rate) for k in (1, 2, 3))
    after: tuple[tuple[str, ...], ...] = ((), ("C1",), ("C1",), ("C2", "C3"), ("C4",))
    computations = tuple(
        Computation(name=f"C{k}", seconds=seconds, after=after[k - 1], machine="m3")
        for k, seconds in enumerate((1, 2, 1, 2, 1), start=1)
    )
    transfers = tuple(
        Transfer(name=f"T{k}", size_mb=size, sender=sender, receiver="m3", feeds=f"C{k}")
        for k, (size, sender) in enumerate(((1, "m1"), (2, "m1"), (2, "m2"), (1, "m2")), start=1)
    )
    job = Job(name="job", computations=computations, transfers=transfers)
    return JitInstance(name="jit-figure4", machines=machines, jobs=(job,), slot_s=1.0, unit_mb=0.25)


@generator("jit-cluster")
def jit_cluster(
    *,
    seed: int = 0,
    machines: Annotated[int, Field(ge=2)] = 100,
    rate_mbps: Rate = 1000.0,
    jobs: Count = 10,
    mix: str = "all",
    arrivals_per_s: Rate = 10.0,
    copies: Count = 20,
    slot_s: Rate = 0.1,
    units_per_slot: Size = 10,
    batch: Size = 32,
    gflops: Rate = 50.0,
    placement: Literal["scatter", "worker"] = "scatter",
    phase: Literal["iteration", "forward", "exchange"] = "iteration",
    computing: Rate | None = None,
    scale_to_table: bool = False,
) -> JitInstance:
    """Training iterations of five networks on a cluster, arriving at random, with background copies.

    - ``seed``: of everything random: arrivals, networks, senders and receivers, copies.
    - ``machines``, ``rate_mbps``: number of machines, and the rate of each port in both directions.
    - ``jobs``: number of jobs.
    - ``mix``: networks to draw from in equal shares, joined by commas, or ``all`` (see `NETWORKS`).
    - ``arrivals_per_s``: rate of the Poisson process of arrivals.
    - ``copies``: number of background copies of 5, 10, 20, 30 or 40 Gbit, arriving while the jobs do.
    - ``slot_s``, ``units_per_slot``: planning grid: the unit is what a port sends in one slot, divided by
      ``units_per_slot``.
    - ``batch``, ``gflops``: samples of an iteration, and speed of a machine in Gflop/s; together they give the compute
      times.
    - ``placement``: ``scatter``: a random sender and receiver for every transfer (the paper's words). ``worker``: one
      random receiver per job, a random sender per transfer (a parameter-server job).
    - ``phase``: ``iteration``: forward and backward pass and updates. ``forward``: only the forward pass, which waits
      for the parameters. ``exchange``: an iteration that also returns every gradient to the sender of its tensor as
      soon as the backward pass has computed it; the update waits for it.
    - ``computing``: ratio of a job's computing time to the time in which one port sends its transfers; replaces
      ``gflops``.
    - ``scale_to_table``: scale the tensors of a network so that their total is the one printed in the paper's table.

    Source: docs/papers/jit-bandwidth.md. Speed, batch and arrival rate are not in the paper.
    """
    networks = list(NETWORKS) if mix == "all" else chosen("mix", mix, {name: name for name in NETWORKS}, "network")
    rng = np.random.default_rng(seed)
    names = [f"m{k:0{len(str(machines - 1))}d}" for k in range(machines)]
    arrivals = np.cumsum(rng.exponential(1 / arrivals_per_s, jobs))
    drawn = [networks[k] for k in rng.integers(len(networks), size=jobs).tolist()]
    made = tuple(
        network_job(
            drawn[k],
            name=f"job{k:03d}-{drawn[k]}",
            arrival_s=round(float(arrivals[k]), 6),
            machines=names,
            rng=rng,
            seconds_per_flop=batch / (gflops * 1e9),
            placement=placement,
            phase=phase,
            computing_s_per_mb=None if computing is None else computing * 8 / rate_mbps,
            scale_to_table=scale_to_table,
        )
        for k in range(jobs)
    )
    end = float(arrivals[-1]) if jobs else 1.0
    return JitInstance(
        name=f"jit-cluster-{jobs}x{machines}-{seed}",
        machines=tuple(Machine(name=name, out_mbps=rate_mbps, in_mbps=rate_mbps) for name in names),
        jobs=made,
        copies=_copies(copies, end, names, rng),
        slot_s=slot_s,
        unit_mb=rate_mbps / 8 * slot_s / units_per_slot,
    )


def network_job(
    network: str,
    *,
    name: str,
    arrival_s: float,
    machines: list[str],
    rng: np.random.Generator,
    seconds_per_flop: float,
    placement: str = "scatter",
    phase: str = "iteration",
    computing_s_per_mb: float | None = None,
    scale_to_table: bool = False,
) -> Job:
    """One training iteration of a network as a job; every parameter tensor is a transfer.

    ``seconds_per_flop`` is the computing time per operation of one sample (batch size over machine speed);
    ``computing_s_per_mb``, the total computing time per MB of transfers, replaces it. Others are as in `jit_cluster`.
    """
    tensors = [(o.name, tensor, floats) for o in forward(network) for tensor, floats in o.tensors]
    scale = PAPER_TABLE[network].mebibytes / table(network).mebibytes if scale_to_table else 1.0
    receiver = rng.integers(len(machines), size=len(tensors))
    if placement == "worker":
        receiver[:] = receiver[0]
    sender = (receiver + rng.integers(1, len(machines), size=len(tensors))) % len(machines)
    steps = iteration(network)
    if phase == "forward":
        passed = {operation.name for operation in forward(network)}
        steps = tuple(step for step in steps if step.name in passed)
    if computing_s_per_mb is not None:
        volume = sum(floats for _, _, floats in tensors) * 4 / 1e6 * scale
        seconds_per_flop = computing_s_per_mb * volume / sum(step.flops for step in steps)
    home = {operation: machines[receiver[k]] for k, (operation, _, _) in enumerate(tensors)}
    computations = tuple(
        Computation(
            name=step.name,
            seconds=step.flops * seconds_per_flop,
            after=step.after,
            machine=home.get(step.name),
        )
        for step in steps
    )
    transfers = tuple(
        Transfer(
            name=tensor,
            size_mb=floats * 4 / 1e6 * scale,
            sender=machines[sender[k]],
            receiver=machines[receiver[k]],
            feeds=operation,
        )
        for k, (operation, tensor, floats) in enumerate(tensors)
    )
    if phase == "exchange":
        source = {step.name: step.after[0] for step in steps if step.name.endswith(".update")}
        transfers += tuple(
            Transfer(
                name=f"{t.name}.gradient",
                size_mb=t.size_mb,
                sender=t.receiver,
                receiver=t.sender,
                feeds=f"{t.name}.update",
                made_by=source[f"{t.name}.update"],
            )
            for t in transfers
        )
    return Job(name=name, arrival_s=arrival_s, computations=computations, transfers=transfers)


@generator("jit-random")
def jit_random(
    *,
    seed: int = 0,
    machines: Annotated[int, Field(ge=2)] = 3,
    jobs: Count = 2,
    transfers: Count = 3,
    slots: Size = 4,
    capacity: Size = 3,
    largest: Size = 4,
    deadlines: bool = True,
) -> JitInstance:
    """Small random jobs for tests: slots of one second, units of one MB, integer sizes.

    - ``machines``, ``jobs``: number of each.
    - ``transfers``: transfers per job; each feeds a separate computation in a random DAG.
    - ``slots``: every window lies in slots ``0 .. slots - 1``.
    - ``capacity``: units per slot and port.
    - ``largest``: largest size in units.
    - ``deadlines``: give every transfer a window by ``ready_s`` and ``deadline_s``; otherwise the DAG decides.
    """
    rng = np.random.default_rng(seed)
    names = [f"m{k}" for k in range(machines)]
    made = []
    for j in range(jobs):
        count = max(transfers, 1)
        computations = tuple(
            Computation(
                name=f"c{k}",
                seconds=float(rng.integers(0, 3)),
                after=tuple(f"c{b}" for b in range(k) if rng.random() < 0.4),
            )
            for k in range(count)
        )
        parts = []
        for k in range(transfers):
            sender, step = int(rng.integers(machines)), int(rng.integers(1, machines))
            first = int(rng.integers(slots))
            last = int(rng.integers(first + 1, slots + 1))
            most = min(largest, capacity * (last - first)) if deadlines else largest
            parts.append(
                Transfer(
                    name=f"t{k}",
                    size_mb=float(rng.integers(1, most + 1)),
                    sender=names[sender],
                    receiver=names[(sender + step) % machines],
                    feeds=f"c{k}",
                    ready_s=float(first) if deadlines else 0.0,
                    deadline_s=float(last) if deadlines else None,
                )
            )
        made.append(Job(name=f"job{j}", computations=computations, transfers=tuple(parts)))
    return JitInstance(
        name=f"jit-random-{seed}",
        machines=tuple(Machine(name=n, out_mbps=8.0 * capacity, in_mbps=8.0 * capacity) for n in names),
        jobs=tuple(made),
        slot_s=1.0,
        unit_mb=1.0,
    )


def _copies(count: int, end: float, machines: list[str], rng: np.random.Generator) -> tuple[BackgroundCopy, ...]:
    sender = rng.integers(len(machines), size=count)
    receiver = (sender + rng.integers(1, len(machines), size=count)) % len(machines)
    gigabits = rng.choice(np.array(COPY_GIGABITS), size=count)
    arrival = np.sort(rng.uniform(0.0, end, size=count))
    return tuple(
        BackgroundCopy(
            name=f"copy{k:03d}",
            size_mb=float(gigabits[k]) * 125.0,
            sender=machines[sender[k]],
            receiver=machines[receiver[k]],
            arrival_s=round(float(arrival[k]), 6),
        )
        for k in range(count)
    )
