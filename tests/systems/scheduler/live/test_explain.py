"""`explain`: the stated price places the task, one unit less does not, and it runs after its blocker ends."""

from copy import deepcopy

import pytest

from flowlex import FlowScheduler, FlowScheduling
from flowlex.instances.flow import Constraint, FlowInstance, FlowJob, FlowTask, Machine
from flowlex.models.flow.goals import Continuity, DataLocality, FairShares, LoadSpread, Placement, Priority, RandomCosts
from flowlex.systems.scheduler.live.scheduler import EventError
from tests.seeds import seeds

SETS = {
    "waiting priced": ((Placement(), DataLocality(), LoadSpread()), {"wait_cost": 3}),
    "random": ((RandomCosts(most=9), Placement()), {}),
    "strict": ((Priority(), Placement(), Continuity(base=3, rate=2)), {}),
    "weighted": ((Priority(mode="weighted", lowest=4), DataLocality(), Continuity()), {}),
    "shares": ((FairShares(), Placement(), LoadSpread()), {}),
    "two ranks": ((DataLocality(), LoadSpread(), Continuity()), {"lexicographic": True}),
    "phases": ((DataLocality(), LoadSpread(), Placement()), {"lexicographic": True, "method": "phases"}),
}


def optimum_with_dearer_waiting(scheduler, task, extra):
    """Least cost, and whether the task runs, when its waiting costs ``extra`` more."""
    state = deepcopy(scheduler.state)
    its = state.network.tasks[task]
    offers = {target: state.network.costs[arc] for target, arc in its.arcs.items()}
    state.network.reprice(task, offers, its.wait_cost + extra)
    state.session.solve()
    return state.session.objective, not state.session.flow[its.wait_arc]


def check_price(scheduler, why, before):
    first, limit = scheduler.state.rules.first, scheduler.state.costs.order.limit
    units = limit + 1 if why.price is None else round(why.price * scheduler.options["scale"])
    less = (units - 1) * first
    assert optimum_with_dearer_waiting(scheduler, why.task, less)[0] == before + less  # it may still wait
    if why.price is not None:
        objective, runs = optimum_with_dearer_waiting(scheduler, why.task, units * first)
        assert runs and before + less <= objective < before + units * first


def check_cost(scheduler, why, goals, options):
    """Apply `set_cost` as explained, and compare with the static model."""
    score, waits = scheduler.score(), []
    for cost in (why.cost, why.cost + 1 / scheduler.options["scale"]):
        trial = deepcopy(scheduler)
        trial.set_cost(why.task, why.machine, cost)
        static = FlowScheduling(trial.instance(), goals=goals, **options).solve("network")
        waits.append(why.task in static.waiting)
        if cost == why.cost:
            assert trial.step().certificate.ok and trial.machine_of(why.task) is not None
            assert trial.score() == static.score != score
        else:
            assert static.score.cost == score.cost  # waiting is still equally good
            priced = options.get("wait_cost") or any(getattr(goal, "mode", "") == "weighted" for goal in goals)
            assert priced or static.score == score
    assert not waits[0]


@pytest.mark.parametrize("goals", SETS)
@pytest.mark.parametrize("seed", seeds(1, 12))
def test_prices_and_blockers_are_true(seed, goals, flow_life):
    rules, options = SETS[goals]
    life, asked = flow_life(seed, rules, **options), 0
    life.scheduler.submit(job("queue", 14, priority=2))  # more than the slots of the start
    for _ in range(5):
        life.step()
        scheduler = life.scheduler
        for task in [name for name in scheduler.state.tasks if scheduler.machine_of(name) is None][:3]:
            places = scheduler.placements()
            why = scheduler.explain(task)
            asked += 1
            assert scheduler.placements() == places and why.reason and why.remedy and scheduler.explain(task) == why
            if why.machine is None and why.rule == "placement":
                assert why.rule == "placement" and why.price is None is why.blocker
                continue
            scheduler.state.session.solve()  # placed tasks now have their credit for staying
            check_price(scheduler, why, scheduler.state.session.objective)
            if why.cost is not None:
                check_cost(scheduler, why, rules, options)
            if why.blocker is not None:
                trial = deepcopy(scheduler)
                trial.finish(why.blocker)
                delta = trial.step()
                assert task in {name for name, _ in delta.placed} and delta.certificate.ok
        assert scheduler.step().stopped == ()  # `explain` changes nothing
    assert asked


def cluster(*slots, goals=(), **options):
    machines = tuple(Machine(name=f"m{k}", slots=n, rack="r") for k, n in enumerate(slots))
    return FlowScheduler(FlowInstance(name="small", machines=machines), goals, **options)


def job(name, count, **fields):
    return FlowJob(name=name, tasks=tuple(FlowTask(name=f"{name}{k}") for k in range(count)), **fields)


def test_a_more_important_job_is_named_and_its_end_places_the_task():
    live = cluster(1, goals=(Priority(), Placement()))
    live.submit(job("a", 1, priority=1))
    live.submit(job("b", 1, priority=5))
    live.step()
    why = live.explain("b0")
    assert (why.rule, why.machine, why.rack, why.price) == ("priority", "m0", "r", None)
    assert (why.stops, why.moves, why.blocker) == (("a0",), (), "a0")
    assert "priority 1" in why.reason and "at most 1" in why.remedy and str(why).startswith("b0 waits: a0 of a,")
    live.set_priority("b", 0)
    assert live.step().placed == (("b0", "m0"),)


def test_a_place_dearer_than_waiting():
    live = cluster(1, wait_cost=2)
    live.submit(job("a", 1))
    live.set_cost("a0", "m0", 7)
    live.step()
    why = live.explain("a0")
    assert (why.rule, why.price, why.cost, why.stops) == ("worth", 6, 1, ())
    assert why.reason == "waiting costs 5 less than its cheapest place, 'm0', with what moves for it"


def test_a_share_and_a_placement_are_named():
    live = cluster(2, goals=(FairShares(), Placement()))
    live.submit(job("a", 2, max_tasks=1))
    wants = (Constraint(kind="required", resources=("tpu",)),)
    live.submit(FlowJob(name="b", tasks=(FlowTask(name="b0", constraints=wants),)))
    live.step()
    waits = next(name for name in ("a0", "a1") if live.machine_of(name) is None)
    why = live.explain(waits)
    assert why.rule == "share" and "max_tasks 1" in why.reason and "update_shares" in why.remedy
    assert why.blocker is None  # an end would change the shares
    why = live.explain("b0")
    assert (why.rule, why.reason, why.machine) == ("placement", "no machine meets its placement (tpu)", None)
    live.set_slots("m0", 0)
    assert live.explain("a0").reason == "no machine it may take has a slot"


def test_what_cannot_be_explained():
    live = cluster(1)
    live.submit(job("a", 1))
    with pytest.raises(EventError, match="'a0' may be placed by the next step"):
        live.explain("a0")
    live.step()
    with pytest.raises(EventError, match="'a0' runs on 'm0'; only what waits is explained"):
        live.explain("a0")
    with pytest.raises(EventError, match="no task is named 'zz'"):
        live.explain("zz")
