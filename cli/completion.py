"""Shell completion of kinds, generators, and ``--set`` names for the typed instance."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def kinds_starting(incomplete: str) -> list[str]:
    """Kinds of instances."""
    from flowlex.instances.extensions import kinds

    return [kind for kind in kinds() if kind.startswith(incomplete)]


def generators_starting(incomplete: str) -> list[tuple[str, str]]:
    """Generators, with what each makes."""
    from flowlex.instances.generators.registry import all_generators

    return [(name, made.title) for name, made in all_generators().items() if name.startswith(incomplete)]


def settings_starting(ctx: Any, incomplete: str) -> list[tuple[str, str]]:
    """Complete ``NAME=``: parameters of a typed generator, or options of the model of a typed instance file."""
    from flowlex.instances.generators.registry import all_generators
    from flowlex.models.model_options import options_of
    from flowlex.models.registry import model_class

    typed = [text for value in (*ctx.params.values(), ctx.args) for text in _texts(value)]
    known: dict[str, str] = {}
    for text in typed:
        if text in all_generators():
            parameters = all_generators()[text].parameters
            known |= {name: f"default {parameter.default}" for name, parameter in parameters.items()}
        elif kind := _kind(Path(text)):
            known |= {option.name: f"{option.values}; {option.says}" for option in options_of(model_class(kind))}
    return [(f"{name}=", says) for name, says in known.items() if name.startswith(incomplete)]


def _texts(value: Any) -> list[str]:
    several = isinstance(value, (list, tuple))
    return [str(item) for item in value if item] if several else [str(value)] if value else []


def _kind(path: Path) -> str | None:
    """Return the kind of an instance file; None if unknown (a completion must not fail)."""
    from flowlex.instances.files import read_instance

    try:
        return read_instance(path).kind if path.is_file() and path.stat().st_size < 10_000_000 else None
    except (OSError, ValueError):
        return None
