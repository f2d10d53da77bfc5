"""The rows of flow scheduling, each stated once."""

from __future__ import annotations

from flowlex.models.base import Equation
from flowlex.models.flow.capacities.equations import VECTOR_EQUATIONS
from flowlex.models.flow.task_rules.program import BOND_EQUATIONS

__all__ = ["EQUATIONS"]

EQUATIONS: tuple[Equation, ...] = (
    Equation("task", r"\sum_a x_{ta} + z_t = 1", "every task runs or waits", "what the task costs", "cost"),
    Equation(
        "unscheduled",
        r"l_j \le \sum_{t \in j} z_t \le u_j",
        "waiting tasks of a job",
        "price of letting one more task of the job wait",
        "cost",
    ),
    Equation(
        "share",
        r"\sum_{t \in j} z_t \ge l_j",
        "tasks of a job that wait beyond its share",
        when="as arcs of the network, and as rows of a changed model, of which unscheduled is the upper bound",
        exists=lambda model: model.as_stated or "share" in getattr(model.formulation, "arc_blocks", {}),
    ),
    Equation(
        "group",
        r"\sum_t x_{tg} = \sum_m y_{gm}",
        "groups hand tasks to machines",
        exists=lambda model: not model.instance.resources,
    ),
    Equation(
        "machine",
        r"\sum_t x_{tm} + \sum_g y_{gm} \le K_m",
        "slots of a machine",
        "price of a slot on the machine",
        "cost",
    ),
    Equation(
        "preempted",
        r"\sum_{t \in j, \text{held}} z_t \le p_j",
        "running tasks that a job lets stop",
        when="with running tasks of jobs that limit preemptions",
        exists=lambda model: len(model.schedule.gates) > 0,
    ),
    Equation(
        "sink",
        r"\sum_m k_m + \sum_t z_t = |T|",
        "every task ends at the sink",
        exists=lambda model: not model.instance.resources,
    ),
    *VECTOR_EQUATIONS,
    *BOND_EQUATIONS,
)
