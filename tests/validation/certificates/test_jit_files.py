"""Edge cases of just-in-time files: no schedule, nothing to plan, duals, and no time for proofs."""

import json
from typing import Any

import pytest

from flowlex.instances import generate
from flowlex.instances.jit import Computation, JitInstance, Job, Machine, Transfer
from flowlex.models.jit.model import JitBandwidth
from flowlex.validation.certificates import verify
from flowlex.validation.certificates.proof_time_budget import Budget

Document = dict[str, Any]


def hand(*sizes: float, due: float = 2.0) -> JitInstance:
    """Transfers from a to b, ready at once and due at the same time; one unit a slot."""
    done = (Computation(name="done", seconds=0.0),)
    transfers = tuple(
        Transfer(name=f"t{k}", size_mb=mb, sender="a", receiver="b", feeds="done", deadline_s=due)
        for k, mb in enumerate(sizes)
    )
    machines = tuple(Machine(name=name, out_mbps=8, in_mbps=8) for name in "ab")
    jobs = (Job(name="j", computations=done, transfers=transfers),) if sizes else ()
    return JitInstance(name="hand", machines=machines, jobs=jobs, slot_s=1.0, unit_mb=1.0)


def document_of(instance: JitInstance, **options: Any) -> Document:
    document: Document = json.loads(json.dumps(JitBandwidth(instance, share=1.0, **options).solve().to_dict()))
    return document


def test_that_there_is_no_schedule_is_proven_by_an_overloaded_port() -> None:
    instance = hand(2.0, 1.0)
    document = document_of(instance, windows="strict")
    assert document["status"] == "infeasible"
    found = verify(document, instance)
    assert found.ok and (found.claim, found.verdict) == ("infeasible", "proven")
    fitting = hand(1.0, 1.0)
    claimed = document | {"fingerprint": fitting.fingerprint}
    assert not verify(claimed, fitting).ok  # what fits overloads no port
    assert verify(claimed | {"proof": {}}, fitting).verdict == "quoted"


@pytest.mark.parametrize("change", [{"windows": "elastic"}, {"windows": None}])
def test_elastic_windows_always_have_a_schedule(change: Document) -> None:
    instance = hand(2.0, 1.0)
    document = document_of(instance, windows="strict")
    document["options"] |= change
    assert not verify(document, instance).ok


@pytest.mark.parametrize("load", ["pair", "port"])
def test_an_empty_plan_is_optimal(load: Any) -> None:
    instance = hand()
    document = document_of(instance, load=load)
    found = verify(document, instance)
    assert found.ok and (found.claim, document["objective"]) == ("optimal", 0)
    for change in ({"objective": 1}, {"stages": {"level_1": 1}}, {"status": "infeasible"}):
        assert not verify(document | change, instance).ok
    assert not verify(document | {"answer": document["answer"] | {"schedule": {"j/t": [[0, 1, 1]]}}}, instance).ok


@pytest.mark.parametrize("options", [{}, {"load": "port"}, {"windows": "strict", "presolve": False}])
def test_without_time_levels_are_quoted_and_never_proven(options: Document) -> None:
    instance = generate("jit-random", seed=22, machines=3, jobs=3, transfers=3, slots=5, capacity=3)
    document = document_of(instance, **options)  # type: ignore[arg-type]
    assert verify(document, instance).verdict == "proven"
    late = verify(document, instance, Budget(0.0))
    assert late.ok and late.verdict == "quoted"
    first = next(runs for runs in document["answer"]["schedule"].values() if runs)[0]
    first[2] += 1
    assert not verify(document, instance, Budget(0.0)).ok  # statements that need no proof are still checked
