"""Loaded before all plugins of pytest: a format of `jsonschema` that nothing here checks costs every process 2 s.

`nbmake` reads notebooks through `jsonschema`, which tries to import a grammar of international addresses.
"""

from __future__ import annotations

import sys

__all__: list[str] = []

sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]  # importing it now raises ImportError
