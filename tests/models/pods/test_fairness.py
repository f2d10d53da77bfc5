"""Max-min fairness over queues and value by fragmentation: cases by hand, and enumeration of tiny instances."""

from fractions import Fraction
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from flowlex.formulations.solver_outcome import SolveOptions
from flowlex.instances.group_rules import PodGang, PodQueue
from flowlex.instances.pods import Pod, PodInstance, PodNode
from flowlex.models.pods.model import PodPlacement
from flowlex.models.pods.problem.admission_levels import pod_values
from flowlex.validation.restated.pods.levels import QueueShares, levels_of
from tests.models.pods.oracles import BySearch
from tests.models.pods.oracles import solved as solved_by_all

NODES = (PodNode(name="a", cpu_cores=8, memory_gb=16, cards=2, card_gb=8), PodNode(name="b", cpu_cores=4, memory_gb=9))


def shares(solution: Any) -> list[Fraction]:
    """Return the shares, least first, as the certificate computes them."""
    return QueueShares(solution.source, solution.to_dict()["options"]).ordered(solution.node.tolist())


def solved(pods: Any, queues: Any, nodes: Any = NODES, **options: Any) -> Any:
    instance = PodInstance(nodes=nodes, pods=tuple(pods), queues=tuple(queues))
    solution = PodPlacement(instance, admission="fair", **options).solve("highs")
    assert solution.certificate is not None and solution.certificate.ok
    return solution


def test_queues_share_by_weight() -> None:
    node = (PodNode(name="a", cpu_cores=6, memory_gb=64),)
    pods = [Pod(name=f"{q}{k}", cpu_cores=1, queue=q) for q in "uv" for k in range(6)]
    even = solved(pods, [PodQueue(name="u"), PodQueue(name="v")], node)
    assert even.admitted == {"queue u": (3, 6, 3), "queue v": (3, 6, 3)} and even.stages["admission"] == 3.0
    third = solved(pods, [PodQueue(name="u", weight=2.0), PodQueue(name="v")], node)
    assert [many for many, _, _ in third.admitted.values()] == [4, 2]
    # Running pods count; capacity that a queue does not need goes to other queues, then to pods without a queue.
    runs = [Pod(name=f"r{k}", cpu_cores=1, queue="u", node="a") for k in range(2)]
    others = [Pod(name="w", cpu_cores=1, queue="w"), Pod(name="free", cpu_cores=1)]
    mixed = solved([*runs, *pods, *others], [PodQueue(name=q) for q in "uvw"], node)
    assert shares(mixed) == [1, 2, 3] and mixed.admitted["rest"] == (0, 1, 0)


queued = st.lists(
    st.tuples(
        st.integers(1, 5),
        st.sampled_from([0, 0, 4, 8]),
        st.sampled_from(["u", "v", "w", None]),
        st.sampled_from([1.0, 1.0, 0.5, 2.25, 0.0]),
        st.booleans(),
    ),
    max_size=6,
)


@settings(max_examples=10, deadline=None)
@given(
    queued,
    st.sampled_from(["value", "gpu", "fragmentation"]),
    st.sampled_from([1.0, 1.5, 3.0]),
    st.sampled_from(["fair", "weighted"]),
)
def test_no_placement_is_fairer_or_worth_more(pods: Any, worth: Any, weight: float, admission: str) -> None:
    made = [
        Pod(name=f"p{k}", cpu_cores=c, gpu_memory_gb=g, queue=q, value=v, gang="g" if gang and q == "u" else None)
        for k, (c, g, q, v, gang) in enumerate(pods)
    ]
    queues = (PodQueue(name="u", weight=weight), PodQueue(name="v"), PodQueue(name="w", gpus=0.5))
    instance = PodInstance(nodes=NODES, pods=tuple(made), queues=queues, gangs=(PodGang(name="g"),))
    options: dict[str, Any] = {"admission": admission, "worth": worth}
    assert str(solved_by_all(instance, **options).certificate.claim) == "optimal"


def test_a_large_cluster_goes_in_turns() -> None:
    nodes = tuple(PodNode(name=f"n{k}", cpu_cores=8, memory_gb=64) for k in range(10))
    pods = [Pod(name=f"{q}{k}", cpu_cores=1 + k % 3, queue=q) for q in "uvw" for k in range(40)]
    instance = PodInstance(nodes=nodes, pods=tuple(pods), queues=tuple(PodQueue(name=q) for q in "uvw"))
    found = BySearch(instance, admission="fair")._admit("highs", SolveOptions())
    assert max(found.admitted) - min(found.admitted) <= 1 and not found.proven and sum(found.admitted) > 50


def test_fragmentation_by_hand() -> None:
    # One node with two cards; half of the workload needs 0.6 of a card, half a complete one.
    node = PodNode(name="a", cpu_cores=8, memory_gb=8, cards=2, card_gb=10)
    pods = (Pod(name="part", gpu_share=0.6), Pod(name="whole", gpu_share=1.0))
    # "part" leaves 0.4, which neither can use: value 0.6 - 0.4; "whole" leaves nothing unusable.
    assert pod_values(PodInstance(nodes=(node,), pods=pods), "fragmentation") == [Fraction(1, 5), Fraction(1)]
    # If the workload includes 0.4 too, a third of it can use the remaining 0.4.
    more = (*pods, Pod(name="rest", gpu_share=0.4))
    assert pod_values(PodInstance(nodes=(node,), pods=more), "fragmentation")[0] == Fraction(333, 1000)
    solution = PodPlacement(PodInstance(nodes=(node,), pods=more), admission="weighted", worth="fragmentation").solve()
    assert solution.certificate.ok and solution.admitted["worth"][0] == 1.533  # 0.333 + 1 + 0.2


@settings(max_examples=10, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.sampled_from([0, 0.3, 0.5, 1]), st.integers(1, 2), st.sampled_from(["", "x"])),
        max_size=8,
    )
)
def test_fragmentation_is_that_of_the_certificate(pods: Any) -> None:
    nodes = (*NODES, PodNode(name="c", cpu_cores=4, memory_gb=9, cards=4, card_gb=12, card_model="x"))
    made = [
        Pod(
            name=f"p{k}", cpu_cores=c, gpu_share=g, gpu_cards=m if g else 1, card_models=(model,) if g and model else ()
        )
        for k, (c, g, m, model) in enumerate(pods)
    ]
    instance = PodInstance(nodes=nodes, pods=tuple(made))
    told = levels_of(instance, {"admission": "weighted", "worth": "fragmentation"})
    mine = pod_values(instance, "fragmentation")
    assert [level.worth if level.key == "worth" else 0 for level in told if level is not None] == mine
