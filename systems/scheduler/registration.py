"""What this system adds to the command line (fields of `flowlex.cli.command_group.Lazy`)."""

from __future__ import annotations

COMMANDS = {
    "serve": {
        "module": "flowlex.systems.scheduler.commands.serve",
        "attribute": "app",
        "help": "Run a scheduler as a service.",
        "extra": "telemetry",
        "task": "Serve",
    },
}
IMPORTERS: dict[str, str] = {}
