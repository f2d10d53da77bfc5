"""Errors for invalid decisions and scenarios state time and event."""

import pytest

from flowlex.instances import InstanceError
from flowlex.systems.simulation.cluster import Policy, Start, State, Stop, simulate_cluster
from flowlex.systems.simulation.cluster_workload import ClusterWorkload
from flowlex.systems.simulation.event_queue import SimulationError
from flowlex.systems.simulation.policy_registry import make_policy
from flowlex.systems.simulation.scenario import PolicyChoice


class Nonsense(Policy):
    """Starts tasks in order; from the third second on it returns an invalid decision."""

    again_s = 1.0

    def __init__(self, answer):
        self.answer = answer
        self.seen = []

    def decide(self, state: State):
        for task in state.waiting():
            if task not in self.seen:
                self.seen.append(task)
        if state.now_s >= 3.0:
            return list(self.answer(state, self.seen))
        places = state.open_places()
        answer = []
        for task in state.waiting():
            place = next((place for place in places if place.fits(task)), None)
            if place is not None:
                answer.append(state.start(task, place))
        return answer


def ended(seen):
    return next(task for task in seen if task.made_on is not None)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda state, seen: [Start(next(state.running()), state.places[0])], "which runs already on"),
        (lambda state, seen: [Start(ended(seen), state.places[0])], "which has ended"),
        (lambda state, seen: [Stop(ended(seen))], "which has ended"),
        (lambda state, seen: [Stop(next(state.running()))] * 2, "which this answer has stopped already"),
        (lambda state, seen: [Stop(next(state.waiting()))], "it stops task .*, which waits"),
        (lambda state, seen: [Start(next(state.waiting()), next(state.running()).place)], "too little gpu free"),
        (lambda state, seen: ["t1"], "answers 't1', which is neither Start nor Stop"),
    ],
)
def test_nonsense_is_refused_with_time_and_round(answer, says):
    with pytest.raises(SimulationError, match=rf"at 3.5 s, round \d+ of policy Nonsense: .*{says}"):
        simulate_cluster(work(), Nonsense(answer))


def work() -> ClusterWorkload:
    from flowlex.systems.simulation.cluster_workload import ClusterJob, ClusterNode, ClusterTask, Place

    places = tuple(Place(name=f"p{k}", capacity={"gpu": 1}) for k in range(2))
    tasks = tuple(ClusterTask(name=f"t{k}", demand={"gpu": 1}, compute_s=2.5) for k in range(12))
    return ClusterWorkload(nodes=(ClusterNode(name="n", places=places),), jobs=(ClusterJob(name="j", tasks=tasks),))


def test_an_answer_without_end_is_refused():
    class Wavers(Policy):
        def decide(self, state):
            task = next(state.waiting())
            while True:
                yield Start(task, state.places[0])
                yield Stop(task)

    with pytest.raises(SimulationError, match="at 0 s, round 1 of policy Wavers: it answers more than 1120 actions"):
        simulate_cluster(work(), Wavers())


@pytest.mark.parametrize("answer", [None, "t1", 3])
def test_an_answer_that_is_no_list_is_refused_with_time_and_round(answer):
    class Mute(Policy):
        def decide(self, state):
            return answer

    with pytest.raises(SimulationError, match=rf"at 0 s, round 1 of policy Mute: it answers {answer!r}; yield actions"):
        simulate_cluster(work(), Mute())


@pytest.mark.parametrize(
    ("given", "says"), [({"horizon_s": -5}, "horizon_s: must be above 0 s"), ({"seed": -1}, "seed")]
)
def test_times_and_seeds_below_zero_are_refused(given, says):
    with pytest.raises(InstanceError, match=says):
        simulate_cluster(work(), make_policy("cluster", PolicyChoice(name="FIFO")), **given)


def test_a_policy_that_starts_nothing_is_named():
    class Lazy(Policy):
        def decide(self, state):
            return []

    with pytest.raises(
        SimulationError, match=r"nothing runs and nothing will happen, yet 12 tasks wait \('t0' first\)"
    ):
        simulate_cluster(work(), Lazy())
    Lazy.again_s = 1.0
    with pytest.raises(SimulationError, match="started nothing in 10000 rounds"):
        simulate_cluster(work(), Lazy())


@pytest.mark.parametrize(
    ("name", "parameters", "says"),
    [
        ("FSX", {}, "has no policy 'FSX'; did you mean 'FS"),
        ("GSD", {"third": 1}, "no parameter 'third'; it has: first, second, again_s"),
        ("GSD", {"first": "soon"}, "first='soon'"),
        ("GSD", {"first": -1}, "greater than or equal to 0"),
    ],
)
def test_unknown_policies_and_parameters_are_named(name, parameters, says):
    with pytest.raises(InstanceError, match=says):
        make_policy("cluster", PolicyChoice(name=name, parameters=parameters))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d["jobs"][0]["tasks"][0].update(after=["t5"]), "needs 't5', no earlier task"),
        (lambda d: d["jobs"][0]["tasks"][0].update(demand={"gpu": 2}), "needs 2 gpu; no place has as much"),
        (lambda d: d["jobs"][0]["tasks"][0].update(reads=[{"size_mb": 1.0}]), "a read names the nodes"),
        (lambda d: d["jobs"][0]["tasks"][0].update(reads=[{"size_mb": 1.0, "replicas": ["x"]}]), "node 'x', which"),
        (lambda d: d["jobs"][0].update(arrival_s=-1.0), "greater than or equal to 0"),
        (lambda d: d["nodes"][0].update(outages=[{"from_s": 5.0, "until_s": 4.0}]), "outages must follow"),
        (lambda d: d["nodes"].append(d["nodes"][0]), "two nodes are named 'n'"),
    ],
)
def test_a_workload_that_cannot_be_is_refused(change, says):
    document = work().model_dump(mode="json")
    change(document)
    with pytest.raises(ValueError, match=says):
        ClusterWorkload.model_validate(document)


@pytest.mark.parametrize("times", [1, -1])
def test_places_booked_by_hand_are_refused_by_name(times):
    """A policy that changes the simulator's records starts too many tasks (-1) or leaves places unused (1)."""

    class ByHand(Policy):
        def decide(self, state):
            for task in state.waiting():
                place = next((place for place in state.open_places() if place.fits(task)), None)
                if place is not None:
                    place.hold(task, times)
                    yield Start(task, place)

    with pytest.raises(SimulationError, match=r"policy ByHand: it booked '.*' by hand: -?\d+ gpu are noted as free"):
        simulate_cluster(work(), ByHand())
