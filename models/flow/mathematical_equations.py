"""The equations of flow scheduling, each stated once."""

from __future__ import annotations

from dataclasses import replace

from flowlex.models.model_base import Equation

_COUNTED = "with capacities or task rules, and in changed models; counted by classes of tasks and kinds of machines"

_ROWS: tuple[Equation, ...] = (
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
    ),
    Equation("group", r"\sum_t x_{tg} = \sum_m y_{gm}", "groups hand tasks to machines"),
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
    ),
    Equation("sink", r"\sum_m k_m + \sum_t z_t = |T|", "every task ends at the sink"),
    Equation(
        "apart",
        r"\sum_{t \in a} x_{tm} \le 1",
        "tasks of a rule of different machines; elsewhere part of the network",
        when=_COUNTED,
    ),
    Equation(
        "capacity", r"\sum_t q_{tr} x_{tm} \le C_{mr}", "tasks share what the machine has of a resource", when=_COUNTED
    ),
    Equation(
        "size",
        r"\sum_t \lfloor q_{tr} / d \rfloor x_{tm} \le \lfloor C_{mr} / d \rfloor",
        "slots of size d that tasks take of a capacity",
        when=_COUNTED,
    ),
    Equation("gang", r"y_g + z_t = 1 \quad (t \in g)", "all of a gang run, or all wait", when=_COUNTED),
    Equation("gang_within", r"\sum_{m \in d} x_{tm} = u_{gd}", "a gang runs in one domain", when=_COUNTED),
    Equation("gang_within_one", r"\sum_d u_{gd} = y_g", "a gang that runs has one domain", when=_COUNTED),
    Equation("within", r"\sum_{m \in d} x_{tm} \le u_{fd}", "tasks with affinity run in its domain", when=_COUNTED),
    Equation("within_one", r"\sum_d u_{fd} \le 1", "an affinity has one domain", when=_COUNTED),
    Equation(
        "spread", r"\sum_{t \in s} \sum_{m \in d} x_{tm} \le b_{sd}", "tasks of a spread by domain", when=_COUNTED
    ),
)


def _there(equation: Equation) -> Equation:
    """Return the equation; it exists if the solved program has rows of its name."""
    name = equation.name
    return replace(
        equation, exists=lambda model: name in (model.statement if model.as_stated else model.solution_method).rows
    )


EQUATIONS: tuple[Equation, ...] = tuple(map(_there, _ROWS))
