"""Models that state their problem in the language, by kind of instance, as their classes are defined."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flowlex.models.model import Model

MODELS: dict[str, type[Model]] = {}
