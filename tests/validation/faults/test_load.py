"""Seeded faults in the code of load partition: the certificate refuses every wrong answer."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import flowlex.models.load
from flowlex.instances import generate
from flowlex.instances.load import Block, Link, LoadNode, LoadPartitionInstance
from flowlex.models.load.model import LoadPartition
from flowlex.validation.certificates import CertificateError

FOLDER = Path(flowlex.models.load.__file__).parent
#: Faults by name: module, correct code, and faulty code.
FAULTS: dict[str, tuple[str, str, str]] = {
    "quotas of one item less": ("node_speed", "quotas = [c * total / whole", "quotas = [c * (total - 1) / whole"),
    "quotas without the last capacity": (
        "node_speed",
        "    whole = sum(exact)\n    quotas",
        "    whole = sum(exact[:-1])\n    quotas",
    ),
    "rest to the smallest remainders": ("node_speed", "(floors[i] - quotas[i], i)", "(quotas[i] - floors[i], i)"),
    "rest to the first nodes": ("node_speed", "key=lambda i: (floors[i] - quotas[i], i)", "key=lambda i: i"),
    "ties to the later node": ("node_speed", "(floors[i] - quotas[i], i)", "(floors[i] - quotas[i], -i)"),
    "a quota rounded up": (
        "node_speed",
        "floors = [q.numerator // q.denominator",
        "floors = [-(-q.numerator // q.denominator)",
    ),
    "capacities as binary floats": (
        "node_speed",
        "return tuple(rationals(values))",
        "return tuple(Fraction(round(float(v), 0)) for v in values)",
    ),
    "history as its last run": ("node_speed", "for r in node.history)", "for r in node.history[-1:])"),
    "processors beyond full": (
        "node_speed",
        "return min(Fraction(1), rational(node.cpu_free)",
        "return max(Fraction(1), rational(node.cpu_free)",
    ),
    "makespan without the items left over": ("node_speed", "range(total - sum(loads))", "range(0)"),
    "makespan of one item more": ("node_speed", "range(total - sum(loads))", "range(total - sum(loads) + 1)"),
    "the most rounded up": (
        "node_speed",
        "most = [(c * finish).numerator // (c * finish).denominator",
        "most = [-(-(c * finish).numerator // (c * finish).denominator) + 1",
    ),
    "the last item to any node": (
        "node_speed",
        "_, i = heapq.heappop(queue)",
        "_, i = heapq.heappop(queue) if len(queue) < 2 else queue.pop()",
    ),
    "a replica forgotten": (
        "partition_network",
        "holds = view.holds[first]",
        "holds = view.holds[first] & ~(view.holds[first].cumsum(axis=1) > 1)",
    ),
    "a replica made up": (
        "partition_network",
        "holds = view.holds[first]",
        "holds = view.holds[first] | (np.arange(view.holds.shape[1]) == 0)",
    ),
    "groups mixed up": (
        "partition_network",
        "return cls(group.reshape(-1), first, holds, items)",
        "return cls(group.reshape(-1)[::-1], first, holds, items)",
    ),
    "items counted by block": (
        "partition_network",
        "np.add.at(items, group.reshape(-1), view.count)",
        "np.add.at(items, group.reshape(-1), 1)",
    ),
    "usual undercuts expensive links": (
        "partition_network",
        "expensive: Booleans = np.any(view.cost > view.usual, axis=1)",
        "expensive = np.zeros(size, bool)",
    ),
    "cheap links missing": (
        "partition_network",
        "(expensive[:, None] | (view.cost < view.usual))",
        "expensive[:, None]",
    ),
    "one link missing": (
        "partition_network",
        "source, target = np.nonzero(linked)",
        "source, target = (x[1:] for x in np.nonzero(linked))",
    ),
    "links turned round": (
        "partition_network",
        "units.whole[view.cost[source, target]]",
        "units.whole[view.cost[target, source]]",
    ),
    "usual for free": ("partition_network", "cost=units.whole[view.usual]", "cost=0"),
    "usual at the cheapest price": (
        "partition_network",
        "cost=units.whole[view.usual]",
        "cost=units.whole[min(1, view.usual)]",
    ),
    "links at one price": ("partition_network", "cost = units.whole[view.cost[source, target]]", "cost = 1"),
    "moves without a link missing": (
        "partition_network",
        "np.flatnonzero(sends & ~expensive), np.flatnonzero(receives)",
        "np.flatnonzero(sends & ~expensive), np.flatnonzero(receives)[:-2]",
    ),
    "costs in a coarse unit": ("partition_network", "limit=limit)", "limit=3)"),
    "everybody sends": ("partition_network", "return above, ~above", "return above | True, ~above | True"),
    "targets of the neighbour": ("partition_network", "else -targets, labels", "else -np.roll(targets, 1), labels"),
    "one more within the makespan": ("partition_network", "upper=most,", "upper=most + 1,"),
    "dearest holder": ("partition_network", "view.cost[holders, n].argmin()", "view.cost[holders, n].argmax()"),
    "moves of one block lost": (
        "partition_network",
        "block[away], node[away], items[away]",
        "block[away][1:], node[away][1:], items[away][1:]",
    ),
    "a part counted twice": (
        "partition_network",
        "return pairs[:, 0], pairs[:, 1], total",
        "return pairs[:, 0], pairs[:, 1], total * np.where(np.arange(len(total)), 1, 2)",
    ),
    "parts on the wrong node": (
        "partition_network",
        "return pairs[:, 0], pairs[:, 1], total",
        "return pairs[:, 0], pairs[::-1, 1], total",
    ),
    "cost of the way back": ("partition_network", "view.cost[pairs].tolist()", "view.cost.T[pairs].tolist()"),
    "bound of twice the cost": ("model", '"exact_bound_s": bound', '"exact_bound_s": 2 * bound'),
    "prices of the neighbour": ("model", 'found = prices["node"]', 'found = np.roll(prices["node"], 1)'),
    "prices turned round": ("model", 'found = prices["node"]', 'found = [-price for price in prices["node"]]'),
    "replicas always": ("model", 'replicas=self.level == "item"', "replicas=True"),
    "replicas never": ("model", 'replicas=self.level == "item"', "replicas=False"),
}


def hand_made(*, dearest: float = 9.0) -> LoadPartitionInstance:
    """Three nodes with decimal figures, replicas, and asymmetric links with costs around the default."""
    figures = ((2.3, 0.31), (4.4, 0.44), (1.6, 0.2))
    nodes = tuple(
        LoadNode.model_validate(
            {
                "name": f"n{i}",
                "configuration": power,
                "cpu_free": free,
                "cpu_required": 0.3,
                "history": [{"items": 10 * (i + 1), "seconds": 3.1}, {"items": 9, "seconds": 1.0 + i}],
            }
        )
        for i, (power, free) in enumerate(figures)
    )
    held = ((9, "n0"), (4, "n0 n1"), (3, "n2 n0"), (7, "n2"), (2, "n0 n1"))
    blocks = tuple(Block(name=f"b{i}", items=k, holders=tuple(h.split())) for i, (k, h) in enumerate(held))
    seconds = {("n0", "n1"): 1.25, ("n1", "n0"): 0.1, ("n2", "n1"): 0.7, ("n2", "n0"): 3.0, ("n1", "n2"): 2.5}
    links = tuple(Link(source=a, target=b, seconds_per_item=s) for (a, b), s in seconds.items() if s <= dearest)
    return LoadPartitionInstance(nodes=nodes, blocks=blocks, links=links, seconds_per_item=1.0)


INSTANCES = [
    hand_made(),
    hand_made(dearest=1.0),
    generate("inference-cluster", seed=1, workers=5, items=60, processors="mixed"),
]
OPTIONS: list[dict[str, Any]] = [
    {"capacity": capacity, "objective": objective, "level": level}
    for capacity, objective, level in (
        ("configuration", "targets", "node"), ("configuration", "targets", "item"), ("history", "targets", "item"),
        ("cpu_load", "makespan", "item"), ("history", "makespan", "node"), ("cpu_load", "targets", "node"),
    )
]  # fmt: skip


def with_fault(file: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the model class, built from the same sources with one change."""
    for name in ("node_speed", "partition_network", "solution", "model"):
        module = ModuleType(f"flowlex.models.load.{name}")
        source = (FOLDER / f"{name}.py").read_text()
        if name == file:
            assert source.count(old) == 1, f"the code no longer says {old!r}"
            source = source.replace(old, new)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        exec(compile(source, name, "exec"), module.__dict__)
    return sys.modules["flowlex.models.load.model"].LoadPartition


@pytest.fixture(scope="module")
def truth() -> list[Any]:
    return [LoadPartition(instance, **options).solve("network") for instance in INSTANCES for options in OPTIONS]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_the_model_is_refused(fault: str, truth: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    model, seen = with_fault(*FAULTS[fault], monkeypatch), Counter[str]()
    cases = [(instance, options) for instance in INSTANCES for options in OPTIONS]
    for (instance, options), true in zip(cases, truth, strict=True):
        try:
            found = model(instance, **options).solve("network")
        except CertificateError:
            seen["refused"] += 1
        except (ValueError, IndexError, AttributeError):
            seen["no answer"] += 1
        else:
            right = found.objective == true.objective and result(found, true) == result(true, true)
            seen["no answer" if found.status != "optimal" else "right" if right else "WRONG"] += 1
    assert not seen["WRONG"] and seen["refused"] + seen["no answer"], seen


def result(solution: Any, true: Any) -> Any:
    """Return what all optima have in common: the loads, or the time when the last node ends."""
    if solution.options["objective"] == "targets":
        return solution.targets
    return (solution.after[true.capacity > 0] / true.capacity[true.capacity > 0]).max()
