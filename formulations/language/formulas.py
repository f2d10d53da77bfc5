r"""What was stated, as a tree of plain tuples, written as LaTeX or as text.

===================================  ==========================================================
node                                 meaning
===================================  ==========================================================
``("number", text)``                 a number
``("numbers", text, levels)``        data without a name, with the range of their values
``("symbol", name, levels)``         variables or data with a name
``("add", ((sign, node), ...))``     a sum of terms
``("times", node, node)``            a product
``("over", node, node)``             a quotient
``("sum", levels, node)``            over all labels of these levels
``("shift", level, by, node, start)``  read ``by`` labels before; ``start`` where there is no such label
``("roll", level, width, node)``     the sum of the last ``width`` labels
``("pick", level, labels, node)``    some labels only
``("fix", level, label, node)``      one label
``("at", ((level, how), ...), node)``  read at another level's label, or at a looked-up one (``(name, levels)``)
``("each", level, node)``            an objective for each label of this level, in their order
===================================  ==========================================================
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

Node: TypeAlias = tuple[Any, ...]

_MOST_LABELS = 4


def add(left: Node, right: Node, sign: int) -> Node:
    first = left[1] if left[0] == "add" else ((1, left),)
    second = right[1] if right[0] == "add" else ((1, right),)
    terms = (*first, *((s * sign, n) for s, n in second))
    kept = tuple(term for term in terms if term[1] != ("number", "0"))
    return ("add", kept or ((1, ("number", "0")),))


def negative(node: Node) -> Node:
    return ("add", tuple((-s, n) for s, n in node[1])) if node[0] == "add" else ("add", ((-1, node),))


def times(factor: Node, body: Node) -> Node:
    """A product of data and an expression: numbers first, then data."""
    if factor == ("number", "1"):
        return body
    if body == ("number", "1"):
        return factor
    if factor == ("number", "-1"):
        return negative(body)
    if body[0] == "times" and body[1][0] == "number" and factor[0] != "number":
        return ("times", body[1], ("times", factor, body[2]))
    return ("times", factor, body)


def index_letters(levels: Iterable[str]) -> dict[str, str]:
    """A letter for each level: of its name where that is free."""
    letters: dict[str, str] = {}
    taken: set[str] = set()
    for level in levels:
        own = [c for c in level.lower() if c.isascii() and c.isalpha()]
        free = next((c for c in [*own, *"ijklmnopqrstuvwabcdefgh"] if c not in taken), None)
        letters[level] = free or rf"i_{{{len(letters)}}}"
        taken.add(letters[level])
    return letters


def symbol_tex(name: str, at: Sequence[str]) -> str:
    """A symbol with its indices."""
    plain = re.fullmatch(r"[A-Za-z]", name) is not None or name.startswith("\\")
    head = name if plain else rf"\mathrm{{{tex_text(name)}}}"
    return rf"{head}_{{{','.join(at)}}}" if at else head


def tex_text(text: str) -> str:
    """Text inside mathematics."""
    return (
        re.sub(r"([_%&#$])", r"\\\1", text.replace("\\", " ").replace("{", "(").replace("}", ")"))
        .replace("^", " ")
        .replace("~", " ")
    )


def tex_label(label: Any) -> str:
    """A label inside mathematics: numbers as they are, the rest as text."""
    text = str(label)
    return text if re.fullmatch(r"-?[0-9.]+", text) else rf"\text{{{tex_text(text)}}}"


class Writer:
    """Writes trees as LaTeX (``tex=True``) or as plain text.

    Parameters
    ----------
    letters
        Level to its index letter; the plain text uses the names of levels themselves.
    """

    def __init__(self, letters: Mapping[str, str], *, tex: bool) -> None:
        self._letters, self._tex = letters, tex

    def index(self, level: str, scope: Mapping[str, str]) -> str:
        return scope.get(level) or (self._letters.get(level, level) if self._tex else level)

    def write(self, node: Node, scope: Mapping[str, str] | None = None, tight: bool = False) -> str:
        """The tree as text; ``tight``: in brackets if it is a sum of terms."""
        text: str = getattr(self, f"_{node[0]}")(node, scope or {})
        if tight and node[0] == "add" and (len(node[1]) > 1 or node[1][0][0] < 0):
            return rf"\left({text}\right)" if self._tex else f"({text})"
        return text

    def where(self, node: Node, level: str) -> str:
        """The labels to which a tree restricts a level; empty for all."""
        found = [n for n in _walk(node) if n[0] == "pick" and n[1] == level]
        return self.among(found[0][2]) if found else ""

    def among(self, labels: Sequence[Any]) -> str:
        """``in {a, b, ..., z}``."""
        shown = [tex_label(each) if self._tex else str(each) for each in labels[:_MOST_LABELS]]
        if len(labels) > _MOST_LABELS:
            last = tex_label(labels[-1]) if self._tex else str(labels[-1])
            shown = [*shown[:2], r"\dots" if self._tex else "...", last]
        inside = ", ".join(shown)
        return rf"\in \{{{inside}\}}" if self._tex else f"in {{{inside}}}"

    def starts(self, *nodes: Node) -> list[str]:
        """What is read before the first label: ``stock[item,week-1] = initial[item] at the first week``."""
        said: dict[str, None] = {}
        for _, level, by, body, start in (n for node in nodes for n in _walk(node) if n[0] == "shift" and len(n) == 5):
            here = self.index(level, {})
            read = self.write(("shift", level, by, body))
            end = ("first" if by > 0 else "last") + (f" {abs(by)}" if abs(by) > 1 else "")
            words = rf" \text{{ at the {end} }} {here}" if self._tex else f" at the {end} {here}"
            said[f"{read} = {self.write(start)}{words}"] = None
        return list(said)

    def _number(self, node: Node, scope: Mapping[str, str]) -> str:
        return str(node[1])

    def _numbers(self, node: Node, scope: Mapping[str, str]) -> str:
        at = ",".join(self.index(level, scope) for level in node[2])
        if self._tex:
            return rf"[{node[1].replace('..', chr(92) + 'ldots ')}]_{{{at}}}"
        return f"[{node[1]}][{at}]"

    def _symbol(self, node: Node, scope: Mapping[str, str]) -> str:
        at = [self.index(level, scope) for level in node[2]]
        if self._tex:
            return symbol_tex(node[1], at)
        return f"{node[1]}[{','.join(at)}]" if at else str(node[1])

    def _add(self, node: Node, scope: Mapping[str, str]) -> str:
        text = ""
        for sign, term in node[1]:
            body = self.write(term, scope, tight=sign < 0)
            text += (" + " if sign > 0 else " - ") + body if text else ("" if sign > 0 else "-") + body
        return text

    def _times(self, node: Node, scope: Mapping[str, str]) -> str:
        parts = [self.write(part, scope, tight=True) for part in node[1:]]
        return (r" \, " if self._tex else " * ").join(parts)

    def _over(self, node: Node, scope: Mapping[str, str]) -> str:
        if self._tex:
            return rf"\frac{{{self.write(node[1], scope)}}}{{{self.write(node[2], scope)}}}"
        return f"{self.write(node[1], scope, tight=True)} / {self.write(node[2], scope, tight=True)}"

    def _sum(self, node: Node, scope: Mapping[str, str]) -> str:
        inner = {k: v for k, v in scope.items() if k not in node[1]}
        under = [f"{self.index(level, inner)} {self.where(node[2], level)}".strip() for level in node[1]]
        body = self.write(node[2], inner, tight=True)
        if self._tex:
            return rf"\sum_{{{', '.join(under)}}} {body}"
        return f"sum({body} over {', '.join(under)})"

    def _shift(self, node: Node, scope: Mapping[str, str]) -> str:
        _, level, by, body = node[:4]
        moved = f"{self.index(level, scope)}{-by:+d}"
        return self.write(body, {**scope, level: moved})

    def _roll(self, node: Node, scope: Mapping[str, str]) -> str:
        _, level, width, body = node
        here = self.index(level, scope)
        if self._tex:
            earlier = self.write(body, {**scope, level: rf"{here}-\tau"}, tight=True)
            return rf"\sum_{{\tau=0}}^{{{width - 1}}} {earlier}"
        return f"sum({self.write(body, {**scope, level: here + '-t'})} for t in 0..{width - 1})"

    def _pick(self, node: Node, scope: Mapping[str, str]) -> str:
        return self.write(node[3], scope)

    def _fix(self, node: Node, scope: Mapping[str, str]) -> str:
        shown = tex_label(node[2]) if self._tex else str(node[2])
        return self.write(node[3], {**scope, node[1]: shown})

    def _at(self, node: Node, scope: Mapping[str, str]) -> str:
        read = {}
        for level, how in node[1]:
            if isinstance(how, str):
                read[level] = self.index(how, scope)
            else:
                read[level] = (
                    f"{tex_text(how[0]) if self._tex else how[0]}({','.join(self.index(h, scope) for h in how[1])})"
                )
        return self.write(node[2], {**scope, **read})

    def _each(self, node: Node, scope: Mapping[str, str]) -> str:
        body, here = self.write(node[2], scope), self.index(node[1], scope)
        return rf"{body} \quad \text{{for each }} {here} \text{{ in order}}" if self._tex else f"{body} for each {here}"


#: Positions of the trees inside each kind of node; terms of a sum apart.
_INSIDE = {
    "times": (1, 2),
    "over": (1, 2),
    "sum": (2,),
    "shift": (3,),
    "roll": (3,),
    "pick": (3,),
    "fix": (3,),
    "at": (2,),
    "each": (2,),
}


def _walk(node: Node) -> Iterable[Node]:
    yield node
    for inner in [n for _, n in node[1]] if node[0] == "add" else [node[k] for k in _INSIDE.get(node[0], ())]:
        yield from _walk(inner)


def symbols(node: Node) -> set[str]:
    """Names of the variables and data in a tree."""
    return {each[1] for each in _walk(node) if each[0] == "symbol"}


def from_lists(tree: Any) -> Any:
    """A tree as read from JSON, its lists as tuples."""
    return tuple(from_lists(each) for each in tree) if isinstance(tree, list) else tree
