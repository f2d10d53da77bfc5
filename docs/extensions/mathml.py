"""Render formulas as MathML, which browsers draw without scripts, fonts or downloads."""

from __future__ import annotations

import re
from html import escape, unescape
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert

#: Formulas between dollar signs in the HTML of a notebook's output, which Jupyter draws by itself.
FORMULA = re.compile(r"\$\$(.+?)\$\$|\$([^$<>\n]{1,300}?)\$", re.DOTALL)
#: Words in a formula, and a character that stands for ``&`` while they are converted.
TEXT, AMPERSAND = re.compile(r"\\(text)\{([^{}]*)\}"), "\ue000"
#: Parts of HTML that are no text.
NO_TEXT = re.compile(r"(<(script|style|svg|pre|code)\b.*?</\2>)", re.DOTALL)
#: LaTeX environments that the converter supports under another name.
ALIASES = {"aligned": "align*", "align": "align*"}


def mathml(latex: str, display: str) -> str:
    """Return a formula as a ``<math>`` element with its LaTeX as tooltip."""
    for name, known in ALIASES.items():
        latex = latex.replace(f"\\begin{{{name}}}", f"\\begin{{{known}}}").replace(
            f"\\end{{{name}}}", f"\\end{{{known}}}"
        )
    drawn = convert(TEXT.sub(_plain, latex), display=display).replace(AMPERSAND, "&amp;")
    return drawn.replace("<math ", f'<math title="{escape(latex)}" ', 1)


def _plain(text: re.Match[str]) -> str:
    """Text in a formula without the backslashes that the converter would show."""
    inside = re.sub(r"\\([_%#$])", r"\1", text[2].replace("\\&", AMPERSAND))
    return f"\\{text[1]}{{{inside}}}"


def inline(self: Any, node: nodes.math) -> None:
    """Write an inline formula."""
    self.body.append(mathml(node.astext(), "inline"))
    raise nodes.SkipNode


def block(self: Any, node: nodes.math_block) -> None:
    """Write a displayed formula."""
    self.body.append(f'<div class="math">{mathml(node.astext(), "block")}</div>')
    raise nodes.SkipNode


def drawn(html: str) -> str:
    """HTML of a notebook's output with its formulas as MathML."""

    def formula(found: re.Match[str]) -> str:
        return mathml(unescape(found[1] or found[2]).strip(), "block" if found[1] else "inline")

    parts = NO_TEXT.split(html)  # text, part that is none, its tag, text, ...
    return "".join(FORMULA.sub(formula, part) if k % 3 == 0 else part for k, part in enumerate(parts) if k % 3 != 2)


def draw_outputs(app: Any, tree: Any, name: str) -> None:
    """Draw the formulas in outputs of notebooks and of executed pages."""
    for node in list(tree.findall(nodes.raw)):
        if node.get("format") == "html" and "$" in node.astext():
            node.replace_self(nodes.raw("", drawn(node.astext()), format="html"))


def setup(app: Any) -> dict[str, bool]:
    """Register the renderer ``mathml``."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    app.connect("doctree-resolved", draw_outputs)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
