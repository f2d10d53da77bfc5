"""What this system adds: commands, kinds and generators of instances, examples, work of batches, ``warm-up``."""

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
WARM_UPS = {"simulate, networks": "flowlex.systems.simulation.commands.compilation_warm_up:simulate_small_network"}
KINDS = {
    "cluster-workload": "flowlex.systems.simulation.cluster_workload",
    "scenario": "flowlex.systems.simulation.scenario",
}
GENERATORS = {
    f"cluster-{name}": f"flowlex.systems.simulation.generators.{module}"
    for module, names in {"testbeds": "testbed servers images", "queues": "queue random pods day training"}.items()
    for name in names.split()
}
EXAMPLES = {
    "cluster-workload": "flowlex.systems.simulation.small_examples:cluster_workload",
    "scenario": "flowlex.systems.simulation.small_examples:scenario",
}
