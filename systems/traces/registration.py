"""What this system adds to ``flowlex import``, ``flowlex generate`` and the formats of instance files."""

IMPORT_COMMANDS = {
    name: f"flowlex.systems.traces.import_commands:{name}" for name in ("openb", "coflow", "csv", "google")
}
IMPORTERS = {
    "coflow": "flowlex.systems.traces.coflow:read_coflow_trace",
    "gavel": "flowlex.systems.traces.gavel:read_gavel",
    "openb": "flowlex.systems.traces.openb:read_openb",
}
GENERATORS = {"openb-arrivals": "flowlex.systems.traces.openb_arrivals"}
TEXT_FORMATS = {"coflow": "flowlex.systems.traces.coflow"}
