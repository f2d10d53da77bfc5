"""Seeded faults in solution files of pod placement: each is refused, correct files are accepted."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from flowlex.instances.pods import Pod, PodInstance, PodNode
from flowlex.models.pods.model import PodPlacement
from flowlex.validation.certificates.verifier_interface import verify

NODES = (
    PodNode(name="a", cpu_cores=8, memory_gb=16, cards=2, card_gb=8),
    PodNode(name="b", cpu_cores=6, memory_gb=12, labels={"zone": "x"}),
)
PODS = (
    Pod(name="large", cpu_cores=4, memory_gb=8, gpu_memory_gb=6, priority=2),
    Pod(name="two", cpu_cores=2, memory_gb=2, gpu_memory_gb=2, gpu_cards=2, priority=2),
    Pod(name="zoned", cpu_cores=3, memory_gb=4, node_labels={"zone": "x"}, priority=1),
    Pod(name="runs", cpu_cores=1, memory_gb=1, node="a"),
    Pod(name="waits", cpu_cores=9, memory_gb=1, priority=1),
    Pod(name="spare", cpu_cores=2, memory_gb=2),
)
INSTANCE = PodInstance(name="faults", nodes=NODES, pods=PODS)


@pytest.fixture(scope="module")
def document() -> Any:
    solution = PodPlacement(INSTANCE).solve("highs")
    return json.loads(json.dumps(solution.to_dict()))


def test_the_true_file_is_proven(document: Any) -> None:
    certificate = verify(document, INSTANCE)
    assert certificate.ok and certificate.claim == "optimal"


def drop_all(d: Any) -> None:
    d["answer"]["placement"] = {"runs": "a"}
    d["answer"]["cards"] = {}
    d["answer"]["queue"] = [{"pod": pod.name, "reason": ""} for pod in PODS if pod.name != "runs"]
    for numbers in d["answer"]["admitted"].values():
        numbers["admitted"] = numbers["most"] = 0


FAULTS: dict[str, Callable[[Any], Any]] = {
    "a pod on the wrong node": lambda d: d["answer"]["placement"].update(zoned="a"),
    "a pod dropped": lambda d: d["answer"]["placement"].pop("spare"),
    "all pods dropped": drop_all,
    "a running pod dropped": lambda d: d["answer"]["placement"].pop("runs"),
    "a running pod moved": lambda d: d["answer"]["placement"].update(runs="b"),
    "a pod too large": lambda d: d["answer"]["placement"].update(waits="a"),
    "a pod that does not exist": lambda d: d["answer"]["placement"].update(ghost="a"),
    "a node that does not exist": lambda d: d["answer"]["placement"].update(spare="c"),
    "no cards": lambda d: d["answer"]["cards"].pop("large"),
    "one card of two": lambda d: d["answer"]["cards"].update(two=[0]),
    "one card twice": lambda d: d["answer"]["cards"].update(two=[0, 0]),
    "a card that does not exist": lambda d: d["answer"]["cards"].update(large=[2]),
    "a negative card": lambda d: d["answer"]["cards"].update(large=[-1]),
    "cards of a pod without GPU": lambda d: d["answer"]["cards"].update(spare=[0]),
    "a queue without who waits": lambda d: d["answer"]["queue"].clear(),
    "a queue with who runs": lambda d: d["answer"]["queue"].append({"pod": "runs", "reason": ""}),
    "admitted inflated": lambda d: d["answer"]["admitted"]["1"].update(admitted=2),
    "admitted and most inflated": lambda d: d["answer"]["admitted"]["1"].update(admitted=2, most=2),
    "admitted deflated": lambda d: d["answer"]["admitted"]["2"].update(admitted=1),
    "most below what is placed": lambda d: d["answer"]["admitted"]["2"].update(most=1),
    "most above what is wanted": lambda d: d["answer"]["admitted"]["0"].update(most=9),
    "a priority left out": lambda d: d["answer"]["admitted"].pop("2"),
    "a priority made up": lambda d: d["answer"]["admitted"].update({"7": {"admitted": 1, "wanted": 1, "most": 1}}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_refused(document: Any, fault: str) -> None:
    wrong = copy.deepcopy(document)
    FAULTS[fault](wrong)
    assert wrong != document
    assert not verify(wrong, INSTANCE).ok


def test_prices_of_nothing_prove_nothing() -> None:
    """An upper bound without a valid proof is quoted, also with zero duals."""
    nodes = tuple(PodNode(name=f"n{k}", cpu_cores=4, memory_gb=8) for k in range(6))
    pods = tuple(Pod(name=f"p{k}", cpu_cores=3, memory_gb=1) for k in range(14))
    instance = PodInstance(name="prices", nodes=nodes, pods=pods)
    document = json.loads(json.dumps(PodPlacement(instance).solve("highs").to_dict()))
    assert verify(document, instance).ok
    for leaf in document["proof"].get("admission", {}).values():
        assert leaf["blocks"] == ["node"]  # node patterns prove it
        leaf |= {"rows": {}, "blocks": []}
    document["certificate"] = None
    certificate = verify(document, instance)
    assert certificate.claim == "feasible" and any(check.how == "quoted" for check in certificate.checks)
