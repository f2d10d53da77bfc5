"""The live network in stages against solving the stages from scratch, over random changes of every kind."""

from dataclasses import replace

import pytest

from flowlex.formulations import EngineError
from flowlex.formulations.lexicographic.lexicographic_network import solve_lexicographic
from flowlex.formulations.program_arrays import exact_dot
from flowlex.systems.scheduler.warm_network.staged_network import PhasedSession
from tests.systems.scheduler.warm_network.test_network_session import Life

DIVISORS = (10**60, 10**30, 1)


class Ranked(Life):
    """The same with costs of three ranks."""

    outlet = 2**40, 50 * DIVISORS[0]

    def cost(self):
        """Parts that are not negative, less a little, as parts are balanced."""
        ranks = self.rng.integers(0, 3, 3).tolist()
        return sum(d * p for d, p in zip(DIVISORS, ranks, strict=True)) - int(self.rng.integers(0, 3))

    def compare(self):
        """Solve, prove, and compare every stage with a cold solve of the stages."""
        session = self.session
        session.solve()
        found = session.violations()
        assert (found.conservation, found.bounds, found.reduced_costs) == (0, 0, 0)
        costs = session.arcs()[3]
        network = replace(session.stages[0].network(), cost=costs[0])
        stages = solve_lexicographic(network, costs)
        mine = [exact_dot(cost, session.flow) for cost in costs]
        assert mine == [stage.outcome.objective for stage in stages]
        assert session.objective == sum(d * part for d, part in zip(DIVISORS, mine, strict=True))


@pytest.mark.loops
@pytest.mark.parametrize("seed", range(12))
def test_every_step_equals_the_stages_from_scratch(seed):
    life = Ranked(PhasedSession(DIVISORS, 2, 4), seed)
    for _ in range(10):
        for _ in range(int(life.rng.integers(1, 10))):
            life.change()
        life.compare()


def test_changed_flows_are_told_once_and_wrong_ones_are_seen():
    session = PhasedSession((1000, 1))
    a, b = session.add_node(), session.add_node()
    session.add_supply(a, 2)
    dear, cheap, out = (session.add_arc(a, b, 5, 7001), session.add_arc(a, b, 1, 6999), session.add_arc(b, 0, 9, 0))
    session.solve()
    assert session.parts(6999) == (7, -1)
    assert [x.tolist() for x in session.take_touched()] == [[dear, cheap, out], [0, 0, 0]]
    assert session.take_touched()[0].tolist() == []
    assert session.objective == 14_000
    session.change_arc(cheap, a, b, 1, 7002)
    session.solve()
    assert session.violations().by_stage == (0, 0)
    assert session.flow.tolist() == [2, 0, 2]
    session.flow[:2] = 1, 1
    assert session.violations().by_stage == (0, 1)
    session.flow[:2] = 1, 0
    assert session.violations().conservation == 1
    session.flow[:2] = 6, -4
    assert session.violations().bounds == 4
    with pytest.raises(ValueError, match=r"divisors must fall to 1, got \(1, 1\)"):
        PhasedSession((1, 1))
    session.remove_arc(out)
    with pytest.raises(EngineError, match="give it an outlet"):
        session.solve()
