"""Problems as plain data for files: levels, variables, rows and objectives as arrays with labels, and formulas."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np

from flowlex.formulations.language.exact_units import Unit
from flowlex.formulations.language.formulas import from_lists
from flowlex.formulations.language.labels import Index, Level, StatementError
from flowlex.formulations.language.statement import Objective, RowBlock, Statement, VariableBlock
from flowlex.formulations.program_arrays import Floats

#: Version of the format.
FORMAT = 1
StatementT = TypeVar("StatementT", bound=Statement)
_RELATIONS = ("<=", ">=", "==")


def to_document(problem: Statement) -> dict[str, Any]:
    """The problem as plain data."""
    return {
        "kind": "problem",
        "version": FORMAT,
        "name": problem.name,
        "levels": {
            name: {"labels": [label_document(x) for x in level.labels], "words": problem.level_words.get(name, "")}
            for name, level in problem.levels.items()
        },
        "data": {name: [words, unit, list(levels)] for name, (words, unit, levels) in problem.symbols.items()},
        "variables": {
            b.name: {
                "members": index_document(b.index),
                "lower": _numbers_out(b.lower),
                "upper": _numbers_out(b.upper),
                "integer": _flags_out(b.integer),
                "words": b.words,
                "unit": b.unit,
            }
            for b in problem.blocks.values()
        },
        "rows": {
            b.name: {
                "members": index_document(b.index),
                "relation": b.relation,
                "unit": None if b.unit is None else str(b.unit),
                "row": b.rows.tolist(),
                "column": b.columns.tolist(),
                "value": _numbers_out(b.values),
                "rhs": _numbers_out(b.rhs),
                "formula": _plain([b.left, b.right, b.condition]),
                "words": b.words,
                "dual": b.dual,
            }
            for b in problem.rows.values()
        },
        "objectives": [
            {
                "name": o.name,
                "sense": "maximize" if o.maximize else "minimize",
                "unit": None if o.unit is None else str(o.unit),
                "column": o.columns.tolist(),
                "value": _numbers_out(o.values),
                "constant": o.constant,
                "within": str(o.within),
                "relative": o.relative,
                "formula": _plain(o.formula),
                "words": o.words,
                "measure": o.measure,
                "sorted_of": o.sorted_of,
            }
            for o in problem.objectives
        ],
    }


def from_document(cls: type[StatementT], document: Any) -> StatementT:
    """A problem from plain data.

    Raises `StatementError` with the place and the reason, for any data.
    """
    try:
        problem = cls(_text(_object(document, "a problem").get("name", "problem"), "name"))
        _Reader(problem, document)
        return problem
    except (KeyError, TypeError, ValueError, IndexError, OverflowError, AttributeError, RecursionError) as error:
        if isinstance(error, StatementError):
            raise
        raise StatementError(f"no problem file: {type(error).__name__}: {str(error)[:120]}") from error


class _Reader:
    def __init__(self, problem: Statement, document: Any) -> None:
        given = _object(document, "a problem")
        if given.get("kind") != "problem" or given.get("version") != FORMAT:
            raise StatementError(
                f"expected a problem of version {FORMAT}, got {str(given.get('kind'))[:40]!r} of version "
                f"{str(given.get('version'))[:20]}"
            )
        p = self.problem = problem
        for name, level in _object(given.get("levels", {}), "levels").items():
            labels = [
                from_label(x, f"levels.{name}")
                for x in _list(_object(level, f"levels.{name}").get("labels"), f"levels.{name}.labels")
            ]
            p.set(name, labels, _text(level.get("words", ""), f"levels.{name}.words"))
        for name, said in _object(given.get("data", {}), "data").items():
            words, unit, levels = said
            p.symbols[name] = (str(words), str(unit), tuple(map(str, levels)))
        for name, block in _object(given.get("variables", {}), "variables").items():
            self._variables(name, _object(block, f"variables.{name}"))
        self.columns = p.column_count
        for name, block in _object(given.get("rows", {}), "rows").items():
            self._rows(name, _object(block, f"rows.{name}"))
        for k, objective in enumerate(_list(given.get("objectives", []), "objectives")):
            self._objective(_object(objective, f"objectives.{k}"), f"objectives.{k}")

    def _variables(self, name: str, given: Mapping[str, Any]) -> None:
        place, p = f"variables.{name}", self.problem
        index = read_index(given.get("members"), p.levels, place)
        lower, upper = (
            _numbers_in(given.get(side), index.count, f"{place}.{side}", infinite=True) for side in ("lower", "upper")
        )
        flags = given.get("integer")
        integer = (
            np.full(index.count, flags)
            if isinstance(flags, bool)
            else np.array([_flag(x, f"{place}.integer") for x in _list(flags, f"{place}.integer")], bool)
        )
        if len(integer) != index.count:
            raise StatementError(f"{place}.integer: {index.count} flags expected, got {len(integer)}")
        if (lower > upper).any():
            raise StatementError(
                f"{place}: a lower bound exceeds its upper bound, at {index.text(int(np.argmax(lower > upper)))}"
            )
        p.blocks[name] = VariableBlock(
            name,
            index,
            p.column_count,
            lower,
            upper,
            integer,
            _text(given.get("words", ""), place),
            _text(given.get("unit", ""), place),
        )

    def _rows(self, name: str, given: Mapping[str, Any]) -> None:
        place, p = f"rows.{name}", self.problem
        index = read_index(given.get("members"), p.levels, place)
        if given.get("relation") not in _RELATIONS:
            raise StatementError(f"{place}.relation: one of <=, >=, ==, got {str(given.get('relation'))[:20]!r}")
        row = _positions_in(given.get("row"), index.count, f"{place}.row")
        column = _positions_in(given.get("column"), self.columns, f"{place}.column", len(row))
        values = _numbers_in(given.get("value"), len(row), f"{place}.value")
        left, right, condition = (from_lists(x) for x in given.get("formula", [["number", "?"], ["number", "?"], None]))
        key = row * max(self.columns, 1) + column
        if len(np.unique(key)) != len(key):
            raise StatementError(f"{place}: a row names a variable twice")
        order = np.argsort(key, kind="stable")
        self.problem.rows[name] = RowBlock(
            name, index, given["relation"], row[order], column[order], values[order],
            _numbers_in(given.get("rhs"), index.count, f"{place}.rhs"), _unit_in(given.get("unit"), values, place),
            left, right, condition, _text(given.get("words", ""), place), _text(given.get("dual", ""), place),
        )  # fmt: skip

    def _objective(self, given: Mapping[str, Any], place: str) -> None:
        column = _positions_in(given.get("column"), self.columns, f"{place}.column")
        if len(np.unique(column)) != len(column):
            raise StatementError(f"{place}: names a variable twice")
        values = _numbers_in(given.get("value"), len(column), f"{place}.value")
        constant = _numbers_in([given.get("constant", 0)], 1, f"{place}.constant")
        if given.get("sense") not in ("minimize", "maximize"):
            raise StatementError(f"{place}.sense: minimize or maximize, got {str(given.get('sense'))[:20]!r}")
        name = _text(given.get("name"), f"{place}.name")
        if name in {o.name for o in self.problem.objectives}:
            raise StatementError(f"{place}: a second objective {name!r}")
        within = Fraction(_text(given.get("within", "0"), place)[:40])
        self.problem.objectives.append(
            Objective(
                name,
                column,
                values,
                float(constant[0]),
                _unit_in(given.get("unit"), np.append(values, constant), place),
                given["sense"] == "maximize",
                from_lists(given.get("formula", ["number", "?"])),
                abs(within),
                _flag(given.get("relative", False), place),
                _text(given.get("words", ""), place),
                _text(given.get("measure", ""), place),
                _text(given.get("sorted_of", ""), place),
            )
        )


def index_document(index: Index) -> dict[str, Any]:
    """Members as plain data: their keys and, unless they are all combinations, their codes."""
    if index.dense and set(index.levels) == set(index.keys):
        return {"keys": list(index.keys)}
    return {"keys": list(index.keys), "codes": {name: code.tolist() for name, code in index.codes.items()}}


def _numbers_out(values: Floats) -> Any:
    """Numbers as a list; one number if all are equal; infinite ones as text."""
    if len(values) and (values == values[0]).all():
        return {"all": _number_out(float(values[0]))}
    return [_number_out(v) for v in values.tolist()]


def _number_out(value: float) -> float | int | str:
    if not np.isfinite(value):
        return "inf" if value > 0 else "-inf"
    return int(value) if value == int(value) and abs(value) <= 2.0**53 else value


def _numbers_in(given: Any, count: int, place: str, *, infinite: bool = False) -> Floats:
    listed = [given["all"]] * count if isinstance(given, dict) and set(given) == {"all"} else _list(given, place)
    if len(listed) != count:
        raise StatementError(f"{place}: {count} numbers expected, got {len(listed)}")
    found = np.array([_number_in(v, place, infinite) for v in listed], np.float64)
    return found.reshape(count)


def _number_in(value: Any, place: str, infinite: bool) -> float:
    if isinstance(value, str) and infinite and value in ("inf", "-inf"):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 1e308:
        raise StatementError(f"{place}: expected a finite number, got {str(value)[:40]!r}")
    return float(value)


def _flags_out(flags: Any) -> Any:
    return bool(flags.all()) if flags.all() or not flags.any() else flags.tolist()


def _positions_in(given: Any, below: int, place: str, count: int | None = None) -> Any:
    listed = _list(given, place)
    if any(not isinstance(x, int) or isinstance(x, bool) or not 0 <= x < below for x in listed):
        wrong = next(x for x in listed if not isinstance(x, int) or isinstance(x, bool) or not 0 <= x < below)
        raise StatementError(f"{place}: expected numbers from 0 to {below - 1}, got {str(wrong)[:40]!r}")
    if count is not None and len(listed) != count:
        raise StatementError(f"{place}: {count} numbers expected, got {len(listed)}")
    return np.array(listed, np.int64).reshape(len(listed))


def _unit_in(given: Any, values: Floats, place: str) -> Unit:
    if given is None:
        return None
    text = _text(given, f"{place}.unit")
    if len(text) > 80 or (values != np.rint(values)).any():
        raise StatementError(f"{place}.unit: {text[:40]!r} needs integer numbers")
    unit = Fraction(text)
    if unit <= 0:
        raise StatementError(f"{place}.unit: must be positive, got {text[:40]!r}")
    return unit


def _plain(formula: Any) -> Any:
    """A formula as lists; labels that are neither text nor numbers as the text that they are printed as."""
    if isinstance(formula, (tuple, list)):
        return [_plain(each) for each in formula]
    return formula if formula is None or isinstance(formula, (str, int, float)) else str(formula)


def label_document(label: Any) -> Any:
    """A label as plain data."""
    if isinstance(label, tuple):
        return {"tuple": [label_document(x) for x in label]}
    if isinstance(label, datetime.datetime):
        return {"datetime": label.isoformat()}
    if isinstance(label, datetime.date):
        return {"date": label.isoformat()}
    if isinstance(label, (str, int, float)) and not isinstance(label, bool):
        return label
    if isinstance(label, bool):
        return {"bool": label}
    return {"text": str(label)}


def from_label(value: Any, place: str) -> Any:
    """A label from plain data; `StatementError` names the place."""
    if not isinstance(value, dict):
        if isinstance(value, (str, int, float)) and not isinstance(value, bool):
            return value
        raise StatementError(f"{place}: a label is text or a number, got {str(value)[:40]!r}")
    if len(value) == 1:
        ((kind, inner),) = value.items()
        if kind == "tuple":
            return tuple(from_label(x, place) for x in _list(inner, place))
        if kind == "datetime":
            return datetime.datetime.fromisoformat(_text(inner, place))
        if kind == "date":
            return datetime.date.fromisoformat(_text(inner, place))
        if kind == "bool" and isinstance(inner, bool):
            return inner
        if kind == "text":
            return _text(inner, place)
    raise StatementError(f"{place}: no label is {str(value)[:60]}")


def _object(value: Any, place: str) -> Any:
    if not isinstance(value, dict):
        raise StatementError(f"{place}: expected an object, got {str(value)[:40]!r}")
    return value


def _list(value: Any, place: str) -> Any:
    if not isinstance(value, list):
        raise StatementError(f"{place}: expected a list, got {str(value)[:40]!r}")
    return value


def _text(value: Any, place: str) -> str:
    if not isinstance(value, str):
        raise StatementError(f"{place}: expected text, got {str(value)[:40]!r}")
    return value


def _flag(value: Any, place: str) -> bool:
    if not isinstance(value, bool):
        raise StatementError(f"{place}: expected true or false, got {str(value)[:40]!r}")
    return value


def fingerprint(problem: Statement) -> str:
    """SHA-256 of everything that counts: names, labels, bounds, rows and objectives."""
    digest = hashlib.sha256()

    def add(*parts: Any) -> None:
        for part in parts:
            data = np.ascontiguousarray(part).tobytes() if isinstance(part, np.ndarray) else repr(part).encode()
            digest.update(len(data).to_bytes(8, "little") + data)

    def members(index: Index) -> Sequence[Any]:
        return [index.keys, *(index.codes[k].astype(np.int32) for k in index.keys)]

    indices = [b.index for b in problem.blocks.values()] + [r.index for r in problem.rows.values()]
    for name in sorted({k for index in indices for k in index.keys}):
        add(name, [label_document(label) for label in problem.levels[name].labels])
    for b in problem.blocks.values():
        add(b.name, *members(b.index), b.lower + 0.0, b.upper + 0.0, b.integer)
    for r in problem.rows.values():
        add(r.name, *members(r.index), r.relation, r.rows, r.columns, r.values + 0.0, r.rhs + 0.0, str(r.unit))
    for o in problem.objectives:
        add(o.name, o.columns, o.values + 0.0, o.constant + 0.0, str(o.unit), o.maximize, str(o.within), o.relative)
    return "sha256:" + digest.hexdigest()


def read_index(given: Any, levels: Mapping[str, Level], place: str) -> Index:
    """Members from plain data; `StatementError` names the place."""
    members = _object(given, f"{place}.members")
    keys = [_text(k, f"{place}.members.keys") for k in _list(members.get("keys"), f"{place}.members.keys")]
    codes = members.get("codes")
    for name in [*keys, *(codes if isinstance(codes, dict) else ())]:
        if name not in levels:
            raise StatementError(f"{place}.members: level {str(name)[:60]!r} is not declared")
    if codes is None:
        index = Index.product([levels[k] for k in keys])
        if index.count > 10**9:
            raise StatementError(f"{place}.members: {index.count} members are too many")
        return index
    codes = _object(codes, f"{place}.members.codes")
    count = len(_list(codes[keys[0]], f"{place}.members.codes")) if keys else 1
    found = [
        _positions_in(c, len(levels[n]), f"{place}.members.codes.{n}", count).astype(np.int32) for n, c in codes.items()
    ]
    if set(keys) - set(codes):
        raise StatementError(f"{place}.members: codes of {sorted(set(keys) - set(codes))[0]!r} are missing")
    return Index.of([levels[n] for n in codes], found, keys, place)
