"""Kubernetes quantities, and pod requests as the scheduler computes them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

Amounts = dict[str, int]

_POWERS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_QUANTITY = re.compile(
    r"([+-]?\d{1,30}(?:\.\d{0,30})?|[+-]?\.\d{1,30})(?:([KMGTPE])i|([numkMGTPE])|[eE]([+-]?\d{1,2}))?"
)


def quantity(text: object) -> Fraction:
    """A Kubernetes quantity, exactly: ``500m`` is one half, ``1Ki`` is 1024."""
    found = _QUANTITY.fullmatch(str(text).strip())
    if found is None:
        raise ValueError(f"{str(text)[:40]!r} is no quantity; such as 500m, 2 or 16Gi is expected")
    number, binary, decimal, exponent = found.groups()
    if binary:
        return Fraction(number) * (1 << 10 * ("KMGTPE".index(binary) + 1))
    power = int(exponent) if exponent else _POWERS[decimal or ""]
    return Fraction(f"{number}e{power}")


def _amounts(listed: object) -> Amounts:
    """Resources by name in thousandths, rounded up as the API server does."""
    if listed is None:
        return {}
    if not isinstance(listed, Mapping):
        raise ValueError(f"resources are expected by name, got {str(listed)[:40]!r}")
    found = {}
    for name, text in listed.items():
        amount = quantity(text)
        if amount < 0:
            raise ValueError(f"{name} is {text}; a quantity must be at least 0")
        found[str(name)] = math.ceil(amount * 1000)
    return found


def _units(thousandths: Amounts) -> Amounts:
    """Resources in the scheduler's units, rounded up: thousandths of a core, whole units of everything else."""
    return {name: amount if name == "cpu" else -(-amount // 1000) for name, amount in thousandths.items()}


def allocatable(node: Mapping[str, Any]) -> Amounts:
    """Return the total that the pods of a node may request."""
    return _units(_amounts(node["status"]["allocatable"]))


def shown(name: str, amount: int) -> str:
    """An amount in the scheduler's units, for a message."""
    if name == "cpu":
        return f"{amount / 1000:g} cores"
    bytes_of = name in ("memory", "ephemeral-storage") or name.startswith("hugepages-")
    return f"{amount / 1024**3:.4g} GB" if bytes_of else f"{amount}"


def canonical(name: str, amount: int) -> str:
    """An amount in the scheduler's units as a Kubernetes quantity: ``1500m``, ``2Gi``."""
    if name == "cpu":
        return f"{amount // 1000}" if amount % 1000 == 0 else f"{amount}m"
    for power, suffix in ((60, "Ei"), (50, "Pi"), (40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")):
        if amount and amount % (1 << power) == 0:
            return f"{amount >> power}{suffix}"
    return str(amount)


def gigabytes(size: int, *, up: bool = False) -> float:
    """Convert bytes to GB with 12 decimals: rounded up for nodes and down for pods, so that exact fits still fit.

    For a thousand pods on a node, the rounding error is at most one byte.
    """
    scaled = size * 10**12
    return float((-(-scaled >> 30) if up else scaled >> 30) / 10**12)


def requests(pod: Mapping[str, Any]) -> Amounts:
    """Return the resources that the scheduler reserves for a pod.

    This is the larger of the sum of containers and sidecars, and any init container with the sidecars before it; a
    request of the pod itself replaces it; the overhead is added. A resized container counts the larger of its request
    and its present amount, or only the latter if its node cannot resize it.
    """
    total = _of_containers(pod, "requests")
    total |= _of_pod(pod["spec"], total)
    _add(total, _amounts(pod["spec"].get("overhead")))
    return {name: amount for name, amount in _units(total).items() if amount}


def limits(pod: Mapping[str, Any]) -> Amounts:
    """The limits of a pod, as quotas count them.

    Limits of its containers are added up like requests; a limit of the pod itself replaces their sum; the overhead
    counts for resources that have a limit.
    """
    total = _of_containers(pod, "limits") | _amounts((pod["spec"].get("resources") or {}).get("limits"))
    _add(total, {name: more for name, more in _amounts(pod["spec"].get("overhead")).items() if name in total})
    return {name: amount for name, amount in _units(total).items() if amount}


def _of_containers(pod: Mapping[str, Any], kind: str) -> Amounts:
    """``requests`` or ``limits`` of all containers together."""
    spec, status = pod["spec"], pod.get("status") or {}
    has = _resized([*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())], kind)
    stuck = _infeasible(status)
    total: Amounts = {}
    for container in spec["containers"]:
        _add(total, _of(container, has, stuck, kind))
    sidecars: Amounts = {}
    largest: Amounts = {}
    for container in spec.get("initContainers") or ():
        sidecar = container.get("restartPolicy") == "Always"
        own = _of(container, has if sidecar else {}, stuck, kind)
        if sidecar:
            _add(total, own)
            _add(sidecars, own)
            own = {}
        together = dict(sidecars)
        _add(together, own)
        _raise(largest, together)
    _raise(total, largest)
    return total


def _of_pod(spec: Mapping[str, Any], total: Amounts) -> Amounts:
    """Return requests of the pod itself; a limit counts as request for resources that no container requests."""
    resources = spec.get("resources") or {}
    limits = {name: amount for name, amount in _amounts(resources.get("limits")).items() if name not in total}
    return limits | _amounts(resources.get("requests"))


def _of(container: Mapping[str, Any], has: Mapping[str, Amounts], stuck: bool, kind: str) -> Amounts:
    """Return a container's amounts; a limit without a request is also the request. ``stuck``: it cannot be resized."""
    resources = container.get("resources") or {}
    found = _amounts(resources.get("limits")) | _amounts(resources.get(kind))
    now = has.get(str(container.get("name")), {})
    if stuck and now:
        return dict(now)
    _raise(found, now)
    return found


def _infeasible(status: Mapping[str, Any]) -> bool:
    """Return whether the node of a pod can never perform its requested resize."""
    return status.get("resize") == "Infeasible" or any(
        each.get("type") == "PodResizePending" and each.get("reason") == "Infeasible"
        for each in status.get("conditions") or ()
    )


def _resized(statuses: list[Mapping[str, Any]], kind: str) -> dict[str, Amounts]:
    """Return the present amounts of containers, by name."""
    found: dict[str, Amounts] = {}
    for status in statuses:
        now = found.setdefault(str(status.get("name")), {})
        if kind == "requests":
            _raise(now, _amounts(status.get("allocatedResources")))
        _raise(now, _amounts((status.get("resources") or {}).get(kind)))
    return found


def _add(total: Amounts, more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise(total: Amounts, least: Mapping[str, int]) -> None:
    for name, amount in least.items():
        total[name] = max(total.get(name, 0), amount)


def host_ports(pod: Mapping[str, Any]) -> set[tuple[str, int, str]]:
    """Protocol, port and address of every port of the node that a pod takes; ``0.0.0.0`` is every address."""
    spec, found = pod["spec"], set()
    sidecars = [each for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always"]
    for container in [*spec["containers"], *sidecars]:
        for port in container.get("ports") or ():
            number = port.get("hostPort") or (port.get("containerPort") if spec.get("hostNetwork") else 0)
            if number:
                address = port.get("hostIP") or "0.0.0.0"
                found.add((port.get("protocol") or "TCP", int(number), address))
    return found
