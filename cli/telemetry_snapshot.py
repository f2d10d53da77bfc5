"""Live nodes as an instance file: what ``flowlex solve --from-telemetry URL`` solves can be solved again."""

from __future__ import annotations

import os
from pathlib import Path

import typer

from flowlex.cli.inputs import landing
from flowlex.cli.output import note

__all__ = ["authority", "snapshot"]

#: A reader's token; a command line would show it to others.
TOKEN_VARIABLE = "FLOWLEX_TELEMETRY_TOKEN"


def authority() -> Path | None:
    """Return the certificates that may vouch for the service, from the environment."""
    path = os.environ.get("FLOWLEX_TELEMETRY_CA")
    return Path(path) if path else None


def snapshot(context: typer.Context, url: str, output: Path | None, *, max_age_s: float) -> Path:
    """Read the service, write ``live.json`` (into ``output``, else a folder that ends with the command).

    Raises
    ------
    typer.BadParameter
        The service cannot be read, or holds no fresh node.
    """
    from flowlex.instances.base import InstanceError
    from flowlex.instances.files import write_instance
    from flowlex.instances.importers.telemetry import from_telemetry

    try:
        instance = from_telemetry(
            url, token=os.environ.get(TOKEN_VARIABLE) or None, max_age_s=max_age_s, ca_file=authority()
        )
    except InstanceError as error:
        raise typer.BadParameter(str(error), param_hint="--from-telemetry") from error
    path = landing(context, output, "live.json")
    write_instance(instance, path)
    note(instance.comment)
    return path
