"""Hypothesis strategies of small valid instances; Hypothesis is imported when one is made.

PYTEST_DONT_REWRITE: messages are these, not those of pytest.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from flowlex.instances.files import instance_from_document
from flowlex.instances.generators import generate
from flowlex.instances.generators.registry import find
from flowlex.instances.instance_base import Instance, InstanceError

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

#: Kind: generator, and what is drawn of its parameters: a range of integers, or choices.
_SMALL: dict[str, tuple[str, dict[str, tuple[int, int] | list[Any]]]] = {
    "allocation": (
        "gavel-like",
        {"jobs": (1, 5), "gpus": (1, 3), "models": (1, 3), "entities": (0, 2), "sharing": [False, True]},
    ),
    "cluster-workload": (
        "cluster-random",
        {"nodes": (1, 3), "jobs": (1, 3), "most_tasks": (1, 4), "outages": [0.0, 0.5], "resource": ["gpu", "slot"]},
    ),
    "flow-scheduling": (
        "flow-random",
        {"machines": (0, 4), "jobs": (0, 3), "most_tasks": (1, 3), "most_slots": (0, 2), "racks": (1, 2)},
    ),
    "gpu-assignment": (
        "gpu-random",
        {
            "nodes": (1, 3),
            "racks": (1, 2),
            "gpus_per_node": (1, 2),
            "jobs": (1, 3),
            "tasks": (1, 6),
            "shards": (0, 2),
            "replicas": (1, 2),
            "running": [0.0, 0.4, 1.0],
        },
    ),
    "jit-bandwidth": (
        "jit-random",
        {
            "machines": (2, 3),
            "jobs": (1, 2),
            "transfers": (1, 2),
            "slots": (2, 4),
            "capacity": (1, 3),
            "largest": (1, 3),
            "deadlines": [True, False],
        },
    ),
    "load-partition": (
        "inference-cluster",
        {"workers": (1, 4), "items": (0, 12), "replicas": (1, 2), "block_items": (1, 3), "skew": [0.0, 0.5, 1.0]},
    ),
    "min-cost-flow": (
        "network-random",
        {"nodes": (2, 5), "arcs": (1, 10), "max_cost": (1, 9), "max_capacity": (1, 5), "lower": [0.0, 0.2]},
    ),
    "pod-placement": ("pods-scale", {"nodes": (1, 3), "pods": (0, 6), "running": [0.0, 0.5], "classes": (1, 2)}),
}


def instances(kind: str, **sizes: Any) -> SearchStrategy[Any]:
    """Small valid instances of a kind, for Hypothesis.

    Parameters
    ----------
    kind
        Kind of instance, such as ``"gpu-assignment"``.
    sizes
        Parameters of the kind's random generator: an integer is the largest size drawn, a pair of integers a range, a
        Hypothesis strategy draws by itself, anything else is the value. Parameters left out are small.

    Raises
    ------
    ValueError
        There is no such kind, or its generator has no such parameter; the nearest is named.
    ImportError
        Hypothesis is not installed.

    Examples
    --------
    >>> from hypothesis import given, settings
    >>> from flowlex import model_for
    >>> from flowlex.testing import assert_totally_unimodular, instances
    >>> @settings(max_examples=5, database=None)
    ... @given(instances("min-cost-flow", nodes=4))
    ... def test_networks_are_totally_unimodular(instance):
    ...     assert instance.summary()["nodes"] <= 4
    ...     assert_totally_unimodular(model_for(instance))
    >>> test_networks_are_totally_unimodular()
    """
    from hypothesis import reject, strategies

    if kind == "scenario":
        return strategies.builds(_scenario, instances("cluster-workload", **sizes), strategies.integers(1, 3))
    if kind == "problem":
        for key in sizes:
            if key not in ("most", "bounded"):
                raise ValueError(f"{kind}: no parameter {key!r}; {_near(key, ['most', 'bounded'])}")
        most, bounded = _drawn(sizes.get("most"), (1, 4)), _drawn(sizes.get("bounded"), [False, True])
        return strategies.builds(_problem, strategies.integers(0, 2**32 - 1), most, bounded)
    if kind not in _SMALL:
        raise ValueError(f"no strategy for kind {kind!r}; {_near(kind, [*_SMALL, 'problem', 'scenario'])}")
    name, small = _SMALL[kind]
    spec = find(name)
    assert spec is not None
    for key in sizes:
        if key not in spec.parameters:
            raise ValueError(f"{kind}: no parameter {key!r}; {_near(key, list(spec.parameters))}")
    drawn = {key: _drawn(sizes.get(key), small.get(key, (1, 1))) for key in {**small, **sizes}}

    def made(seed: int, values: dict[str, Any]) -> Instance:
        try:
            return generate(name, seed=seed, **values)
        except InstanceError:
            return reject()  # such as more jobs than tasks

    return strategies.builds(made, strategies.integers(0, 2**32 - 1), strategies.fixed_dictionaries(drawn))


def _drawn(asked: Any, usual: tuple[int, int] | list[Any]) -> SearchStrategy[Any]:
    """The strategy for a parameter: as requested, else the default."""
    from hypothesis import strategies

    if asked is None:
        return strategies.integers(*usual) if isinstance(usual, tuple) else strategies.sampled_from(usual)
    if isinstance(asked, strategies.SearchStrategy):
        return asked
    if isinstance(asked, tuple):
        return strategies.integers(*asked)
    if isinstance(asked, int) and not isinstance(asked, bool):
        least = usual[0] if isinstance(usual, tuple) else 0
        return strategies.integers(min(least, asked), asked)
    return strategies.just(asked)


def _problem(seed: int, most: int, bounded: bool) -> Instance:
    """A problem of one's own, as an instance."""
    import numpy as np

    from flowlex.formulations.language.problem_document import to_document
    from flowlex.testing.random_problems import random_problem

    return instance_from_document(to_document(random_problem(np.random.default_rng(seed), most=most, bounded=bounded)))


def _scenario(workload: Instance, seeds: int) -> Instance:
    """A scenario that simulates a workload's kind of cluster, by generator."""
    parameters = {"nodes": len(workload.nodes), "jobs": len(workload.jobs)}  # type: ignore[attr-defined]
    document = {
        "kind": "scenario",
        "version": 1,
        "name": "random",
        "simulator": "cluster",
        "workload": {"generator": "cluster-random", "parameters": parameters},
        "policies": ["FSP", "GS"][: 1 + seeds % 2],
        "seeds": list(range(seeds)),
    }
    return instance_from_document(document)


def _near(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, 1, 0.5)
    return f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(known)}"
