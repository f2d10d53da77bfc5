"""The mathematics of a problem, derived from what was stated: sets, data, variables, objectives and rows as LaTeX."""

from __future__ import annotations

from flowlex.formulations.language.expressions import written_rule
from flowlex.formulations.language.formulas import Writer, symbol_tex, tex_text
from flowlex.formulations.language.labels import Index
from flowlex.formulations.language.statement import Objective, RowBlock, Statement, VariableBlock


def to_latex(problem: Statement) -> str:
    """Objectives, rows and variables as lines of an ``aligned`` environment."""
    writer = problem.writer()
    lines = [f"{goal(o)} &\\quad {writer.write(o.formula)}{_said(o.words or o.name)}" for o in problem.objectives]
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
    """A family of rows, and the members for which it holds."""
    return written_rule(writer, block.left, block.relation, block.right, block.condition) + each(
        block.index, writer, block
    )


def each(index: Index, writer: Writer, block: RowBlock | None = None) -> str:
    """``for all w, s``; with the labels where only some are meant."""
    if not index.keys:
        return ""
    parts = []
    for key in index.keys:
        where = (writer.where(block.left, key) or writer.where(block.right, key)) if block is not None else ""
        parts.append(f"{writer.index(key, {})} {where}".strip())
    return rf" \quad \forall {', '.join(parts)}"


def domain(block: VariableBlock, writer: Writer) -> str:
    """The kind and bounds of variables."""
    symbol = symbol_tex(block.name, [writer.index(key, {}) for key in block.index.keys])
    whole = len(block.integer) and bool(block.integer.all())
    low, high = (side[0] if len(side) and (side == side[0]).all() else None for side in (block.lower, block.upper))
    if whole and low == 0 and high == 1:
        kind = rf"{symbol} \in \{{0, 1\}}"
    elif whole:
        kind = rf"{symbol} \in \mathbb{{Z}}" + _between(low, high, symbol)
    else:
        kind = rf"{symbol} \in \mathbb{{R}}" + _between(low, high, symbol)
    return kind + each(block.index, writer)


def _between(low: float | None, high: float | None, symbol: str) -> str:
    left = "" if low == float("-inf") else f"{low:g}" if low is not None else r"\ell"
    right = "" if high == float("inf") else f"{high:g}" if high is not None else "u"
    if not left and not right:
        return ""
    return ", \\; " + (f"{left} \\le " if left else "") + symbol + (f" \\le {right}" if right else "")


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
        f"<tr><td>{escape(name)}</td><td></td><td>{escape(', '.join(levels))}</td>"
        f"<td style='text-align:left'>{escape(words)}"
        f"{' (' + escape(unit) + ')' if unit else ''}</td></tr>"
        for name, (words, unit, levels) in problem.symbols.items()
    )
    head = "<tr><th>name</th><th>size</th><th>levels</th><th>what</th></tr>"
    title = f"{problem.name}: {problem.column_count} variables, {problem.row_count} rows"
    table = f"<table><caption>{escape(title)}</caption>{head}{sets}{data}{kinds}</table>"
    return f"{table}<div>$$ {to_latex(problem)} $$</div>"
