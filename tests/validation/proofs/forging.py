"""Forge the proof, the answer or the claim of a solution file, in one of many named ways.

Forgeries change a file in place and return whether there was anything to change. They know the format of proofs, and
of the parts of a family's proof only that these hold leaves too.
"""

import copy
import random
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

from flowlex.validation.proofs.exact_program import ExactProgram

Document = dict[str, Any]
#: Names and labels of columns, and names of rows, of objectives and of blocks, of the problem that a file is of.
Names = dict[str, Any]
Forgery = Callable[[Document, random.Random, Names], bool]

_LEAF = {"rows", "own", "earlier", "complete", "blocks", "with_earlier", "branches", "shared"}
_NUMBERS: tuple[Any, ...] = (0, 1, -1, 2, 5, "-7/3", "1/1000", 0.5, -0.25)
_HUGE: tuple[Any, ...] = (10**40, -(10**40), 2**62, 2**63, -(2**63), "1e300", "1/" + "9" * 50, 10**5000, 1.7e308)
_NOT: tuple[Any, ...] = ("NaN", float("nan"), float("inf"), None, True, "", "1/0", [], {}, "0x10", "1_0")
_CHANGES: tuple[Callable[[Any], Any], ...] = (
    *(lambda x, by=by: x * by for by in (-1, 0, Fraction(1, 2), Fraction(99, 100), Fraction(1001, 1000), 2, 10, 10**6)),
    *(lambda x, by=by: x + by for by in (-1, Fraction(-1, 100), Fraction(1, 10**9), 1, 10)),
)


def _nodes(part: Any) -> Iterator[Any]:
    if isinstance(part, (dict, list)):
        yield part
        for value in part.values() if isinstance(part, dict) else part:
            yield from _nodes(value)


def _leaves(proof: Any) -> list[Document]:
    return [n for n in _nodes(proof) if isinstance(n, dict) and _LEAF & n.keys() and "stages" not in n]


def _tables(proof: Any) -> list[Document]:
    """Multipliers of rows of one name, with ``default`` and ``at``."""
    return [n for n in _nodes(proof) if isinstance(n, dict) and n.keys() and n.keys() <= {"default", "at"}]


def _lists(proof: Any) -> list[list[Any]]:
    return [n for n in _nodes(proof) if isinstance(n, list) and n and all(isinstance(each, dict) for each in n)]


def _numbers(part: Any) -> list[tuple[Any, Any]]:
    """Container and key of every finite number, texts of fractions among them."""
    found = []
    for node in _nodes(part):
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            text = isinstance(value, str) and value.replace("/", "").lstrip("-").isdigit()
            if (text or (isinstance(value, (int, float)) and not isinstance(value, bool))) and _finite(value):
                found.append((node, key))
    return found


def _finite(value: Any) -> bool:
    try:
        return max(map(int.bit_length, Fraction(value).as_integer_ratio())) < 10_000
    except (ArithmeticError, TypeError, ValueError):  # NaN, 1/0, or what an earlier forgery left
        return False


def _altered(value: Any, rng: random.Random) -> Any:
    made = rng.choice(_CHANGES)(Fraction(value))
    return float(made) if isinstance(value, float) else int(made) if made.denominator == 1 else str(made)


def _set(values: tuple[Any, ...]) -> Forgery:
    def forge(document: Document, rng: random.Random, names: Names) -> bool:
        places = _numbers(_tables(document["proof"])) or _numbers(document["proof"])
        for where, at in [rng.choice(places)] if places else ():
            where[at] = rng.choice(values)
        return bool(places)

    return forge


def _multipliers(document: Document, rng: random.Random, names: Names) -> bool:
    places = _numbers(document["proof"])
    for where, at in rng.sample(places, min(len(places), rng.choice((1, 1, 2, 3)))):
        where[at] = _altered(where[at], rng)
    return bool(places)


def _whole_tables(document: Document, rng: random.Random, names: Names) -> bool:
    tables = [each for each in _tables(document["proof"]) if _numbers(each)]
    if tables:
        change, table = rng.choice(_CHANGES), rng.choice(tables)
        for where, at in _numbers(table):
            made = change(Fraction(where[at]))
            where[at] = float(made) if isinstance(where[at], float) else str(made)
    return bool(tables)


def _default(document: Document, rng: random.Random, names: Names) -> bool:
    tables = _tables(document["proof"])
    for table in rng.sample(tables, min(1, len(tables))):
        table["default"] = rng.choice(_NUMBERS)
    return bool(tables)


