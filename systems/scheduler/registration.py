"""What this system adds to the command line (fields of `flowlex.cli.command_group.Lazy`) and to ``warm-up``."""

COMMANDS = {
    "replay": {
        "module": "flowlex.systems.scheduler.commands.replay_events",
        "attribute": "replay",
        "help": "Feed an event log to a live scheduler, step by step.",
        "task": "Solve",
    },
    "explain": {
        "module": "flowlex.systems.scheduler.commands.explain_waiting_task",
        "attribute": "explain",
        "help": "Why does a task of a saved scheduler wait, and what would run it?",
        "task": "Look",
    },
    "serve": {
        "module": "flowlex.systems.scheduler.commands.serve",
        "attribute": "app",
        "help": "Run a scheduler as a service.",
        "extra": "telemetry",
        "task": "Serve",
    },
}
WARM_UPS = {"live scheduler, replay": "flowlex.systems.scheduler.commands.compilation_warm_up:schedule_small_cluster"}
