"""Seeded faults in model code: every wrong answer is refused, for flow, GPU, load and plain networks.

``pytest -s -m slow`` prints the table that ``validation/README.md`` keeps.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from flowlex.formulations.solver_outcome import Infeasibility
from flowlex.instances import generate
from flowlex.instances.min_cost_flow import NetworkInstance
from flowlex.models import model_for
from flowlex.models.flow.arc_costs import StageWeights
from flowlex.validation.certificates import verify
from tests.validation.certificates.clusters import GOALS, queued, random_cluster
from tests.validation.faults.seeding import NETWORKS, THOROUGH, Change, array, field, refuse_all

_FLOW, _GPU, _LOAD = "flowlex.models.flow", "flowlex.models.gpu", "flowlex.models.load"


def up(values: Any) -> None:
    values.flat[0] += 1


def down(values: Any) -> None:
    values.flat[-1] -= 1


def first_last(values: Any) -> None:
    values[[0, -1]] = values[[-1, 0]]


UP, DOWN, SWAP = array(up), array(down), array(first_last)
ZERO = array(lambda values: values.fill(0))
REVERSED = array(lambda values: values.__setitem__(slice(None), values[::-1].copy()))


def fewer(found: Any, *_: Any) -> Any:
    """Return all entries but the first."""
    return dict(list(found.items())[1:]) if isinstance(found, dict) else found[1:]


def _second(found: dict[Any, Any], *_: Any) -> dict[Any, Any]:
    return {key: cost for k, (key, cost) in enumerate(found.items()) if k % 2 == 0}


def _costs(change: Any) -> Change:
    return lambda found, *_: {key: change(cost) for key, cost in found.items()}


FLOW: dict[str, dict[str, Change]] = {
    f"{_FLOW}.network:job_bounds": {
        "one more for the first job": array(lambda b: b[0].__iadd__(1)),
        "one less for the last job": array(lambda b: b[-1].__isub__(1)),
        "first and last job swapped": SWAP,
        "most one more": array(lambda b: b[:, 1].__iadd__(1)),
        "no guarantee": array(lambda b: b[:, 0].fill(0)),
    },
    f"{_FLOW}.network:single_files": {"none": lambda *_: []},
    f"{_FLOW}.network:_assemble": {
        name: field("network", change) for name, change in NETWORKS.items() if "cost" not in name
    },
    f"{_FLOW}.network:ScheduleNetwork.combined": {
        "the first costs less": UP,
        "the last costs less": DOWN,
        "no costs": ZERO,
        "reversed": REVERSED,
    },
    f"{_FLOW}.arc_costs:Rules.offers": {
        "the first arc lost": fewer,
        "every second arc lost": _second,
        "one dearer": _costs(lambda cost: cost + 1),
        "negated": _costs(lambda cost: -cost),
        "free": _costs(lambda cost: 0),
    },
    f"{_FLOW}.arc_costs:Rules.staying": {"no credit": lambda found, rules, task, moving, *_: moving},
    f"{_FLOW}.arc_costs:Rules._shield": {"none": lambda shielded, rules, task, found, *_: found},
    f"{_FLOW}.arc_costs:Rules.waiting": {"one dearer": lambda cost, *_: cost + 1, "free": lambda *_: 0},
    f"{_FLOW}.arc_costs:Rules.slot_costs": {
        "one slot more": lambda arcs, *_: [(k + 1, cost) for k, cost in arcs],
        "one slot lost": fewer,
        "free": lambda arcs, *_: [(k, 0) for k, _ in arcs],
    },
    f"{_FLOW}.arc_costs:Rules.level": {"all the same": lambda *_: 1, "one higher": lambda level, *_: level + 1},
    f"{_FLOW}.arc_costs:StageWeights.for_bound": {
        "all one": lambda *_: StageWeights(1, 1),
        "no shortfall": lambda weights, *_: replace(weights, shortfall=1),
    },
    f"{_FLOW}.network:cycle_bound": {"nothing": lambda *_: 0},
    f"{_FLOW}.goals:Placement.required": {"nothing": lambda *_: ()},
    f"{_FLOW}.goals:Placement.choices": {"nothing": lambda *_: ()},
    f"{_FLOW}.goals:Placement.price": {"free": lambda *_: 0, "negated": lambda cost, *_: -cost},
    f"{_FLOW}.goals:DataLocality.per_mb": {
        "far one dearer": lambda units, *_: (units[0] + 1, *units[1:]),
        "rack as far": lambda units, *_: (units[0], 0, units[2]),
        "machine as the rack": lambda units, *_: (units[0], units[1], 0),
    },
    f"{_FLOW}.goals:DataLocality.arcs": {
        "one dearer": _costs(lambda cost: cost + 1),
        "free": _costs(lambda cost: 0),
        "every second": _second,
    },
    f"{_FLOW}.goals:DataLocality.prices": {
        "one dearer": lambda costs, *_: costs and [cost + 1 for cost in costs],
        "free": lambda costs, *_: costs and [0] * len(costs),
    },
    f"{_FLOW}.goals:DataLocality._best": {"none": lambda *_: []},
    f"{_FLOW}.goals:Continuity.age": {"one older": lambda age, *_: age + 1},
    f"{_FLOW}.goals:Continuity._credit": {"one more": lambda credit, *_: credit + 1, "none": lambda *_: 0},
    f"{_FLOW}.goals:LoadSpread.slot_costs": {"flat": lambda costs, *_: [0] * len(costs)},
    f"{_FLOW}.goals:Priority.waiting": {"one dearer": lambda cost, *_: cost + 1},
    f"{_FLOW}.queue_shares:whole_shares": {"a unit to the last": array(lambda s: (up(s), down(s)))},
    f"{_FLOW}.queue_shares:_can_be_placed": {"always": lambda *_: True},
    f"{_FLOW}.queue_shares:_by_network": {
        "a unit to the last": array(lambda s: (up(s), down(s))),
        "one less": array(down),
    },
    f"{_FLOW}.queue_shares:guaranteed": {"nothing": lambda least, *_: least * 0},
    f"{_FLOW}.goal_interface:Scale.units": {"one more": lambda units, *_: units + 1},
    f"{_FLOW}.goal_interface:ClusterView.members": {"the first lost": lambda names, *_: iter(list(names)[1:])},
    f"{_FLOW}.network:placements": {
        "one withdrawn": array(lambda at: at.__setitem__(int(at.argmax()), -1)),
        "the other way round": REVERSED,
    },
    f"{_FLOW}.network_method:score_of": {
        "a cost less": lambda score, *_: replace(score, cost=score.cost - 1),
        "no shortfall": lambda score, *_: replace(score, shortfall=-1),
    },
    f"{_FLOW}.network_method:prices_of": {
        "machines free": lambda prices, *_: replace(prices, machine=[0] * len(prices.machine)),
        "waiting dearer": lambda prices, *_: replace(prices, job=[p + 10**9 for p in prices.job]),
        "weights of one": lambda prices, *_: replace(prices, weights=dict.fromkeys(prices.weights, 1)),
    },
    "flowlex.formulations.lexicographic.lexicographic_network:optimal_face": {
        "everything": lambda face, network, *_: network
    },
}


def _units(change: Any) -> Change:
    """Return a change of the costs of shards by level."""
    return lambda cost, *_: change(*cost)


GPU: dict[str, dict[str, Change]] = {
    f"{_GPU}.round_eligibility:plan_round": {
        "a free GPU lost": field("free_gpu", fewer),
        "a waiting task lost": field("startable", fewer),
        "a running task lost": field("optional", fewer),
        "one fewer in all": field("total", lambda total, *_: total - 1),
        "one more in all": field("total", lambda total, *_: total + 1),
        "no shares": field("shares", lambda *_: None),
    },
    f"{_GPU}.round_eligibility:_shares": {
        "the first job gets more": field("most", UP),
        "the last job gets less": field("least", DOWN),
        "first and last job swapped": lambda s, *_: replace(
            s, least=SWAP(s.least), most=SWAP(s.most), group=SWAP(s.group)
        ),
        "one unit fewer": field("group_total", DOWN),
        "one unit more": field("group_total", UP),
    },
    "flowlex.formulations.fair_shares:shares_of_claims": {"floors forgotten": field("least", ZERO)},
    f"{_GPU}.transfer_costs:TransferCosts.cost": {
        "node and rack swapped": _units(lambda a, b, c: (b, a, c)),
        "racks as far": _units(lambda a, b, c: (a, c, c)),
        "all near": _units(lambda a, b, c: (a, a, a)),
        "the first shard free": _units(lambda a, b, c: (a * (np.arange(len(a)) > 0), b, c)),
        "another rack one dearer": _units(lambda a, b, c: (a, b, c + 1)),
        "doubled": _units(lambda a, b, c: (2 * a, 2 * b, 2 * c)),
    },
    f"{_GPU}.transfer_costs:TransferCosts.remote": {"free": ZERO, "one dearer": UP, "reversed": REVERSED},
    f"{_GPU}.transfer_costs:TransferCosts.in_rack": {
        "none": lambda found, *_: tuple(part[:0] for part in found),
        "the first free": lambda found, *_: (*found[:2], found[2] * (np.arange(len(found[2])) > 0)),
    },
    f"{_GPU}.transfer_costs:TransferCosts.on_node": {
        "none": lambda found, *_: tuple(part[:0] for part in found),
        "every second lost": lambda found, *_: tuple(part[::2] for part in found),
    },
    f"{_GPU}.compact_network:build_compact": {
        "every third arc lost": field("shape", NETWORKS["every third arc lost"]),
        "every second arc lost": field("shape", NETWORKS["every second arc lost"]),
        "capacities one more": field("shape", NETWORKS["capacities one more"]),
        "no costs": field("cost", ZERO),
        "costs reversed": field("cost", REVERSED),
        "the first dearer": field("cost", UP),
    },
    f"{_GPU}.compact_network:_Compact._gpus": {
        "turned round": REVERSED,
        "the first taken away": array(lambda gpus: gpus.__setitem__(0, -1)),
    },
    f"{_GPU}.preemption_search:Leaf.unruly": {"never": lambda *_: None},
    f"{_GPU}.preemption_search:_split": {
        "other way round": lambda parts, *_: parts[::-1],
        "one part": lambda parts, *_: parts[:1],
    },
    f"{_GPU}.tie_break_weights:Ties.of": {
        "nothing kept": field("keep", ZERO),
        "transfer counts once": field("factor", lambda *_: 1),
    },
    f"{_GPU}.round_eligibility:_certain": {
        "any may stop": lambda found, *_: found & False,
        "none may stop": lambda _, view, *__: view.task_running_gpu >= 0,
    },
    f"{_GPU}.round_proof:_LeafProof.cut": {
        "other GPUs": field("gpus", lambda gpus, *_: ~gpus),
        "no jobs": field("jobs", lambda jobs, *_: jobs & False),
    },
    f"{_GPU}.round_proof:_potential_prices": {"none": lambda found, *_: (0 * found[0], 0 * found[1])},
    f"{_GPU}.placement_metrics:Placement.exact_transfer_s": {"a second less": lambda seconds, *_: seconds - 1},
}

LOAD: dict[str, dict[str, Change]] = {
    f"{_LOAD}.node_speed:capacities": {
        "the first doubled": lambda found, *_: (2 * found[0], *found[1:]),
        "the last nothing": lambda found, *_: (*found[:-1], 0 * found[0]),
        "first and last swapped": lambda found, *_: (found[-1], *found[1:-1], found[0]),
        "all equal": lambda found, *_: (found[0],) * len(found),
    },
    f"{_LOAD}.node_speed:largest_remainder": {
        "one to the last": array(lambda t: (up(t), down(t))),
        "first and last swapped": SWAP,
        "one more": UP,
        "reversed": REVERSED,
    },
    f"{_LOAD}.node_speed:least_makespan_loads": {
        "one more each": lambda found, *_: (found[0], found[1] + 1),
        "one less for the last": lambda found, *_: (found[0], DOWN(found[1])),
        "no limit": lambda found, *_: (found[0], found[1] + 10**6),
    },
    f"{_LOAD}.partition_network:build_network": {name: field("network", change) for name, change in NETWORKS.items()},
    f"{_LOAD}.partition_network:Groups.of": {
        "an item more": field("items", UP),
        "all nodes hold it": field("holds", array(lambda holds: holds[0].fill(True))),
        "holders reversed": field("holds", array(lambda h: h.__setitem__(slice(None), h[:, ::-1].copy()))),
        "first and last group swapped": field("holds", SWAP),
    },
    "flowlex.instances.load:LoadPartitionInstance.arrays": {
        "an item less lies on the last node": field("load", DOWN),
        "an item more in the first block": field("count", UP),
        "every node holds the first block": field("holds", array(lambda holds: holds[0].fill(True))),
        "costs of the way back": field("cost", array(lambda c: c.__setitem__(slice(None), c.T.copy()))),
        "every second of a move is three": field("seconds", lambda seconds, *_: tuple(3 * s for s in seconds)),
        "moves without a link for free": field("usual", lambda *_: 0),
    },
    f"{_LOAD}.partition_network:PartitionNetwork.parts": {
        "one node on": lambda parts, *_: (parts[0], np.roll(parts[1], 1), parts[2]),
        "an item more": lambda parts, *_: (*parts[:2], UP(parts[2])),
        "one part lost": lambda parts, *_: tuple(part[1:] for part in parts),
    },
    f"{_LOAD}.partition_network:moves_of": {
        "reversed": array(lambda m: m.__setitem__(slice(None), m.T.copy())),
        "none": ZERO,
    },
    f"{_LOAD}.partition_network:moved_cost": {
        "a second less": lambda cost, *_: cost - 1,
        "free": lambda cost, *_: 0 * cost,
    },
    f"{_LOAD}.model:LoadPartition._node_prices": {
        "none": lambda *_: {},
        "the first dearer": lambda p, *_: p and {name: x + (k == 0) for k, (name, x) in enumerate(p.items())},
        "negated": lambda p, *_: p and {name: -x for name, x in p.items()},
    },
}

_ENGINE = "flowlex.formulations.engines.network"


def _outcome(name: str, change: Change) -> Change:
    def changed(outcome: Any, *args: Any) -> Any:
        return outcome if getattr(outcome, name) is None else field(name, change)(outcome, *args)

    return changed


def _cut(change: Change) -> Change:
    def changed(found: Infeasibility | None, *_: Any) -> Any:
        return found if found is None or found.cut is None else replace(found, cut=change(found.cut))

    return _outcome("infeasibility", changed)


NETWORK: dict[str, dict[str, Change]] = {
    "flowlex.models.min_cost_flow:MinCostFlow._formulate": {
        **NETWORKS,
        "the first lower bound one more": field("lower", UP),
        "no lower bounds": field("lower", ZERO),
        "a unit supplied elsewhere": field("supply", array(lambda s: (up(s), down(s)))),
        "supplies negated": field("supply", array(lambda s: s.__imul__(-1))),
        "supplies doubled": field("supply", array(lambda s: s.__imul__(2))),
        "ends of the first and last arc swapped": field("head", SWAP),
        "arcs reversed": lambda net, *_: replace(net, tail=net.head, head=net.tail),
        "heads in another order": field("head", REVERSED),
    },
    "flowlex.instances.min_cost_flow:NetworkInstance.arrays": {
        "the first costs one more": field("cost", UP),
        "costs negated": field("cost", array(lambda c: c.__imul__(-1))),
        "no lower bounds": field("lower", ZERO),
        "the first capacity one more": field("upper", UP),
        "ends swapped": field("head", SWAP),
    },
    f"{_ENGINE}:_solve": {
        "a unit more on the first arc": _outcome("values", UP),
        "a unit less on the last": _outcome("values", DOWN),
        "no flow": _outcome("values", ZERO),
        "flow in another order": _outcome("values", REVERSED),
        "a potential one more": _outcome("duals", UP),
        "no potentials": _outcome("duals", ZERO),
        "potentials negated": _outcome("duals", array(lambda p: p.__imul__(-1))),
        "potentials in another order": _outcome("duals", REVERSED),
        "a reduced cost one more": _outcome("reduced_costs", UP),
        "objective one less": _outcome("objective", lambda x, *_: x - 1),
        "bound one more": _outcome("bound", lambda x, *_: x + 1),
        "the cut turned round": _cut(lambda cut: ~cut),
        "everything cut": _cut(lambda cut: np.ones_like(cut)),
        "nothing cut": _cut(lambda cut: np.zeros_like(cut)),
        "a node left out of the cut": _cut(array(lambda cut: cut.__setitem__(int(cut.argmax()), False))),
    },
}


def flow_value(solution: Any) -> Any:
    return solution.status, solution.score


def gpu_value(solution: Any) -> Any:
    counts = sorted(solution.placement.running_by_job.tolist())
    fair = sum(counts) if solution.options["policy"] == "FSU" else counts
    return solution.status, fair, solution.objective, len(solution.preempted)


def load_value(solution: Any) -> Any:
    return solution.status, solution.objective, sorted(solution.finish.tolist())[-1:]


def network_value(solution: Any) -> Any:
    return solution.status, solution.objective


def _without_room(seed: int) -> NetworkInstance:
    """Return an infeasible network: every capacity is one."""
    made = generate("network-random", seed=seed, nodes=8, arcs=20)
    data = made.model_dump(mode="json")
    data["upper"] = [1] * len(data["upper"])
    data["lower"] = [0] * len(data["upper"])
    return NetworkInstance.model_validate(data)


#: Rounds with too few GPUs.
_ROUNDS = [(37, "FSP"), (44, "FSP"), (51, "FSP"), (36, "FS"), (44, "FS"), (38, "FSU")]

FAMILIES: dict[str, Any] = {
    "flow": (
        FLOW,
        [(random_cluster(k), GOALS[name]) for k, name in enumerate(GOALS, 3) if name not in ("none", "random")]
        + [(queued(random_cluster(k)), GOALS["weighted shares"]) for k in (20, 21, 24)],
        flow_value,
    ),
    "gpu": (
        GPU,
        [(generate("gpu-random", seed=seed), {"policy": p}) for seed, p in _ROUNDS]
        + [(generate("gpu-random", seed=seed, running=0.7), {"policy": "FSP"}) for seed in (24, 65, 150)],
        gpu_value,
    ),
    "load": (
        LOAD,
        [
            (generate("inference-cluster", seed=seed, processors="mixed"), options)
            for seed, options in (
                (1, {"capacity": "history", "level": "item"}),
                (2, {"capacity": "configuration"}),
                (2, {"capacity": "cpu_load", "objective": "makespan"}),
            )
        ],
        load_value,
    ),
    "network": (
        NETWORK,
        [(generate("network-random", seed=seed, nodes=8, arcs=24), {}) for seed in range(6)]
        + [(_without_room(seed), {}) for seed in range(3)],
        network_value,
    ),
}


@pytest.mark.parametrize("thorough", THOROUGH)
@pytest.mark.parametrize("family", FAMILIES)
def test_no_fault_in_model_code_gets_a_wrong_answer_through(family: str, thorough: bool) -> None:
    refuse_all(family, FAMILIES[family], thorough=thorough)


@pytest.mark.parametrize("family", ["flow", "gpu", "load"])
@pytest.mark.parametrize("status", ["infeasible", "unbounded"])
def test_nobody_may_say_that_there_is_no_answer(family: str, status: str) -> None:
    instance, options = FAMILIES[family][1][0]
    document = model_for(instance, **options).solve("network").to_dict()
    empty = {"status": status, "objective": None, "bound": None, "gap": None, "answer": {}, "proof": {}, "metrics": {}}
    certificate = verify({**document, **empty, "stages": {}, "duals": {}, "certificate": None}, instance)
    assert [check.name for check in certificate.checks if not check.ok] == ["there is no answer"]
