"""What this system adds to the command line (fields of `flowlex.cli.command_group.Lazy`), batches and ``warm-up``."""

COMMANDS = {
    "simulate": {
        "module": "flowlex.systems.simulation.commands.simulate",
        "attribute": "simulate",
        "help": "Simulate clusters and networks over time.",
        "task": "Simulate",
    },
    "reproduce": {
        "module": "flowlex.systems.simulation.commands.reproduce",
        "attribute": "reproduce",
        "help": "Measure the papers' statements again, beside theirs.",
        "task": "Simulate",
    },
}
WORKER_TASKS = {
    "simulate": "flowlex.systems.simulation.commands.worker_tasks:simulate_task",
    "measure": "flowlex.systems.simulation.commands.worker_tasks:measure_task",
}
WARM_UPS = {"simulate, networks": "flowlex.systems.simulation.commands.warm_up:simulate_small_network"}
