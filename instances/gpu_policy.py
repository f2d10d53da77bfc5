"""The policies of GPU assignment, each an object: all that models, certificates and simulators ask of one."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum


class GpuPolicy(StrEnum):
    """How fairness and running tasks are treated (Tang et al. 2022, section on policies).

    Another policy is a line here, with a property for what is new about it; its rules are added to `round_eligibility`
    and `reference_formulation` of `flowlex.models.gpu`, their judgement to `preemption` and `formulation_from_instance`
    of `flowlex.validation.certificates.gpu`. Options, commands, services and simulators list what is here.

    Attributes
    ----------
    fair
        Jobs get max-min fair shares of the GPUs; otherwise as many tasks as possible run, at least cost.
    preemptive
        A job above its share, and no other, may lose its shortest-running tasks; otherwise running tasks stay.
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