def _label(how: str) -> Forgery:
    def forge(document: Document, rng: random.Random, names: Names) -> bool:
        tables = [each["at"] for each in _tables(document["proof"]) if each.get("at") and isinstance(each["at"], dict)]
        if not tables:
            return False
        at = rng.choice(tables)
        one, other = rng.choice(list(at)), rng.choice(list(at))
        if how == "missing":
            del at[one]
        elif how == "exchanged":
            at[one], at[other] = at[other], at[one]
        elif how == "unknown":
            at[rng.choice((f"{one}x", "", f" {one}", f"{one},{other}", "9" * 30))] = rng.choice((at[one], 1))
        else:  # a run of an ordered level
            first, last = sorted(rng.choice((0, 1, 2, 3, 5, 9, 10**15)) for _ in range(2))
            new = f"{one.rpartition(',')[0]},{rng.choice((f'{first}..{last}', f'{last}..{first}', f'{first}'))}"
            at[new] = at.pop(one) if rng.random() < 0.5 else at[one]
        return True

    return forge


def _rows_exchanged(document: Document, rng: random.Random, names: Names) -> bool:
    leaves = [each for each in _leaves(document["proof"]) if isinstance(each.get("rows"), dict) and each["rows"]]
    if not leaves:
        return False
    rows = rng.choice(leaves)["rows"]
    one, other = rng.choice(list(rows)), rng.choice([*rows, *names["rows"]])
    rows[one], rows[other] = rows.get(other, {}), rows[one]
    return True


def _leaf_list(how: str) -> Forgery:
    def forge(document: Document, rng: random.Random, names: Names) -> bool:
        lists = _lists(document["proof"])
        if lists:
            chosen = rng.choice(lists)
            if how == "dropped":
                del chosen[rng.randrange(len(chosen))]
            else:
                chosen.append(copy.deepcopy(rng.choice(rng.choice(lists))))
        return bool(lists)

    return forge


def _in_leaf(change: Callable[[Document, random.Random, Names], Any]) -> Forgery:
    def forge(document: Document, rng: random.Random, names: Names) -> bool:
        leaves = _leaves(document["proof"])
        if leaves:
            change(rng.choice(leaves), rng, names)
        return bool(leaves)

    return forge


def _term(rng: random.Random, names: Names) -> list[Any]:
    name, label = rng.choice(names["columns"])
    return [name, label, rng.choice((1, 1, -1, 2, "1/2"))]


def _branch(leaf: Document, rng: random.Random, names: Names) -> None:
    old = leaf.setdefault("branches", [])
    if old and rng.random() < 0.6:
        each = rng.choice(old)
        how = rng.randrange(3)
        if how == 0:
            old.remove(each)
        elif how == 1 or not _finite(each.get("side")):
            each["relation"] = {"<=": ">=", ">=": "<="}.get(each.get("relation"), "<=")
        else:
            each["side"] = int(Fraction(each["side"])) + rng.choice((-1, 1))
    else:
        side, multiplier = rng.choice((-1, 0, 1, 2)), rng.choice((0, 1, -1, 100))
        row = {"row": [_term(rng, names)], "relation": rng.choice(("<=", ">=")), "side": side, "multiplier": multiplier}
        old.append(row)


def _earlier(leaf: Document, rng: random.Random, names: Names) -> None:
    value = rng.choice((-1, -2, "-1/2", 1, -(10**30)))
    leaf["earlier"] = value if rng.random() < 0.3 else {rng.choice(names["objectives"] or ["none"]): value}


def _completed(leaf: Document, rng: random.Random, names: Names) -> None:
    kind = rng.choice(("complete", "blocks", "with_earlier"))
    if kind == "with_earlier":
        leaf[kind] = not leaf.get(kind, False)
    else:
        known = names["rows"] if kind == "complete" else names["blocks"]
        leaf[kind] = rng.sample([*known, "none"], rng.randint(0, 1 + len(known)))


def _derived(document: Document, rng: random.Random, names: Names) -> bool:
    leaves = _leaves(document["proof"])
    if leaves:
        proof = document["proof"]
        holder = rng.choice([n for n in _nodes(proof) if isinstance(n, dict) and "stages" in n] or [proof])
        rows = holder.setdefault("derived", [])
        if isinstance(rows, list):
            terms = [_term(rng, names) for _ in range(rng.choice((1, 2)))]
            cases = [copy.deepcopy(rng.choice(leaves)) for _ in range(rng.choice((0, 1, 2)))]
            rows.append({"row": terms, "stage": rng.choice((0, 1, 2)), "cases": cases})
            rng.choice(leaves)["derived"] = {str(len(rows) - 1): rng.choice((1, 5, 10**9, -1))}
    return bool(leaves)


