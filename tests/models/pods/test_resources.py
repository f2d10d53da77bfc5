"""Further resources of nodes and domains: cases by hand, and enumeration of all placements."""

from typing import Any

import pytest
from pydantic import ValidationError

from flowlex.instances.group_rules import PodResource
from flowlex.instances.pods import Pod, PodInstance, PodNode
from flowlex.models.pods.model import PodPlacement
from tests.models.pods.oracles import failing


def cluster(has: tuple[int, ...], asked: tuple[int, ...], **more: Any) -> PodInstance:
    nodes = [
        PodNode(name=f"n{k}", cpu_cores=8, memory_gb=8, resources={"fpga": amount} if amount else {}, labels={"z": "x"})
        for k, amount in enumerate(has)
    ]
    pods = [
        Pod(name=f"p{k}", cpu_cores=1, memory_gb=1, resources={"fpga": amount} if amount else {})
        for k, amount in enumerate(asked)
    ]
    fields: dict[str, Any] = {"nodes": nodes, "pods": pods, "resources": [PodResource(name="fpga")], **more}
    return PodInstance(**fields)


def test_a_node_gives_what_it_has() -> None:
    solution = PodPlacement(cluster((2, 0, 1), (2, 1, 1, 0))).solve("highs")
    placed = solution.to_dict()["answer"]["placement"]
    assert len(placed) == 3 and solution.certificate is not None and solution.certificate.ok
    assert {placed[name] for name in ("p1", "p2") if name in placed} <= {"n0", "n2"}
    assert any(reason == "resource 'fpga' has no room left" for reason in solution.reasons().values())


def test_a_domain_gives_what_it_has() -> None:
    instance = cluster((0, 0, 0), (1, 1, 1), resources=[PodResource(name="fpga", over="z", amount=2)])
    assert len(PodPlacement(instance).solve("highs").to_dict()["answer"]["placement"]) == 2


def test_a_certificate_refuses_more_than_there_is() -> None:
    instance = cluster((1, 1), (1, 1))
    failed = failing(instance, lambda d: d.update(placement={"p0": "n0", "p1": "n0"}))
    assert "resource[fpga,n0] is off" in failed


def test_names_have_to_be_listed() -> None:
    with pytest.raises(ValidationError, match="pod 'p0' is of resource 'fpga', which does not exist"):
        cluster((0,), (1,), resources=[])
    with pytest.raises(ValidationError, match="node 'n0' has 'fpga', which is no resource of nodes"):
        cluster((1,), (0,), resources=[])


def test_a_rule_and_a_domain_that_has_less() -> None:
    """Two in the domain of three nodes, of which the rule closes two: both run on the third."""
    instance = cluster((0, 0, 0), (1, 1, 1), resources=[PodResource(name="fpga", over="z", amount=2)])
    model = PodPlacement(instance, balance="max_load")
    changed = model.with_constraint("third", model.variables["x"].sel(node=["n0", "n1"]).sum() <= 0)
    solution = changed.solve()
    assert solution.stages["admission 0"] == 2 and set(solution.node.tolist()) == {2, -1}
    assert solution.certificate is not None and solution.certificate.claim == "optimal"
    assert changed.without("resource").solve().stages["admission 0"] == 3
