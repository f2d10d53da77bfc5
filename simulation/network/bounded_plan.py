"""Just-in-time bandwidth for coflows with a deadline, by the bounded plan: any length, no slots."""

from __future__ import annotations

import numpy as np

from flowlex.models.base import ModelError
from flowlex.models.jit.proportional import ProportionalPlan, proportional_plan
from flowlex.simulation.kernel import SimulationError
from flowlex.simulation.network.state import Instruction, NetworkState
from flowlex.simulation.network.traffic import Floats, Traffic
from flowlex.simulation.registry import policy

__all__ = ["InStep"]


@policy("network", "jit-in-step")
class InStep:
    """Every coflow within its window at the least largest load, its transfers in step; all coflows known beforehand.

    The plan is `flowlex.models.jit.proportional.proportional_plan`: rates of a fluid, one number per coflow and
    interval between window ends, so that a trace of any length is planned at once. Nothing is sent beside the plan.

    Attributes
    ----------
    plan
        With its bound and gap; None before it begins.
    """

    def __init__(self) -> None:
        self.plan: ProportionalPlan | None = None

    def begin(self, traffic: Traffic, rng: np.random.Generator) -> None:
        """Plan.

        Raises
        ------
        SimulationError
            Not all is planned at once (copies, data made on the way, a coflow with several windows), or no such plan
            keeps all windows.
        """
        instance = traffic.instance
        if instance is None or traffic.copy.any() or (traffic.made_by >= 0).any():
            raise SimulationError(
                "the policy jit-in-step plans an instance of coflows whose data are there, without copies; use jit"
            )
        try:
            self.plan = plan = proportional_plan(instance)
        except ModelError as error:
            raise SimulationError(f"the policy jit-in-step has no plan: {error}") from error
        _, first, group = np.unique(traffic.coflow, return_index=True, return_inverse=True)
        other = np.flatnonzero(plan.group != plan.group[first][group])
        if len(other):
            name = traffic.coflow_names[int(traffic.coflow[other[0]])]
            raise SimulationError(
                f"the policy jit-in-step sends a coflow in one window; the transfers of {name!r} have several; use jit"
            )
        if plan.largest > 1 + 1e-6:
            raise SimulationError(
                f"the policy jit-in-step finds no plan that keeps all windows: a port would carry {plan.largest:.4g} "
                f"times its rate (any schedule: {plan.bound.least:.4g}); give coflows later deadlines"
            )
        self._end_s = _ends(plan)
        self._group = np.zeros(len(traffic.coflow_names), np.int64)
        self._group[traffic.coflow] = plan.group

    def decide(self, state: NetworkState) -> Instruction:
        """Go on at the interval's rates."""
        assert self.plan is not None
        edges = self.plan.edges
        cell = min(int(np.searchsorted(edges, state.now_s, side="right")) - 1, len(edges) - 2)
        ends = self._end_s[self._group[state.coflows], cell]
        until = float(edges[cell + 1])
        return state.paced(state.coflows, ends, until_s=until if until > state.now_s else np.inf)


def _ends(plan: ProportionalPlan) -> Floats:
    """(groups, intervals) when a group would end at the rate of an interval; infinite where it sends nothing."""
    share = np.zeros((int(plan.group.max(initial=-1)) + 1, len(plan.edges) - 1))
    share[plan.row, plan.cell] = np.where(plan.share > 1e-9, plan.share, 0.0)
    share /= share.sum(axis=1, keepdims=True)
    after = np.cumsum(share[:, ::-1], axis=1)[:, ::-1] - share
    after[after < 1e-12] = 0.0
    length, end = np.diff(plan.edges), plan.edges[1:]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(share > 0, end + after * length / share, np.inf))
