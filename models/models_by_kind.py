"""Models that state their problem in the language, by kind of instance, as their classes are defined."""

from typing import Any

#: Subclasses of `flowlex.models.model.Model`.
MODELS: dict[str, type[Any]] = {}
