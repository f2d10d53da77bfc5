"""How formulations show themselves in a notebook."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

__all__ = ["blocks_html"]


def blocks_html(heading: str, **blocks: Mapping[str, Any]) -> str:
    """A heading, and a table of named blocks: what they hold and how many."""
    import pandas as pd

    rows = [(name, what, block.count) for what, named in blocks.items() for name, block in named.items()]
    return f"<p>{escape(heading)}</p>{pd.DataFrame(rows, columns=['block', 'of', 'count']).to_html(index=False)}"
