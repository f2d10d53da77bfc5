"""Loaded before all plugins of pytest, to make the start of every process cheaper.

`nbmake` reads notebooks through `jsonschema`, which tries to import a grammar of international addresses (2 s) for a
format that nothing here checks. And pytest would rewrite every ``assert`` of the package that offers a plugin, which
is flowlex itself: 650 modules whose assertions are for the type checker (2 s where no bytecode is cached).
"""

from __future__ import annotations

import sys

__all__: list[str] = []

sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]  # importing it now raises ImportError
for hook in sys.meta_path:
    getattr(hook, "_must_rewrite", set()).discard("flowlex")
