"""A scenario: workload, policies, seeds and duration of simulation runs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from flowlex.instances.instance_base import Instance, Name, NonNegative, Part, Positive, require_unique

#: A parameter value in a file; its generator, policy or simulator interprets it.
Value = bool | int | float | str | None | list[Any]
Seed = Annotated[int, Field(ge=0, strict=True)]


class Workload(Part):
    """The work of the cluster or network: a file, or a generator and its parameters."""

    file: str | None = None
    """An instance file, relative to the scenario's."""
    generator: Name | None = None
    """A generator; every seed of the scenario makes its own instance."""
    parameters: dict[str, Value] = Field(default_factory=dict)
    """Parameters of the generator; with ``seed`` here, all runs share one instance."""

    @model_validator(mode="after")
    def _one(self) -> Workload:
        if (self.file is None) == (self.generator is None):
            raise ValueError("give a file or a generator, one of the two")
        if self.file is not None and self.parameters:
            raise ValueError("parameters are for a generator; a file has none")
        return self


class PolicyChoice(Part):
    """A policy by name, with its parameters; a plain string is a name."""

    name: Name
    """Name of the policy in the simulator."""
    label: Name | None = None
    """Label in tables and plots; the name if not given."""
    parameters: dict[str, Value] = Field(default_factory=dict)
    """Parameters of the policy."""

    @property
    def title(self) -> str:
        """Label, else name."""
        return self.label or self.name


class Decision(Part):
    """Decision time of a policy, in simulated time."""

    mode: Literal["none", "fixed", "counted", "measured"] = "none"
    """``fixed``: always ``seconds``; ``counted``: plus ``seconds_per_unit`` for each unit of work that the policy
    counts; ``measured``: the measured time on this machine (logged; not reproducible)."""
    seconds: NonNegative = 0.0
    """Seconds of each decision."""
    seconds_per_unit: NonNegative = 0.0
    """Seconds of each unit of work."""

    @model_validator(mode="after")
    def _used(self) -> Decision:
        if self.seconds and self.mode in ("none", "measured"):
            raise ValueError(f"seconds are for the modes fixed and counted, not {self.mode}")
        if self.seconds_per_unit and self.mode != "counted":
            raise ValueError(f"seconds_per_unit is for the mode counted, not {self.mode}")
        return self


def _named(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


class Scenario(Instance):
    """Runs of a simulator: every policy with every seed.

    Attributes
    ----------
    simulator
        ``cluster`` or ``network``.
    workload
        An instance file, or a generator and its parameters.
    policies
        At least one; labels are unique.
    seeds
        At least one integer, each at least 0, none twice; one run per policy and seed.
    horizon_s
        Simulated time at which a run ends, in seconds; null for the end of all work.
    decision
        Decision time of the policies, in simulated seconds.
    parameters
        Parameters of the simulator.
    """

    kind: Literal["scenario"] = "scenario"
    simulator: Name
    workload: Workload
    policies: tuple[Annotated[PolicyChoice, BeforeValidator(_named)], ...]
    seeds: tuple[Seed, ...] = tuple(range(10))
    horizon_s: Positive | None = None
    decision: Decision = Decision()
    parameters: dict[str, Value] = Field(default_factory=dict)

    @field_validator("policies", "seeds")
    @classmethod
    def _different(cls, listed: tuple[Any, ...], field: ValidationInfo) -> tuple[Any, ...]:
        if not listed:
            raise ValueError(f"there are no {field.field_name}; give at least one")
        require_unique((getattr(each, "title", str(each)) for each in listed), str(field.field_name))
        return listed

    def summary(self) -> dict[str, str | int | float]:
        """Sizes, in the order they should be printed."""
        work = self.workload
        return {
            "simulator": self.simulator,
            "workload": work.file or str(work.generator),
            "policies": ", ".join(policy.title for policy in self.policies),
            "seeds": len(self.seeds),
            "runs": len(self.policies) * len(self.seeds),
            "horizon (s)": "none" if self.horizon_s is None else self.horizon_s,
            "decision time": self.decision.mode,
        }
