"""Selectors of Kubernetes: labels of pods, labels and fields of nodes, taints and tolerations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

_OPERATORS = "In, NotIn, Exists, DoesNotExist"
#: Values that a label may have.
_VALUE = re.compile(r"(?=.{0,63}\Z)(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)?")


class Taint(NamedTuple):
    """A taint of a node."""

    key: str
    value: str
    effect: str

    @property
    def text(self) -> str:
        """As ``kubectl taint`` writes it."""
        return f"{self.key}={self.value}:{self.effect}"


def _met(rule: Mapping[str, Any], labels: Mapping[str, str], what: str, *, numbers: bool) -> bool:
    key, operator = rule["key"], rule["operator"]
    values = [str(value) for value in rule.get("values") or ()]
    if numbers and operator in ("In", "NotIn") and not all(map(_VALUE.fullmatch, values)):
        return False  # a node selector with a value that no label may have matches no node
    if operator == "In":
        return labels.get(key) in values
    if operator == "NotIn":
        return labels.get(key) not in values
    if operator == "Exists":
        return key in labels
    if operator == "DoesNotExist":
        return key not in labels
    if numbers and operator in ("Gt", "Lt"):
        return _compared(operator, labels.get(key), values)
    known = f"{_OPERATORS}{', Gt, Lt' if numbers else ''}"
    raise ValueError(f"{what} with operator {operator!r}; {known} are known")


def _compared(operator: str, label: str | None, values: list[str]) -> bool:
    if len(values) != 1:
        raise ValueError(f"node affinity {operator} with {len(values)} values; one number is expected")
    bound, number = _whole(values[0]), _whole(label or "")
    if bound is None:
        raise ValueError(f"node affinity {operator} {values[0]!r}; a whole number is expected")
    return number is not None and (number > bound if operator == "Gt" else number < bound)


def _whole(text: str) -> int | None:
    """A whole number of 64 bits, as Kubernetes reads labels; None for any other text."""
    number = int(text) if re.fullmatch(r"[+-]?[0-9]{1,30}", text) else 2**63
    return number if -(2**63) <= number < 2**63 else None


def selects(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Return whether a label selector matches; no selector matches nothing."""
    if selector is None:
        return False
    plain = selector.get("matchLabels") or {}
    rules = selector.get("matchExpressions") or ()
    return all(labels.get(key) == value for key, value in plain.items()) & all(
        [_met(rule, labels, "label selector", numbers=False) for rule in rules]
    )


def matches_node(spec: Mapping[str, Any], name: str, labels: Mapping[str, str]) -> bool:
    """Whether a pod's ``nodeSelector`` and required node affinity let it run on a node."""
    wanted = spec.get("nodeSelector") or {}
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    return required is None or any([_term(term, name, labels) for term in required.get("nodeSelectorTerms") or ()])


def _term(term: Mapping[str, Any], name: str, labels: Mapping[str, str]) -> bool:
    """Whether a node meets all expressions of a term; one without expressions matches no node."""
    expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    if any(rule["key"] != "metadata.name" for rule in fields):
        raise ValueError("node affinity by a field other than metadata.name, which Kubernetes does not know")
    met = [_met(rule, labels, "node affinity", numbers=True) for rule in expressions]
    met += [_met(rule, {"metadata.name": name}, "node affinity", numbers=False) for rule in fields]
    return bool(met) and all(met)


def tolerates(tolerations: Iterable[Mapping[str, Any]], taint: Taint) -> bool:
    """Whether one of the tolerations lets a pod run in spite of a taint."""
    return any(_tolerates(each, taint) for each in tolerations)


def _tolerates(toleration: Mapping[str, Any], taint: Taint) -> bool:
    key, operator = toleration.get("key") or "", toleration.get("operator") or "Equal"
    if operator not in ("Equal", "Exists"):
        raise ValueError(f"toleration with operator {operator!r}; Equal and Exists are known")
    if (toleration.get("effect") or taint.effect) != taint.effect or (key and key != taint.key):
        return False
    if not key and operator != "Exists":
        return False
    return operator == "Exists" or (toleration.get("value") or "") == taint.value
