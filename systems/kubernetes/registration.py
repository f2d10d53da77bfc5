"""What this system adds to the command line (fields of `flowlex.cli.command_group.Lazy`) and to ``flowlex import``."""

COMMANDS = {
    "place": {
        "module": "flowlex.systems.kubernetes.commands.place",
        "attribute": "place",
        "help": "Place the waiting pods of a Kubernetes cluster and say why the others wait.",
        "task": "Solve",
    },
    "bindings": {
        "module": "flowlex.systems.kubernetes.commands.bindings",
        "attribute": "bindings",
        "help": "Print a placement as Eviction and Binding objects of Kubernetes.",
        "task": "Look",
    },
}
IMPORTERS = {"kubernetes": "flowlex.systems.kubernetes.placement_instance:read_kubernetes"}
