"""Pods as an API server stores them, and their requests in the scheduler's units."""

import copy
import math
import re
from decimal import Decimal
from typing import Any

Json = dict[str, Any]
HARD = "requiredDuringSchedulingIgnoredDuringExecution"
UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
UNITS |= {f"{letter}i": 1024**power for power, letter in enumerate("KMGTPE", 1)}
UNITS |= {"m": Decimal("1e-3"), "u": Decimal("1e-6"), "n": Decimal("1e-9")}


def amount(text: Any) -> int:
    """Return a quantity in thousandths, rounded up, as the API server stores it."""
    number, unit = re.fullmatch(r"([-+.\d]+(?:[eE]-?\d+)?)([A-Za-z]*)", str(text)).groups()  # type: ignore[union-attr]
    return math.ceil(Decimal(number) * UNITS[unit] * 1000)


def amounts(texts: Json | None) -> Json:
    return {name: amount(text) for name, text in (texts or {}).items()}


def counted(thousandths: Json) -> Json:
    """Return a quantity in the scheduler's units: thousandths of a core, else integers, rounded up."""
    return {name: much if name == "cpu" else math.ceil(Decimal(much) / 1000) for name, much in thousandths.items()}


def requested(pod: Json) -> Json:
    """KEP-753 and KEP-2837: containers and sidecars, or an init container with the sidecars started before it."""
    spec, state = pod["spec"], pod.get("status", {})
    reasons = [each.get("reason") for each in state.get("conditions", []) if each["type"] == "PodResizePending"]

    def of(container: Json) -> Json:
        resources = container.get("resources", {})
        asked = {**amounts(resources.get("limits")), **amounts(resources.get("requests"))}
        for status in state.get("containerStatuses", []):
            if status["name"] == container["name"] and "resources" in status:
                asked = {} if reasons == ["Infeasible"] else asked
                for name, has in amounts(status.get("resources", {}).get("requests")).items():
                    asked[name] = max(has, asked.get(name, 0))
        return asked

    inits = spec.get("initContainers", [])
    names = {name for container in [*spec["containers"], *inits] for name in of(container)}
    total = {}
    for name in names:
        main = sum(of(container).get(name, 0) for container in spec["containers"])
        sidecars, peak = 0, 0
        for container in inits:
            if container.get("restartPolicy") == "Always":
                sidecars += of(container).get(name, 0)
                peak = max(peak, sidecars)
            else:
                peak = max(peak, sidecars + of(container).get(name, 0))
        total[name] = max(main + sidecars, peak)
    own = spec.get("resources", {})
    total = {**amounts(own.get("limits")), **total, **amounts(own.get("requests"))}
    for name, more in amounts(spec.get("overhead")).items():
        total[name] = total.get(name, 0) + more
    return {**counted(total), "pods": 1}


def stored(pod: Json, minor: int) -> Json:
    """Return a pod as an API server of 1.``minor`` stores it, without fields of features that are off by default there.

    SidecarContainers are on since 1.29, MatchLabelKeysInPodAffinity since 1.31, InPlacePodVerticalScaling since 1.33,
    PodLevelResources since 1.34.
    """
    pod = copy.deepcopy(pod)
    if minor < 29:
        for container in pod["spec"].get("initContainers", []):
            container.pop("restartPolicy", None)
    if minor < 31:
        for kind in ("podAffinity", "podAntiAffinity"):
            for term in pod["spec"].get("affinity", {}).get(kind, {}).get(HARD, []):
                term.pop("matchLabelKeys", None)
                term.pop("mismatchLabelKeys", None)
    if minor < 33:
        pod.get("status", {}).pop("containerStatuses", None)
    if minor < 34:
        pod["spec"].pop("resources", None)
    return pod
