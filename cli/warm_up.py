"""``flowlex warm-up``: compile the numerical loops now, so that the first use need not wait for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated

import typer

from flowlex.cli.console_output import console, rows_table
from flowlex.instances.registered_systems import load, registered


def _networks() -> None:
    import numpy as np

    from flowlex.formulations.engines.cost_scaling import scale_costs
    from flowlex.instances import generate
    from flowlex.models.registry import solve

    for name in ("network-random", "network-assignment"):
        solve(generate(name), "network")
    ends, ones = np.arange(3), np.ones(2, np.int64)
    scale_costs(ends[:2], ends[1:], ones, ones, 1 - ends, 1000)


def _pods() -> None:
    from flowlex.instances import generate
    from flowlex.instances.pods import PodInstance
    from flowlex.models.pods.online_arrivals import live_through
    from flowlex.models.registry import solve

    instance = generate("kubeflow-testbed")
    solve(instance, max_steps=2000)
    if isinstance(instance, PodInstance):
        live_through(instance, moves=1)


def _unimodularity() -> None:
    from flowlex.validation.unimodularity import examples
    from flowlex.validation.unimodularity.check import check

    check(examples.graphic_and_cographic(12, 22))
    check(examples.two_sum(examples.r10(), examples.r10()), method="sums")


def runs() -> dict[str, Callable[[], None]]:
    """Users of compiled loops, and a small run of each; systems register theirs."""
    ours = {"engine network": _networks, "pod placement": _pods, "tu, integers, claims": _unimodularity}
    return ours | {name: load(place) for name, place in registered("WARM_UPS").items()}


def warm_up(
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing, for scripts and images.")] = False,
) -> None:
    """Compile the numerical loops now, so that the first use need not wait; a second run finds them compiled.

    They are kept beside the package or in the user's cache folder (NUMBA_CACHE_DIR names another).
    """
    from flowlex.formulations import deferred_compilation
    from flowlex.formulations.numba_cache import announce, compilations

    announce(False)

    rows = []
    for what, run in runs().items():
        if not quiet:
            typer.echo(f"{what} ...", err=True)
        before, started = compilations(), time.perf_counter()
        with deferred_compilation.always_compiled():  # the runs are small; those of users are not
            run()
        rows.append((what, compilations() - before, round(time.perf_counter() - started, 2)))
    if not quiet:
        console().print(rows_table("Compiled loops", ("used by", "compiled now", "seconds"), rows))
