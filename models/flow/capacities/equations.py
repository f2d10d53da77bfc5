"""The rows that capacities add to the mathematics of flow scheduling."""

from __future__ import annotations

from flowlex.models.mathematics import Equation

__all__ = ["VECTOR_EQUATIONS"]

_WHEN = "where machines have capacities"

VECTOR_EQUATIONS: tuple[Equation, ...] = (
    Equation(
        "capacity",
        r"\sum_t q_{tr} x_{tm} \le C_{mr}",
        "tasks share what the machine has of a resource",
        source="reconstructed",
        when=_WHEN,
        exists=lambda model: bool(model.instance.resources),
    ),
    Equation(
        "apart",
        r"\sum_{t \in a} x_{tm} \le 1",
        "tasks of a rule of different machines; rows of the program, a part of the network elsewhere",
        when=_WHEN,
        exists=lambda model: bool(model.instance.resources) and bool(model.way.packing.program.together[1]),
    ),
    Equation(
        "stage",
        r"\sum_{t,a} c^k_{ta} x_{ta} + \sum_t w^k_t z_t + \dots \le v_k",
        "no more of the stages before than they came to",
        when=f"{_WHEN}, after the first stage",
        exists=lambda model: bool(model.instance.resources) and model.stage != model.way.packing.stages[0],
    ),
)
