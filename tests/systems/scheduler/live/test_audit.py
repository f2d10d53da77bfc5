"""`audit` proves live schedules from the instance: random ones pass, and a wrongly built network is refused."""

import pytest

from flowlex.instances.flow import FlowInstance
from flowlex.models.flow.arc_costs import Rules
from flowlex.models.flow.goals import Continuity, DataLocality, FairShares, LoadSpread, Placement, Priority
from flowlex.systems.scheduler.live.scheduler import EventError
from flowlex.validation.certificates import CertificateError
from flowlex.validation.certificates.verifier_interface import verify
from tests.seeds import seeds

GOALS = {
    "placement": ((Placement(), DataLocality(), Continuity(base=3, rate=1)), {}),
    "classes": ((Priority(), Placement(), LoadSpread(2)), {}),
    "shares": ((FairShares("weighted"), Placement(), Continuity()), {}),
    "wait": ((Placement(), DataLocality()), {"wait_cost": 9}),
    "phases": ((Priority(), LoadSpread(), Placement()), {"lexicographic": True, "method": "phases"}),
    "strict": ((LoadSpread(), Placement()), {"lexicographic": True, "cost_limit": 100, "task_limit": 1000}),
}


@pytest.mark.parametrize("seed", seeds(1, 3))
@pytest.mark.parametrize("name", GOALS)
def test_random_lives_are_proven_from_the_instance(name: str, seed: int, flow_life) -> None:
    goals, options = GOALS[name]
    life = flow_life(seed, goals, **options)
    for _ in range(6):
        life.step()
        solution = life.scheduler.audit()
        assert solution.certificate.claim == "optimal"
        life.scheduler.prepare()
        life.scheduler.state.session.solve()  # placed tasks now have their credit for staying
        assert solution.score == life.scheduler.score() and solution.machine_of == life.scheduler.placements()
        document, instance = solution.to_dict(), life.scheduler.instance()
        read = FlowInstance.model_validate(instance.model_dump(mode="json"))
        assert verify(document, read).claim == "optimal"


def test_a_network_that_is_wrong_is_found_out(flow_life, monkeypatch) -> None:
    """The step's proof holds on the wrong network; the audit refuses it."""
    goals, refused = (Placement(), DataLocality()), 0
    monkeypatch.setattr(Rules, "waiting", lambda *_: 0)
    true = Rules.moving
    monkeypatch.setattr(Rules, "moving", lambda *given: {key: -cost for key, cost in true(*given).items()})
    life = flow_life(4, goals)
    for _ in range(6):
        delta = life.step()[2]
        assert delta.certificate.claim == "optimal"
        try:
            life.scheduler.audit()
        except CertificateError:
            refused += 1
    assert refused


def test_what_cannot_be_audited_says_why(flow_life) -> None:
    life = flow_life(1, (Placement(),))
    with pytest.raises(EventError, match="step first"):
        life.scheduler.audit()
    life.step()
    life.scheduler.add_machine(life.machine())
    with pytest.raises(EventError, match="step first"):
        life.scheduler.audit()
