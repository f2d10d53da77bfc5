"""Render formulas as MathML, which browsers draw without scripts, fonts or downloads."""

from __future__ import annotations

from html import escape
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert

#: LaTeX environments that the converter supports under another name.
ALIASES = {"aligned": "align*", "align": "align*"}


def mathml(latex: str, display: str) -> str:
    """Return a formula as a ``<math>`` element with its LaTeX as tooltip."""
    for name, known in ALIASES.items():
        latex = latex.replace(f"\\begin{{{name}}}", f"\\begin{{{known}}}").replace(
            f"\\end{{{name}}}", f"\\end{{{known}}}"
        )
    return convert(latex, display=display).replace("<math ", f'<math title="{escape(latex)}" ', 1)


def inline(self: Any, node: nodes.math) -> None:
    """Write an inline formula."""
    self.body.append(mathml(node.astext(), "inline"))
    raise nodes.SkipNode


def block(self: Any, node: nodes.math_block) -> None:
    """Write a displayed formula."""
    self.body.append(f'<div class="math">{mathml(node.astext(), "block")}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Register the renderer ``mathml``."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
