"""Speed up the start of test processes; loaded before all pytest plugins.

`nbformat` reads notebooks with `jsonschema`, which tries to import a grammar of international addresses (2 s) for a
format that is not used here. Pytest would also rewrite every ``assert`` of flowlex, as it has a pytest plugin: 650
modules whose assertions are for the type checker (2 s without cached bytecode).
"""

import sys

__all__: list[str] = []

sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]  # importing it now raises ImportError
for hook in sys.meta_path:
    getattr(hook, "_must_rewrite", set()).discard("flowlex")
