"""Field types of instances: names, numbers, and parts that reject unknown fields."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from flowlex.instances.field_descriptions import describe

#: A finite number greater than zero (sizes, rates, capacities); text and booleans are not numbers.
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]
#: A finite number that may be zero (times, costs).
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]
#: The name of a thing inside an instance.
Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class Part(BaseModel):
    """A piece of an instance: immutable, and strict about unknown fields and non-finite numbers."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, json_schema_extra=describe, defer_build=True
    )
