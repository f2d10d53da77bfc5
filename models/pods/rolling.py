"""Past the size of one program: pods are admitted and placed in windows of priority order.

The pods that wait are taken most important first, so many at a time. Each window is solved as `PodPlacement` solves
it, with proof, among what the windows before have placed, which stays where it is (``fixed``) or may move within
the window's budget (``movable``). Windows never split a priority's claim: a later window only gets what the earlier
ones leave over, so that a less important pod never takes the place of one that a window admitted.

This is a heuristic, and its answer says so: each window is proven, the whole is not. Within one priority a window may
admit less than one program over all pods would, and so may the next priorities. Beside the answer stands what is
proven about the whole: the most pods of each priority by node classes, given the more important ones as admitted,
and a lower bound on the balance of the placement's admitted numbers by the linear relaxation.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from flowlex.formulations.expression import Integers
from flowlex.formulations.outcome import EngineName, SolveOptions
from flowlex.instances.pods import PodInstance
from flowlex.models.base import ModelError
from flowlex.models.pods.admission import class_bound
from flowlex.models.pods.balance import relaxed_bound
from flowlex.models.pods.problem.balance_program import Balance
from flowlex.models.pods.problem.cluster import Cluster
from flowlex.models.pods.solution import pack_cards, placement_cluster
from flowlex.validation.certificates.certificate import Certificate, Check
from flowlex.validation.certificates.pods import balance_of, check_placement

if TYPE_CHECKING:
    import pandas as pd

    from flowlex.models.pods.model import PodPlacement

__all__ = ["RollingPlacement", "Window", "place_rolling"]


@dataclass(frozen=True)
class Window:
    """One step.

    Attributes
    ----------
    pods, admitted
        Pods that it tried to place, and how many it placed.
    status, gap
        Of the window's own balance.
    seconds
        Time taken.
    """

    pods: int
    admitted: int
    status: str
    gap: float | None
    seconds: float


@dataclass(frozen=True)
class RollingPlacement:
    """What the windows made together.

    Attributes
    ----------
    node
        (P,) node of each pod, -1 when it waits.
    cluster
        The placement.
    balance, bound
        Of the whole; the bound holds for every placement that admits as many of each priority.
    admitted
        Priority to (admitted, wanted, at most possible given the more important ones).
    certificate
        The whole placement recomputed from the instance.
    """

    instance: PodInstance = field(repr=False)
    node: Integers = field(repr=False)
    cluster: Cluster = field(repr=False)
    balance: float
    bound: float
    admitted: dict[int, tuple[int, int, int]]
    windows: tuple[Window, ...]
    certificate: Certificate = field(repr=False)

    def to_frame(self) -> pd.DataFrame:
        """One row per window."""
        import pandas as pd

        return pd.DataFrame([vars(window) for window in self.windows])


def place_rolling(
    instance: PodInstance,
    *,
    window: int = 500,
    balance: Balance = "deviation",
    cards: bool = True,
    movable: float = 0.0,
    engine: EngineName = "highs",
    options: SolveOptions | None = None,
) -> RollingPlacement:
    """Place an instance window by window (see the module).

    Parameters
    ----------
    window
        Pods per window, at least 1; a window may hold several priorities, which its own phase 1 keeps strict.
    movable
        So many pods of earlier windows may move in each later window; 0 keeps what a window placed.
    options
        The gap is that of each window, the time limit of all together; 1 % and 120 s by default.

    Raises
    ------
    ModelError
        An option is wrong, or what runs already does not fit.
    """
    from flowlex.models.pods.model import PodPlacement

    if window < 1:
        raise ModelError(f"window must be at least 1 pod, got {window}")
    if not movable >= 0:
        raise ModelError(f"movable must be at least 0 pods, got {movable}")
    view = instance.arrays
    fresh = np.flatnonzero(view.running < 0)
    order = fresh[np.lexsort((fresh, -view.priority[fresh]))]
    where, windows, used = view.running.copy(), [], {}
    options = options or SolveOptions(gap=0.01, time_limit_s=120.0)
    rest = {name: getattr(options, name) for name in SolveOptions.__dataclass_fields__ if name != "time_limit_s"}
    ends = time.perf_counter() + (options.time_limit_s or 120.0)
    starts = range(0, max(1, len(order)), window)
    for k, start in enumerate(starts):
        begun = time.perf_counter()
        limit = max(0.5, (ends - begun) / (len(starts) - k))  # what a window leaves goes to the others
        taken = order[start : start + window]
        step, pods = _window(instance, where, taken, movable)
        model = PodPlacement(step, balance=balance, cards=cards, move_budget=movable)
        solution = model.solve(engine, **rest, time_limit_s=limit)
        solution.require_answer()
        where[pods] = solution.node
        assert solution.cluster is not None
        used = {int(pods[p]): chosen for p, chosen in solution.cluster.used_cards.items()}
        admitted = int((where[taken] >= 0).sum())
        windows.append(Window(len(taken), admitted, str(solution.status), solution.gap, time.perf_counter() - begun))
    cluster = pack_cards(instance, where, used) if cards else placement_cluster(instance, where, cards=False)
    return _judged(PodPlacement(instance, balance=balance, cards=cards), cluster, tuple(windows), engine, options)


def _window(instance: PodInstance, where: Integers, taken: Integers, movable: float) -> tuple[PodInstance, Integers]:
    """The instance of one window, and which pods it holds: those placed before, and those it is about."""
    old = instance.arrays.running >= 0
    pods = np.flatnonzero((where >= 0) | np.isin(np.arange(len(where)), taken))
    entries = []
    for p in pods.tolist():
        pod = instance.pods[p]
        if old[p]:
            entries.append(pod.model_copy(update={"move_cost": None}))
        elif where[p] >= 0:
            cost = 1.0 if movable else None
            entries.append(pod.model_copy(update={"node": instance.nodes[where[p]].name, "move_cost": cost}))
        else:
            entries.append(pod)
    return instance.model_copy(update={"pods": tuple(entries)}), pods


def _judged(
    model: PodPlacement, cluster: Cluster, windows: tuple[Window, ...], engine: EngineName, options: SolveOptions
) -> RollingPlacement:
    """Certify the whole and bound it."""
    instance, view = model.instance, model.instance.arrays
    value = balance_of(cluster.loads, model.balance)
    checks = check_placement(
        instance, cluster.node, cluster.used_cards if model.cards else None, model.balance, value, 0.0
    )
    options = replace(options, time_limit_s=30.0)  # for the bounds
    numbers: dict[int, int] = {}
    admitted = {}
    for priority in model.builder.classes():
        of_class = (view.priority == priority) & (view.running < 0)
        found, wanted = int((cluster.node[of_class] >= 0).sum()), int(of_class.sum())
        until = time.perf_counter() + 30.0
        most = found if found == wanted else class_bound(model, numbers, priority, engine, options, until)
        numbers[priority] = found
        admitted[priority] = (found, wanted, min(wanted, max(found, most)))
    bound = min(value, relaxed_bound(model, model.balance, cluster, numbers, engine, options))
    name = "bound at most the balance"
    certificate = Certificate("bounded", False, (*checks, Check(name, bound <= value + 1e-9)), 1e-6)
    return RollingPlacement(
        instance,
        cluster.node,
        cluster,
        value,
        bound,
        admitted,
        windows,
        certificate.require(f"rolling placement: {instance.name}"),
    )
