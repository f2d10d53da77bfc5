"""Live goals in strict order: with weights and with phases every step equals the static lexicographic optimum."""

import numpy as np
import pytest

from flowlex.instances.flow import FlowInstance, FlowJob, FlowTask, Machine
from flowlex.models import ModelError
from flowlex.models.flow.goals import Continuity, DataLocality, FairShares, LoadSpread, Placement, Priority, RandomCosts
from flowlex.models.flow.lexicographic_costs import StrictOrder
from flowlex.systems.scheduler.live.scheduler import FlowScheduler
from flowlex.systems.scheduler.live.session_choice import divisors, prove
from flowlex.systems.scheduler.warm_network.network_session import PATH_COST_LIMIT
from flowlex.systems.scheduler.warm_network.staged_network import PhasedSession
from flowlex.validation.certificates import CertificateError
from tests.seeds import seeds

ORDERS = {
    "placement first": (Priority(), Placement(), DataLocality(), Continuity(base=3, rate=2), LoadSpread()),
    "spread first": (LoadSpread(), FairShares(), Continuity(), Placement()),
    "chance first": (RandomCosts(most=5), FairShares("caps"), DataLocality(), Placement()),
    "weighted first": (Priority(mode="weighted", lowest=4), LoadSpread(), DataLocality()),
}


@pytest.mark.parametrize("seed", seeds(1, 3))
@pytest.mark.parametrize("how", ["weights", "phases", "wide"])
@pytest.mark.parametrize("order", ORDERS)
def test_every_step_equals_the_static_lexicographic_optimum(order, how, seed, flow_life):
    options = {} if how == "wide" else {"method": how, "task_limit": 60}
    goals = ORDERS[order]
    if how == "weights":
        options["cost_limit"] = 60
        goals = tuple(goal for goal in goals if order != "placement first" or not isinstance(goal, DataLocality))
    life = flow_life(seed, goals, lexicographic=True, **options)
    assert isinstance(life.scheduler.state.session, PhasedSession) == (how != "weights")
    for _ in range(8):
        life.check_step()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("goals", [(FairShares(), Priority(), Placement(), Continuity()), (LoadSpread(),)])
def test_weights_that_would_overflow_are_kept_by_phases(goals, seed, flow_life):
    life = flow_life(seed, goals, cost_limit=10**9)
    assert "phases: 2 stages, as the strict order would need a weight of 8e+18" in life.scheduler.method
    for _ in range(8):
        life.check_step()
        assert life.last.method == life.scheduler.method
        assert sum("stage" in check.name for check in life.last.certificate.checks) == 2


def test_what_cannot_be_exact_is_refused():
    def make(*goals, **options):
        return FlowScheduler(FlowInstance(machines=(Machine(name="a"),)), goals, **options)

    with pytest.raises(ModelError, match="overflow exact integers even one goal at a time; lower cost_limit"):
        make(Placement(), cost_limit=2**40)
    with pytest.raises(ModelError, match="use method='phases', or lower cost_limit"):
        make(Placement(), cost_limit=10**9, method="weights")
    with pytest.raises(ModelError, match="no method is called 'guess'"):
        make(method="guess")
    scheduler = make(Placement(), DataLocality(), lexicographic=True)
    scheduler.submit(FlowJob(name="j", tasks=(FlowTask(name="t"),)))
    before = scheduler.instance()
    for goals in ((), (DataLocality(), Placement())):
        scheduler = make(*goals, lexicographic=True)
        scheduler.submit(FlowJob(name="j", tasks=(FlowTask(name="t"),)))
        with pytest.raises(ModelError, match="a cost of 1000001"):
            scheduler.set_cost("t", "a", 1_000_001)
        assert scheduler.instance() == before.model_copy(update={"name": scheduler.instance().name})
    with pytest.raises(ModelError, match="a slot of machine 'b': a cost of 2000000"):
        make(LoadSpread(step=2 * 10**6)).add_machine(Machine(name="b", slots=2))


def test_costs_are_read_back_by_rank():
    goals = (Placement(), LoadSpread(), Continuity(), Placement())
    order = StrictOrder.live(goals, 1000, 1000, lexicographic=True)
    assert order.names == ("Placement", "LoadSpread", "Continuity", "Placement 2")
    assert order.bounds[1] == 2000 < order.bounds[0]  # slots of two machines at most
    rng = np.random.default_rng(1)
    for parts in rng.integers(-1000, 1001, (200, 4)).tolist():
        assert order.split(sum(w * c for w, c in zip(order.weights, parts, strict=True))) == tuple(parts)
    one = divisors(order, 2**400)
    assert one == (1,)
    cut = divisors(order, PATH_COST_LIMIT)
    assert len(cut) == 2
    assert cut[0] in order.weights
    assert len(divisors(order, PATH_COST_LIMIT, one_each=True)) == 5


def test_a_wrong_stage_does_not_pass_the_certificate():
    machines = (Machine(name="a"), Machine(name="b"))
    scheduler = FlowScheduler(FlowInstance(machines=machines), (RandomCosts(), LoadSpread()), method="phases")
    scheduler.submit(FlowJob(name="j", tasks=(FlowTask(name="t"),)))
    scheduler.step()
    arcs = scheduler.state.network.machines
    slots = [arcs[name].arcs[0][0] for name in ("a", "b")]
    flow = scheduler.state.session.flow
    group = next(iter(scheduler.state.network.groups.values())).arcs
    ways = [group[name] for name in ("a", "b")]
    flow[slots], flow[ways] = flow[slots[::-1]].copy(), flow[ways[::-1]].copy()
    with pytest.raises(CertificateError, match="stage 2: reduced costs have the right sign"):
        prove(scheduler.state.session, "here")
