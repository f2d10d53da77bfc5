"""The policies of GPU assignment, with the properties that models, certificates and simulators use."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum


class GpuPolicy(StrEnum):
    """How fairness and running tasks are treated (Tang et al. 2022, section on policies).

    To add a policy, add a line here, with a property for what is new. Add its rules to `round_eligibility` and
    `statement` of `flowlex.models.gpu`, and again, independently, to `gpu_program` of
    `flowlex.validation.restated`. Options and commands list the policies here.

    Attributes
    ----------
    fair
        Jobs get max-min fair shares of the GPUs; otherwise as many tasks as possible run, at least cost.
    preemptive
        Only a job above its share may lose tasks, the shortest-running first; otherwise running tasks stay.
    """

    fair: bool
    preemptive: bool

    def __new__(cls, name: str, fair: bool = False, preemptive: bool = False) -> GpuPolicy:
        """Make a policy that is its name."""
        policy = str.__new__(cls, name)
        policy._value_ = name
        policy.fair, policy.preemptive = fair, preemptive
        return policy

    #: Preemptive fair sharing.
    FSP = "FSP", True, True
    #: Fair sharing without preemption: running tasks stay, new tasks start up to the share.
    FS = "FS", True, False
    #: No fairness: as many tasks as possible, at least cost.
    FSU = "FSU", False, False

    @classmethod
    def names(cls, which: Callable[[GpuPolicy], bool]) -> str:
        """The policies for which ``which`` holds, for messages."""
        return " or ".join(policy for policy in cls if which(policy))
