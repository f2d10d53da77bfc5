"""Seeded faults in rules across tasks and in limits of preemption: every wrong schedule is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from flowlex.instances.flow import FlowInstance, FlowJob, FlowTask, Machine, RunningOn
from flowlex.models import model_for
from flowlex.models.flow.goals import Continuity, LoadSpread, Priority
from tests.models.flow.capacity_cases import cluster
from tests.models.flow.ties import GOALS, tied_cluster
from tests.validation.faults.seeding import THOROUGH, Change, faults_of, field, run_faults

_FLOW = "flowlex.models.flow"


def _teams(change: Any) -> Change:
    return field("teams", lambda teams, *_: tuple(change(team) for team in teams))


def _limits(change: Any) -> Change:
    return field("limits", lambda limits, *_: tuple(change(limit) for limit in limits))


def _leaves(change: Any) -> Change:
    return lambda proof, *_: {name: [change(leaf) for leaf in leaves] for name, leaves in proof.items()}


FAULTS: dict[str, dict[str, Change]] = {
    f"{_FLOW}.task_rules:TaskRules.of": {
        "the first team lost": field("teams", lambda teams, *_: teams[1:]),
        "the last team lost": field("teams", lambda teams, *_: teams[:-1]),
        "gangs may run in part": _teams(lambda t: replace(t, whole=False)),
        "affinities run whole": _teams(lambda t: replace(t, whole=True)),
        "a task of each team lost": _teams(lambda t: replace(t, tasks=t.tasks[1:])),
        "teams anywhere": _teams(lambda t: replace(t, domains=())),
        "the first domain lost": _teams(lambda t: replace(t, domains=t.domains[1:])),
        "no spreads": field("limits", lambda *_: ()),
        "the first limit lost": field("limits", lambda limits, *_: limits[1:]),
        "one more in each domain": _limits(lambda x: replace(x, most=x.most + 1)),
        "one less in each domain": _limits(lambda x: replace(x, most=max(x.most - 1, 0))),
        "a task of each spread lost": _limits(lambda x: replace(x, tasks=x.tasks[1:])),
        "nowhere": field("inside", lambda inside, *_: dict.fromkeys(inside, frozenset())),
    },
    f"{_FLOW}.integer_resources:Resources.over": {"blind": lambda *_: np.zeros((0, 2), np.int64)},
    f"{_FLOW}.program_method:_groups": {"all alike": lambda found, of, names: {names[0]: names[1:]}},
    f"{_FLOW}.flow_data:_prices": {
        "nowhere": lambda prices, *_: [{} for _ in prices],
        "one machine less": lambda prices, *_: [dict(list(each.items())[1:]) for each in prices],
        "dearer on the first": lambda prices, *_: [{m: c + 9 * (m == "m0") for m, c in p.items()} for p in prices],
    },
    f"{_FLOW}.flow_data:_key": {
        "jobs alike": lambda key, view, *_: view.job,
        "all tasks alike": lambda *_: 0,
    },
    f"{_FLOW}.program_method:proof_leaves": {
        "none": lambda *_: {},
        "the first stage left out": lambda proof, *_: dict(list(proof.items())[1:]),
        "a leaf left out": lambda proof, *_: {name: leaves[1:] for name, leaves in proof.items()},
        "nothing branched": _leaves(lambda leaf: leaf | {"branches": []}),
        "machines free": _leaves(
            lambda leaf: leaf | {"rows": {k: v for k, v in leaf["rows"].items() if k != "machine"}}
        ),
        "multipliers of one": _leaves(
            lambda leaf: leaf | {"rows": {k: dict.fromkeys(v, 1) for k, v in leaf["rows"].items()}}
        ),
        "earlier stages forgotten": _leaves(lambda leaf: leaf | {"earlier": {}}),
    },
    f"{_FLOW}.counted_program:CountedProgram.columns": {
        "nothing": lambda x, *_: 0 * x,
        "nobody waits": lambda x, program, *_: (
            x * (np.arange(len(x)) < program.base.program.variable("waits").column[0])
        ),
    },
    f"{_FLOW}.preemption:left": {
        "one more": lambda n, *_: n + 1,
        "none": lambda *_: 0,
        "the past forgotten": lambda n, job, *_: job.preemptions_per_hour,
    },
    f"{_FLOW}.preemption:kept_tasks": {
        "none": lambda *_: {},
        "one fewer": lambda kept, *_: dict(list(kept.items())[:-1]),
    },
    f"{_FLOW}.network_method:prices_of": {
        "stopping free": lambda prices, *_: replace(prices, preempt={}),
        "stopping dearer": lambda prices, *_: replace(prices, preempt={j: p + 7 for j, p in prices.preempt.items()}),
    },
}


def _limited(limit: int, *past_s: float) -> FlowInstance:
    """Two machines that run a job with a limit, and one without; two more important jobs wait."""
    names = ("m0", "m1", "m2")
    running = [FlowTask(name=f"low{k}", running=RunningOn(machine=m, elapsed_s=9.0 - k)) for k, m in enumerate(names)]
    low = FlowJob(name="low", tasks=tuple(running[:2]), preemptions_per_hour=limit, preempted_s=past_s, priority=3)
    free = FlowJob(name="free", tasks=tuple(running[2:]), priority=2)
    high = FlowJob(name="high", tasks=(FlowTask(name="h0", costs={"m0": 3}), FlowTask(name="h1")), priority=0)
    most = FlowJob(name="most", tasks=(FlowTask(name="h2", costs={"m1": 1, "m0": 2}),), priority=1)
    return FlowInstance(
        name="limited", machines=tuple(Machine(name=m, slots=1) for m in names), jobs=(low, free, high, most)
    )


_CASES = [(tied_cluster(seed), {"goals": GOALS}) for seed in (1, 4, 7, 9, 12, 15)]
_CASES += [(cluster(seed), {"goals": (Priority(), LoadSpread())}) for seed in (0, 2)]
_CASES += [(_limited(*how), {"goals": (Priority(), Continuity(2, 0))}) for how in ((1,), (1, 10.0), (2, 3600.0))]


@pytest.mark.parametrize("thorough", THOROUGH)
def test_no_fault_in_rules_gets_a_wrong_schedule_through(thorough: bool) -> None:
    faults = faults_of(FAULTS)
    models = [lambda i=instance, o=options: model_for(i, **o) for instance, options in _CASES]
    engines = [("ties", "highs", models[:8]), ("preemption", "network", models[8:])]
    shown: set[str] = set()
    for family, engine, some in engines:
        own = [f for f in faults if ("preemption" in f[1] or "prices_of" in f[1]) == (family == "preemption")]
        tally = run_faults(family, own, some, lambda s: (s.status, s.score), engine, thorough=thorough)
        print(f"\n{tally}\nnever refused: {'; '.join(tally.idle) or 'none'}")
        assert not tally.passed, "\n".join(tally.passed)
        shown |= {name for name, *_ in own} - set(tally.idle)
    assert len(faults) >= 30 and len(shown) >= len(faults) * 3 // 4
