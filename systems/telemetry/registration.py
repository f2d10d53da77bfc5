"""What this system adds to the command line (fields of `flowlex.cli.command_group.Lazy`) and to ``flowlex solve``."""

COMMANDS = {
    "run-partition": {
        "module": "flowlex.systems.telemetry.command_line.partition",
        "attribute": "run_partition",
        "help": "Partition items, run a program on each share, time it.",
        "task": "Solve",
    },
    "telemetry": {
        "module": "flowlex.systems.telemetry.command_line",
        "attribute": "app",
        "help": "The node information service.",
        "extra": "telemetry",
        "task": "Serve",
    },
}
INSTANCE_SOURCES = {"telemetry": "flowlex.systems.telemetry.command_line.telemetry_options:snapshot"}
