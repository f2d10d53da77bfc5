"""A scenario: what is simulated, under which policies, how often, how long."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from flowlex.instances.instance_base import Instance, Name, NonNegative, Part, Positive, require_unique

#: A value in a file that a generator, a policy or a simulator gives its meaning.
Value = bool | int | float | str | None | list[Any]
Seed = Annotated[int, Field(ge=0, strict=True)]


class Workload(Part):
    """What the cluster or network has to do: a file, or a generator and its parameters."""

    file: str | None = None
    """An instance file, relative to the scenario's."""
    generator: Name | None = None
    """A generator; every seed of the scenario makes its own instance."""
    parameters: dict[str, Value] = Field(default_factory=dict)
    """Of the generator; with ``seed`` here, all runs share one instance."""

    @model_validator(mode="after")
    def _one(self) -> Workload:
        if (self.file is None) == (self.generator is None):
            raise ValueError("give a file or a generator, one of the two")
        if self.file is not None and self.parameters:
            raise ValueError("parameters are for a generator; a file has none")
        return self


class PolicyChoice(Part):
    """A policy by name, and its parameters; a plain text is a name."""

    name: Name
    """As the simulator knows it."""
    label: Name | None = None
    """What tables and pictures call it; the name if not given."""
    parameters: dict[str, Value] = Field(default_factory=dict)
    """Of the policy."""

    @property
    def title(self) -> str:
        """Label, else name."""
        return self.label or self.name


class Decision(Part):
    """How long a policy thinks, in simulated time."""

    mode: Literal["none", "fixed", "counted", "measured"] = "none"
    """``fixed``: always ``seconds``; ``counted``: plus ``seconds_per_unit`` of the policy's own count of work;
    ``measured``: what the clock says on this machine (the log keeps it; another run has other bytes)."""
    seconds: NonNegative = 0.0
    """Of each decision."""
    seconds_per_unit: NonNegative = 0.0
    """Of each unit of work."""

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
        How long policies think, in simulated seconds.
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
