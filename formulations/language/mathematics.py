"""The mathematics of a problem, derived from what was stated: sets, data, variables, objectives and rows as LaTeX."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.language.expressions import written_rule
from flowlex.formulations.language.formulas import Writer, symbol_tex, tex_label, tex_text
from flowlex.formulations.language.labels import Index, Level
from flowlex.formulations.language.statement import Objective, RowBlock, Statement, VariableBlock
from flowlex.formulations.program_arrays import Floats


def to_latex(problem: Statement) -> str:
    """Objectives, rows and variables as lines of an ``aligned`` environment."""
    writer = problem.writer()
    lines = [
        f"{goal(o)} &\\quad {writer.write(o.formula)}{_where(writer.starts(o.formula))}{_said(o.words or o.name)}"
        for k, o in enumerate(problem.objectives)
        if o.formula[0] != "each" or k == 0 or problem.objectives[k - 1].formula != o.formula
    ]
    for block in problem.rows.values():
        lines.append(f"\\text{{{tex_text(block.name)}:}} &\\quad {row_formula(block, writer)}{_said(block.words)}")
    for variables in problem.blocks.values():
        lines.append(f"&\\quad {domain(variables, writer)}{_said(variables.words)}")
    body = " \\\\\n".join(lines)
    return f"\\begin{{aligned}}\n{body}\n\\end{{aligned}}"


def goal(objective: Objective) -> str:
    """The goal as LaTeX."""
    return "\\max" if objective.maximize else "\\min"


def row_formula(block: RowBlock, writer: Writer) -> str:
    """A family of rows, the members for which it holds, and what it reads before the first label."""
    text = written_rule(writer, block.left, block.relation, block.right, block.condition)
    return text + each(block.index, writer, block) + _where(writer.starts(block.left, block.right))


def each(index: Index, writer: Writer, block: RowBlock | None = None) -> str:
    """``for all w, s``; with the labels where only some are meant, in brackets where only some combinations are."""
    if not index.keys:
        return ""
    letters = [writer.index(key, {}) for key in index.keys]
    used = [np.flatnonzero(np.bincount(index.codes[k], minlength=len(index.levels[k]))) for k in index.keys]
    product = int(np.prod([len(codes) for codes in used], dtype=object)) == index.count
    parts = []
    for key, letter, codes in zip(index.keys, letters, used, strict=True):
        said = (writer.where(block.left, key) or writer.where(block.right, key)) if block is not None else ""
        said = said or (_among(index.levels[key], codes, writer) if product else "")
        parts.append(f"{letter} {said}".strip())
    members = ", ".join(parts)
    return rf" \quad \forall {members}" if product else rf" \quad \forall ({members})"


def _among(level: Level, codes: NDArray[np.int64], writer: Writer) -> str:
    """Which labels of a level are meant; empty for all."""
    if len(codes) in (0, len(level)):
        return ""
    labels = [level.labels[k] for k in codes.tolist()]
    run = len(codes) > 2 and codes[-1] - codes[0] == len(codes) - 1
    if run and codes[-1] == len(level) - 1:
        return rf"\ge {tex_label(labels[0])}"
    return rf"\le {tex_label(labels[-1])}" if run and codes[0] == 0 else writer.among(labels)


def domain(block: VariableBlock, writer: Writer) -> str:
    """The kind and bounds of variables."""
    at = [writer.index(key, {}) for key in block.index.keys]
    symbol = symbol_tex(block.name, at)
    whole = len(block.integer) and bool(block.integer.all())
    low, high = _side(block.lower, r"\underline", block.name, at), _side(block.upper, r"\overline", block.name, at)
    if whole and (low, high) == ("0", "1"):
        kind = rf"{symbol} \in \{{0, 1\}}"
    elif whole and low and high:
        kind = rf"{symbol} \in \{{{low}, \dots, {high}\}}"
    else:
        kind = f"{low} \\le {symbol} \\le {high}" if low and high else symbol
        kind = rf"{symbol} \ge {low}" if low and not high else rf"{symbol} \le {high}" if high and not low else kind
        if whole or not (low or high):
            kind += (r", \; " + symbol if low or high else "") + rf" \in \mathbb{{{'Z' if whole else 'R'}}}"
    return kind + each(block.index, writer)


def _side(bound: Floats, bar: str, name: str, at: list[str]) -> str:
    """A bound: a number, a symbol with a bar if it differs between members, nothing if there is none."""
    if not np.isfinite(bound).any():
        return ""
    if (bound == bound[0]).all():
        return f"{bound[0]:g}"
    head = symbol_tex(name, [])
    return rf"{bar}{{{head}}}_{{{','.join(at)}}}"


def _where(starts: list[str]) -> str:
    return "".join(rf", \quad {each}" for each in starts)


def _said(words: str) -> str:
    return rf" && \text{{{tex_text(words)}}}" if words else ""


def to_html(problem: Statement) -> str:
    """A table of sizes, sets and data, and the mathematics, for Jupyter."""
    from html import escape

    blocks: list[VariableBlock | RowBlock] = [*problem.blocks.values(), *problem.rows.values()]
    kinds = "".join(
        f"<tr><td>{escape(b.name)}</td><td>{b.index.count}</td><td>{escape(', '.join(b.index.keys))}</td>"
        f"<td style='text-align:left'>{escape(b.words)}</td></tr>"
        for b in blocks
    )
    letters = problem.writer()
    sets = "".join(
        f"<tr><td>{escape(letters.index(name, {}))}</td><td>{len(level)}</td><td>{escape(name)}</td>"
        f"<td style='text-align:left'>{escape(problem.level_words.get(name, ''))}</td></tr>"
        for name, level in problem.levels.items()
    )
    data = "".join(
        f"<tr><td>{escape(_shown(name))}</td><td></td><td>{escape(', '.join(levels))}</td>"
        f"<td style='text-align:left'>{escape(words)}"
        f"{' (' + escape(unit) + ')' if unit else ''}</td></tr>"
        for name, (words, unit, levels) in problem.symbols.items()
    )
    head = "<tr><th>name</th><th>size</th><th>levels</th><th>what</th></tr>"
    title = f"{problem.name}: {problem.column_count} variables, {problem.row_count} rows"
    table = f"<table><caption>{escape(title)}</caption>{head}{sets}{data}{kinds}</table>"
    return f"{table}<div>$$ {to_latex(problem)} $$</div>"


def _shown(symbol: str) -> str:
    """A symbol in a table: as a formula if it is TeX."""
    return f"${symbol}$" if "\\" in symbol else symbol
