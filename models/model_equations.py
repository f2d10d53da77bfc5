r"""The mathematics of a model, stated once: symbols and equations, and every way to show them.

A model declares its `Mathematics` as class variables. Docstring, LaTeX, display in a notebook, documentation page,
names of rows and names of duals all come from that declaration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any


@dataclass(frozen=True)
class Symbol:
    """A set, parameter or variable of a model: its LaTeX and its meaning.

    Attributes
    ----------
    latex
        The symbol, without dollar signs.
    says
        Its meaning, with its unit if it has one.
    """

    latex: str
    says: str


@dataclass(frozen=True)
class Equation:
    """One family of constraints.

    Attributes
    ----------
    name
        The name of its rows in the formulation, in exported files and in ``solution.duals``.
    latex
        The formula.
    says
        The constraint in words.
    dual
        What its dual means; empty when none is returned.
    unit
        Unit of the dual.
    source
        Paper and equation; ``reconstructed`` where the formula was lost; empty when it is ours.
    when
        In words, when the rows exist; empty when always.
    exists
        The same as a predicate over the model.
    """

    name: str
    latex: str
    says: str
    dual: str = ""
    unit: str = ""
    source: str = ""
    when: str = ""
    exists: Callable[[Any], bool] = lambda model: True

    def __post_init__(self) -> None:
        if bool(self.dual) != bool(self.unit):
            raise ValueError(f"equation {self.name!r}: a dual is stated with its unit, and a unit with its dual")

    @property
    def dual_text(self) -> str:
        """What the dual means, with its unit."""
        return f"{self.dual} [{self.unit}]" if self.dual else ""


def latex(objective: str, equations: Iterable[Equation]) -> str:
    """Objective and constraints as an ``aligned`` environment, with the names of the rows."""
    lines = [rf"\text{{minimise}}\quad & {objective} &&"] if objective else []
    lines += [rf"& {e.latex} && \text{{{e.name.replace('_', chr(92) + '_')}}}" for e in equations]
    return "\\begin{aligned}\n" + " \\\\\n".join(lines) + "\n\\end{aligned}"


def docstring(objective: str, symbols: Mapping[str, Iterable[Symbol]], equations: Iterable[Equation]) -> str:
    """The declaration as a numpydoc ``Notes`` section."""
    lines = ["Notes", "-----"]
    for caption, group in symbols.items():
        said = "; ".join(f":math:`{s.latex}` {s.says}" for s in group)
        lines += [f"{caption}: {said}.", ""] if said else []
    lines += [f"Objective: :math:`{objective}`", ""] if objective else []
    for e in equations:
        facts = [e.says, f"dual: {e.dual_text}" if e.dual else "", e.when, e.source]
        lines += [f"``{e.name}``: :math:`{e.latex}`", "    " + "; ".join(filter(None, facts)) + ".", ""]
    return "\n".join(lines).rstrip()


def html_table(caption: str, facts: Mapping[str, Any]) -> str:
    """A table of two columns for a notebook."""
    left = "style='text-align:left'"
    rows = "".join(
        f"<tr><th {left}>{escape(str(key))}</th><td {left}>{escape(_text(value))}</td></tr>"
        for key, value in facts.items()
    )
    return f"<table><caption>{escape(caption)}</caption>{rows}</table>"


def equation_table(equations: Iterable[Equation]) -> str:
    """The equations as an HTML table."""
    head = "<tr><th>equation</th><th>name</th><th>says</th><th>dual</th></tr>"
    rows = "".join(
        f"<tr><td>${escape(e.latex)}$</td><td><code>{escape(e.name)}</code></td>"
        f"<td>{escape('; '.join(filter(None, (e.says, e.when))))}</td><td>{escape(e.dual_text)}</td></tr>"
        for e in equations
    )
    return f"<table>{head}{rows}</table>"


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
