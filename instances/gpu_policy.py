"""The policies of GPU assignment, with the properties that models, certificates and simulators use."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum


class GpuPolicy(StrEnum):
    """How fairness and running tasks are treated (Tang et al. 2022, section on policies).

    Options, commands and the site list these; docs/howto/extend.md adds one.

    Attributes
    ----------
    says
        The policy in a few words.
    fair
        Jobs get max-min fair shares of the GPUs; otherwise as many tasks as possible run, at least cost.
    preemptive
        Only a job above its share may lose tasks, the shortest-running first; otherwise running tasks stay.
    network
        Shares and running tasks are all that the policy rules, so that networks solve its rounds. The rounds of other
        policies are solved as `flowlex.models.gpu.statement` states them.
    """

    says: str
    fair: bool
    preemptive: bool
    network: bool

    def __new__(
        cls, name: str, says: str = "", fair: bool = False, preemptive: bool = False, network: bool = False
    ) -> GpuPolicy:
        """Make a policy that is its name."""
        policy = str.__new__(cls, name)
        policy._value_ = name
        policy.says, policy.fair, policy.preemptive, policy.network = says, fair, preemptive, network
        return policy

    FSP = "FSP", "fair shares, with preemption", True, True, True
    FS = "FS", "fair shares, running tasks stay", True, False, True
    FSU = "FSU", "without fairness", False, False, True

    @classmethod
    def names(cls, which: Callable[[GpuPolicy], bool]) -> str:
        """The policies for which ``which`` holds, for messages."""
        return " or ".join(policy for policy in cls if which(policy))