def _stages_exchanged(document: Document, rng: random.Random, names: Names) -> bool:
    tables = [n for n in _nodes(document["proof"]) if isinstance(n, dict) and n.keys() & {"stages", "admission"}]
    for table in tables:
        stages = table.get("stages", table.get("admission"))
        if isinstance(stages, dict) and stages:
            one, other = rng.choice(list(stages)), rng.choice([*stages, *names["objectives"]])
            kept = stages.get(other, stages[one])
            stages[other] = other if rng.random() < 0.1 else copy.deepcopy(stages[one])
            stages[one] = kept
    return bool(tables)


def _status(status: str) -> Forgery:
    def forge(document: Document, rng: random.Random, names: Names) -> bool:
        proof, leaves = document["proof"], _leaves(document["proof"])
        holders = [n for n in _nodes(proof) if isinstance(n, dict) and "stages" in n] or [proof]
        document |= {"status": status, "answer": {}, "objective": None, "bound": None, "gap": None, "stages": {}}
        for holder in holders:
            holder["empty"] = [copy.deepcopy(each) | {"own": rng.choice((0, 0, 1))} for each in leaves[:2]] or [
                {"own": 0}
            ]
            if status == "unbounded":
                vector = [[*rng.choice(names["columns"]), rng.choice((1, -1, "1/1000000000"))] for _ in range(2)]
                holder |= {"point": vector, "ray": vector}
        document["metrics"] = {}
        return True

    return forge


def _answer(change: Callable[[Any, random.Random], Any]) -> Forgery:
    def forge(document: Document, rng: random.Random, names: Names) -> bool:
        places = _numbers(document["answer"])
        for where, at in [rng.choice(places)] if places else ():
            where[at] = change(where[at], rng)
        return bool(places)

    return forge


def _reshaped(document: Document, rng: random.Random, names: Names) -> bool:
    nodes = [node for node in _nodes(document["proof"]) if node]
    if not nodes:
        return False
    node = rng.choice(nodes)
    keys = list(range(len(node))) if isinstance(node, list) else list(node)
    one, other = rng.choice(keys), rng.choice(keys)
    how = rng.randrange(3)
    if how == 0:
        del node[one]
    elif how == 1:
        node[one] = copy.deepcopy(rng.choice(nodes))
    else:
        node[one], node[other] = node[other], node[one]
    return True


#: By name: what is forged.
FORGERIES: dict[str, Forgery] = {
    "multipliers": _multipliers,
    "all multipliers of a name": _whole_tables,
    "defaults": _default,
    "huge numbers": _set(_HUGE),
    "NaN and no numbers": _set(_NOT),
    "missing labels": _label("missing"),
    "exchanged labels": _label("exchanged"),
    "unknown labels": _label("unknown"),
    "runs": _label("runs"),
    "exchanged rows": _rows_exchanged,
    "dropped leaves": _leaf_list("dropped"),
    "repeated leaves": _leaf_list("repeated"),
    "multiplier of the objective": _in_leaf(
        lambda leaf, rng, _: leaf.__setitem__("own", rng.choice((0, 2, "1/3", -1, 10**30)))
    ),
    "branches": _in_leaf(_branch),
    "earlier objectives": _in_leaf(_earlier),
    "completed rows and blocks": _in_leaf(_completed),
    "derived rows": _derived,
    "exchanged stages": _stages_exchanged,
    "no answer": _status("infeasible"),
    "no best answer": _status("unbounded"),
    "values slightly off": _answer(_altered),
    "fractions of integers": _answer(lambda v, rng: float(Fraction(v)) + rng.choice((0.5, 1e-7, -1e-9))),
    "parts of the proof": _reshaped,
}


def names_of(program: ExactProgram, more: tuple[str, ...] = ()) -> Names:
    """What a forged proof of a problem may name."""
    columns = [(block.name, text) for block in program.columns for text in block.texts()]
    objectives = [each.name for each in program.objectives]
    return {"columns": columns, "rows": [*program.rows], "objectives": objectives, "blocks": [*program.blocks, *more]}


def forged(document: Document, rng: random.Random, names: Names) -> str:
    """Forge a file one to three times; the name of the first forgery."""
    done: list[str] = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        kinds = list(FORGERIES)
        rng.shuffle(kinds)
        for kind in kinds:
            if FORGERIES[kind](document, rng, names):
                done.append(kind)
                break
    return done[0]


def spoilt(proof: Any, rng: random.Random) -> Any:
    """A proof with one to three changes of numbers or of what holds them."""
    document = {"proof": copy.deepcopy(proof)}
    for _ in range(rng.randint(1, 3)):
        (_multipliers if rng.random() < 0.75 else _reshaped)(document, rng, {})
    return document["proof"]
